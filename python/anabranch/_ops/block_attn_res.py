"""block_attn_res for the dispatcher: fake kernels, autograd, vmap."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anabranch._ops._library import (
    absent,
    agree,
    fake,
    filled,
    infer,
    invoke_backward,
    refuse_second_derivative,
    register_derivative,
    register_vmap,
)
from anabranch._ops.mhc_pre import coefficient

forward = torch.ops.anabranch.block_attn_res.default
backward = torch.ops.anabranch.block_attn_res_backward.default


def agree_sources(
    blocks: list[Tensor], others: tuple[Tensor | None, ...], vectors: tuple[Tensor | None, ...]
) -> None:
    """All sources have one shape; parameter vectors are [D] or [1, D]."""
    for source in (*blocks[1:], *others):
        agree(source, *blocks[0].shape)
    for vector in vectors:
        if vector is not None:
            agree(vector, *vector.shape[:-1], blocks[0].shape[-1])


@fake("anabranch::block_attn_res")
def _forward_fake(
    blocks: list[Tensor],
    partial_block: Tensor | None,
    proj_weight: Tensor,
    rmsnorm_gamma: Tensor | None,
    scale: float,
    rmsnorm_eps: float,
    enable_rmsnorm: bool,
    rms_out: bool,
    alpha_out: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    attributes = (scale, rmsnorm_eps, enable_rmsnorm, rms_out, alpha_out)
    infer(forward, (partial_block, proj_weight, rmsnorm_gamma), blocks, attributes)
    agree_sources(blocks, (partial_block,), (proj_weight, rmsnorm_gamma))
    first = blocks[0]
    tokens = first.shape[:-1]
    sources = len(blocks) + (partial_block is not None)
    dtype = coefficient(first)
    return (
        first.new_empty(first.shape),
        first.new_empty((*tokens, sources, 1), dtype=dtype) if rms_out else absent(first),
        first.new_empty((*tokens, sources), dtype=dtype) if alpha_out else absent(first),
    )


@fake("anabranch::block_attn_res_backward")
def _backward_fake(
    grad_h: Tensor,
    blocks: list[Tensor],
    partial_block: Tensor | None,
    proj_weight: Tensor,
    rmsnorm_gamma: Tensor | None,
    alpha_cache: Tensor,
    rms_cache: Tensor | None,
    scale: float,
    rmsnorm_eps: float,
    enable_rmsnorm: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    tensors = (grad_h, partial_block, proj_weight, rmsnorm_gamma, alpha_cache, rms_cache)
    infer(backward, tensors, blocks, (scale, rmsnorm_eps, enable_rmsnorm))
    agree_sources(blocks, (partial_block, grad_h), (proj_weight, rmsnorm_gamma))
    first = blocks[0]
    return (
        absent(first) if partial_block is None else first.new_empty(first.shape),
        proj_weight.new_empty(proj_weight.shape),
        absent(first) if rmsnorm_gamma is None else rmsnorm_gamma.new_empty(rmsnorm_gamma.shape),
        first.new_empty((len(blocks), *first.shape)),
    )


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


register_derivative(forward, _setup, _backward)
refuse_second_derivative(backward)
register_vmap(forward, ("blocks", "partial_block"), (0, 0, 0))
register_vmap(backward, (), None)
