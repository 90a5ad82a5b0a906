"""Block attention residuals under the names and with the results of ``ai_infra``'s operators.

What they compute is :func:`anabranch.block_attn_res`; caches, flags and an explicit backward are
those of the document that defines ``ai_infra_block_attn_res``.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from anabranch._ops import block_attn_res as _block
from anabranch._ops._library import invoke, needs_grad
from anabranch.functional.attn_res import _attend, _sources

__all__ = ["ai_infra_block_attn_res", "ai_infra_block_attn_res_backward"]


def ai_infra_block_attn_res(
    blocks: Sequence[Tensor],
    proj_weight: Tensor,
    partial_block: Tensor | None = None,
    scale: float = 1.0,
    rmsnorm_eps: float = 1e-6,
    rmsnorm_gamma: Tensor | None = None,
    enable_rmsnorm: bool = True,
    rms_out_flag: bool = False,
    alpha_out_flag: bool = False,
) -> Tensor | tuple[Tensor, ...]:
    """:func:`block_attn_res` with the caches its explicit backward wants.

    Here rmsnorm_gamma is required with the norm, and rms_out_flag needs the norm (ValueError).

    Returns:
        h, (h, rms), (h, alpha) or (h, rms, alpha) by the flags; rms ``[*, L, 1]`` and alpha
        ``[*, L]`` float32, not differentiable.
    """
    op = "ai_infra_block_attn_res"
    if enable_rmsnorm and rmsnorm_gamma is None:
        raise ValueError(f"{op}: rmsnorm_gamma is absent, expected a tensor with enable_rmsnorm")
    if rms_out_flag and not enable_rmsnorm:
        raise ValueError(f"{op}: rms_out_flag is True, expected False without enable_rmsnorm")
    args = (rmsnorm_gamma, scale, rmsnorm_eps, enable_rmsnorm, rms_out_flag, alpha_out_flag)
    h, rms, alpha = _attend(blocks, proj_weight, partial_block, *args)
    caches = (*((rms,) if rms_out_flag else ()), *((alpha,) if alpha_out_flag else ()))
    return (h, *caches) if caches else h


def ai_infra_block_attn_res_backward(
    grad_h: Tensor,
    blocks: Sequence[Tensor],
    proj_weight: Tensor,
    alpha_cache: Tensor,
    partial_block: Tensor | None = None,
    rmsnorm_gamma: Tensor | None = None,
    rms_cache: Tensor | None = None,
    scale: float = 1.0,
    enable_rmsnorm: bool = True,
) -> tuple[list[Tensor] | Tensor | None, ...]:
    """The gradients of :func:`ai_infra_block_attn_res`, from its inputs and caches.

    Returns:
        ``(list of grad_blocks, grad_partial | None, grad_proj_weight)``, and ``grad_gamma`` with
        the norm on, when rmsnorm_gamma and rms_cache are required (ValueError). Gradients of
        parameters have their parameter's dtype and shape.
    """
    op = "ai_infra_block_attn_res_backward"
    for name, tensor in (("rmsnorm_gamma", rmsnorm_gamma), ("rms_cache", rms_cache)):
        if enable_rmsnorm and tensor is None:
            raise ValueError(f"{op}: {name} is absent, expected a tensor with enable_rmsnorm")
    blocks = _sources(op, blocks)
    record = needs_grad(grad_h, *blocks, proj_weight, partial_block, rmsnorm_gamma)
    grad_partial, grad_weight, grad_gamma, grad_blocks = invoke(
        _block.backward,
        record,
        grad_h,
        blocks,
        partial_block,
        proj_weight,
        rmsnorm_gamma,
        alpha_cache,
        rms_cache,
        scale,
        1e-6,  # only used where rms is recomputed: never here
        enable_rmsnorm,
    )
    result = (
        list(grad_blocks.unbind(0)),
        None if partial_block is None else grad_partial,
        grad_weight,
    )
    return (*result, grad_gamma) if enable_rmsnorm else result
