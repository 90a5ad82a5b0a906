"""block_attn_res for the dispatcher: its derivative."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anabranch._ops._library import filled, invoke_backward, register

forward = torch.ops.anabranch.block_attn_res.default
backward = torch.ops.anabranch.block_attn_res_backward.default


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    blocks, partial_block, proj_weight, rmsnorm_gamma, *attributes, rms_out, alpha_out = inputs
    _, rms_cache, alpha_cache = output
    ctx.mark_non_differentiable(rms_cache, alpha_cache)
    ctx.attributes = tuple(attributes)
    ctx.alpha_out = alpha_out
    if alpha_out:
        rms = rms_cache if rms_out else None
        ctx.save_for_backward(partial_block, proj_weight, rmsnorm_gamma, alpha_cache, rms, *blocks)


def _backward(ctx: Any, grad_h: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if not ctx.alpha_out:
        raise RuntimeError(
            "block_attn_res: alpha_out is False, expected True for a call to differentiate"
        )
    partial_block, proj_weight, rmsnorm_gamma, alpha, rms, *blocks = ctx.saved_tensors
    grad_h = filled(grad_h, blocks[0], *blocks[0].shape)
    args = (grad_h, blocks, partial_block, proj_weight, rmsnorm_gamma, alpha, rms)
    grad_partial, grad_weight, grad_gamma, grad_blocks = invoke_backward(
        backward, *args, *ctx.attributes
    )
    return (
        list(grad_blocks.unbind(0)),
        None if partial_block is None else grad_partial,
        grad_weight,
        None if rmsnorm_gamma is None else grad_gamma,
        *(None,) * 5,
    )


register(forward, _setup, _backward)
register(backward)
