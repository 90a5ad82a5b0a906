"""Block attention residuals, at once and in two phases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor

from anabranch import ops as _ops  # registers the operators  # noqa: F401
from anabranch._ops import attn_res as _attn
from anabranch._ops import block_attn_res as _block
from anabranch._ops._library import invoke, needs_grad


def _sources(op: str, blocks: Sequence[Tensor] | Tensor) -> list[Tensor]:
    """The blocks as a list; one tensor [N, *, D] is N of them."""
    if isinstance(blocks, (list, tuple)):
        return list(blocks)
    if isinstance(blocks, Tensor) and blocks.ndim:
        return list(blocks.unbind(0))
    if blocks is None:
        raise ValueError(f"{op}: blocks is absent, expected a list of tensors")
    raise TypeError(f"{op}: blocks is a {type(blocks).__name__}, expected a list of tensors")


def _attend(
    blocks: Sequence[Tensor],
    proj_weight: Tensor,
    partial_block: Tensor | None,
    rmsnorm_gamma: Tensor | None,
    scale: float,
    rmsnorm_eps: float,
    enable_rmsnorm: bool,
    rms_out: bool,
    alpha_out: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    blocks = _sources("block_attn_res", blocks)
    record = needs_grad(*blocks, proj_weight, partial_block, rmsnorm_gamma)
    result = invoke(
        _block.forward,
        record,
        blocks,
        partial_block,
        proj_weight,
        rmsnorm_gamma,
        scale,
        rmsnorm_eps,
        enable_rmsnorm,
        rms_out or (record and enable_rmsnorm),
        alpha_out or record,
    )
    return cast("tuple[Tensor, Tensor, Tensor]", result)


def block_attn_res(
    blocks: Sequence[Tensor],
    proj_weight: Tensor,
    partial_block: Tensor | None = None,
    scale: float = 1.0,
    rmsnorm_eps: float = 1e-6,
    rmsnorm_gamma: Tensor | None = None,
    enable_rmsnorm: bool = True,
) -> Tensor:
    """A layer's input as attention over the outputs of earlier blocks, one learned query.

    For the L sources v (the blocks, then the partial block), per token::

        s_l = scale * sum_d gamma_d w_d v_{l,d} / sqrt(mean_d(v_l^2) + rmsnorm_eps)
        h   = sum_l softmax(s)_l v_l                     raw v

    Without the norm the root is 1 and gamma is not used. Source: Attention Residuals (Kimi).

    Args:
        blocks: 1 to 127 tensors ``[*, D]``; never stacked or copied.
        proj_weight: w, ``[D]`` or ``[1, D]``, float32 or the blocks' dtype.
        partial_block: one more source; None is no source, not a zero one.
        rmsnorm_gamma: as proj_weight; None with the norm on means ones.

    Returns:
        h ``[*, D]`` of the blocks' dtype.

    Saved for the backward, beside the inputs, per token: ``8 * L`` bytes, ``4 * L`` without norm.
    """
    args = (rmsnorm_gamma, scale, rmsnorm_eps, enable_rmsnorm)
    return _attend(blocks, proj_weight, partial_block, *args, False, False)[0]


def attn_res_prepare(
    blocks: Sequence[Tensor],
    queries: Tensor,
    scale: float = 1.0,
    rmsnorm_eps: float = 1e-6,
    rmsnorm_gamma: Tensor | None = None,
    enable_rmsnorm: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Phase one of attention residuals: all queries over the finished blocks, un-normalised.

    Per query, with the scores of :func:`block_attn_res`: m = max s, l = sum exp(s - m),
    o = sum exp(s - m) v. Source: Attention Residuals (Kimi).

    Args:
        blocks: 0 to 127 tensors ``[*, D]``, or one ``[N, *, D]``. Without any m is the lowest
            float32, l and o are 0, and a merge gives its source; the tokens are then those of
            ``[0, *, D]``, and none (``o [S, D]``) for an empty list.
        queries: ``[S, D]``, float32 or the blocks' dtype.
        rmsnorm_gamma: ``[D]`` for all queries or ``[S, D]``; None with the norm on means ones.

    Returns:
        ``(o [S, *, D], m [S, *], l [S, *])``, float32.

    Saved for the backward: the inputs, nothing else.
    """
    sources = _sources("attn_res_prepare", blocks)
    record = needs_grad(*sources, queries, rmsnorm_gamma)
    args = (sources, queries, rmsnorm_gamma, scale, rmsnorm_eps, enable_rmsnorm)
    o, m, l = invoke(_attn.prepare, record, *args)  # noqa: E741
    if isinstance(blocks, Tensor) and not sources:
        tokens = blocks.shape[1:-1]
        o = _spread(o, tokens)
        m, l = _spread(m, tokens), _spread(l, tokens)  # noqa: E741
    return o, m, l


def _spread(t: Tensor, tokens: Sequence[int]) -> Tensor:
    """[S] or [S, D] -> [S, *tokens] or [S, *tokens, D]."""
    ones = (1,) * len(tokens)
    last = t.shape[1:]
    view = t.reshape(t.shape[0], *ones, *last)
    return view.expand(t.shape[0], *tokens, *last).contiguous()


def attn_res_merge(
    o: Tensor,
    m: Tensor,
    l: Tensor,  # noqa: E741
    v: Tensor,
    query: Tensor,
    scale: float = 1.0,
    rmsnorm_eps: float = 1e-6,
    rmsnorm_gamma: Tensor | None = None,
    enable_rmsnorm: bool = True,
) -> Tensor:
    """Phase two: adds one more source v to one query's part of :func:`attn_res_prepare`.

    With v's score s and m' = max(m, s):
    ``h = (o e^(m-m') + v e^(s-m')) / (l e^(m-m') + e^(s-m'))``, which is
    ``block_attn_res(blocks, query, v)`` within float32 rounding.

    Args:
        o, m, l: ``[*, D]``, ``[*]``, ``[*]`` float32.
        v: ``[*, D]`` activation.
        query: ``[D]``, float32 or v's dtype; rmsnorm_gamma likewise.

    Returns:
        h ``[*, D]`` of v's dtype.

    Saved for the backward: the inputs, nothing else.
    """
    record = needs_grad(o, m, l, v, query, rmsnorm_gamma)
    args = (o, m, l, v, query, rmsnorm_gamma, scale, rmsnorm_eps, enable_rmsnorm)
    return cast(Tensor, invoke(_attn.merge, record, *args))
