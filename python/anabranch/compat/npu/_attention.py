"""Block attention residuals as ``cann_ops_transformer`` publishes them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anabranch import functional
from anabranch.compat import ai_infra


def _sources(op: str, name: str, values: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """The blocks of a list, or of a tensor ``[*, N, D]`` that has them stacked."""
    if isinstance(values, (list, tuple)):
        return list(values)
    if not isinstance(values, Tensor):
        raise TypeError(f"{op}: {name} is a {type(values).__name__}, expected a tensor or a list")
    if values.ndim < 2:
        raise ValueError(f"{op}: {name} has shape {tuple(values.shape)}, expected [*, N, D]")
    return list(values.unbind(-2))


def _count(op: str, valid_blocks: Tensor | int | None, most: int) -> int:
    count = most if valid_blocks is None else int(valid_blocks)
    if not 0 <= count <= most:
        raise ValueError(f"{op}: valid_blocks is {count}, expected 0..{most}")
    return count


def block_attn_res_prepare(
    block_residual: Tensor | Sequence[Tensor],
    valid_blocks: Tensor | int | None = None,
    queries: Tensor | None = None,
    eps: float = 1e-6,
) -> tuple[Tensor, Tensor, Tensor]:
    """The first phase, over finished blocks: :func:`anabranch.attn_res_prepare`.

    Args:
        block_residual: ``[*, N, D]``, or a list of N blocks ``[*, D]``.
        valid_blocks: the first so many of the N blocks count (a number or a tensor of one); None:
            all.
        queries: ``[S, D]``, with scale and norm weight in them.

    Returns:
        ``(numerator [S, *, D], maximum [S, *], exp_sum [S, *])`` float32.
    """
    op = "block_attn_res_prepare"
    if queries is None:
        raise TypeError(f"{op}: queries is absent, expected a tensor [S, D]")
    blocks = _sources(op, "block_residual", block_residual)
    blocks = blocks[: _count(op, valid_blocks, len(blocks))]
    if not blocks and isinstance(block_residual, Tensor):  # no block, but tokens
        tokens = block_residual.shape[:-2]
        shape = (queries.shape[0], *tokens)
        o = queries.new_zeros((*shape, queries.shape[1]), dtype=torch.float32)
        lowest = torch.finfo(torch.float32).min
        return o, o.new_full(shape, lowest), o.new_zeros(shape)
    return functional.attn_res_prepare(blocks, queries, rmsnorm_eps=eps)


def block_attn_res_update(
    partial_block: Tensor,
    partial_delta: Tensor | None,
    query: Tensor,
    numerator: Tensor,
    maximum: Tensor,
    exp_sum: Tensor,
    eps: float = 1e-6,
) -> Tensor:
    """Adds a sublayer's output to the running block in place, then the second phase with it.

    Args:
        partial_block: ``[*, D]``, changed: ``partial_block + partial_delta``, rounded once.
        partial_delta: ``[*, D]``, or None: nothing is added.
        query: ``[D]``; numerator ``[*, D]``, maximum and exp_sum ``[*]``: its part of what
            :func:`block_attn_res_prepare` returned.

    Returns:
        ``[*, D]`` of partial_block's dtype: :func:`anabranch.attn_res_merge`.
    """
    if partial_delta is not None:
        with torch.no_grad():
            partial_block.copy_(partial_block.float() + partial_delta.float())
    return functional.attn_res_merge(
        numerator, maximum, exp_sum, partial_block, query, rmsnorm_eps=eps
    )


def block_attention_residuals(
    blocks: Tensor | Sequence[Tensor],
    proj_weight: Tensor,
    partial_block: Tensor | None = None,
    rmsnorm_gamma: Tensor | None = None,
    eps: float = 1e-6,
    out_flag: bool = False,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """:func:`anabranch.block_attn_res`; with out_flag also ``(inv_rms [*, L], alpha [*, L])``.

    ``blocks`` is a list of ``[*, D]`` or ``[*, N, D]``; inv_rms is the reciprocal of the root mean
    square, as this family of kernels keeps it.
    """
    op = "block_attention_residuals"
    sources = _sources(op, "blocks", blocks)
    args = (sources, proj_weight, partial_block, 1.0, eps, rmsnorm_gamma)
    h = functional.block_attn_res(*args)
    if not out_flag:
        return h
    gamma = torch.ones_like(proj_weight) if rmsnorm_gamma is None else rmsnorm_gamma
    with torch.no_grad():
        _, rms, alpha = ai_infra.ai_infra_block_attn_res(
            sources,
            proj_weight,
            partial_block,
            rmsnorm_eps=eps,
            rmsnorm_gamma=gamma,
            rms_out_flag=True,
            alpha_out_flag=True,
        )
    return h, rms.squeeze(-1).reciprocal(), alpha
