"""attn_res_prepare and attn_res_merge for the dispatcher: their derivatives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anabranch._ops._description import Size, coefficient
from anabranch._ops._library import filled, invoke_backward, register

prepare = torch.ops.anabranch.attn_res_prepare.default
prepare_backward = torch.ops.anabranch.attn_res_prepare_backward.default
merge = torch.ops.anabranch.attn_res_merge.default
merge_backward = torch.ops.anabranch.attn_res_merge_backward.default


def _tokens(blocks: list[Tensor]) -> tuple[Size, ...]:
    return tuple(blocks[0].shape[:-1]) if blocks else ()


def _filled_parts(
    blocks: list[Tensor],
    queries: Tensor,
    grad_o: Tensor | None,
    grad_m: Tensor | None,
    grad_l: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    like = blocks[0] if blocks else queries
    dtype = coefficient(like.dtype)
    statistics = (queries.shape[0], *_tokens(blocks))

    def part(grad: Tensor | None, *shape: Size) -> Tensor:
        return like.new_zeros(shape, dtype=dtype) if grad is None else grad

    return (
        part(grad_o, *statistics, queries.shape[1]),
        part(grad_m, *statistics),
        part(grad_l, *statistics),
    )


def _prepare_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    blocks, queries, rmsnorm_gamma, *attributes = inputs
    ctx.attributes = tuple(attributes)
    ctx.save_for_backward(queries, rmsnorm_gamma, *blocks)


def _prepare_backward(
    ctx: Any, grad_o: Tensor | None, grad_m: Tensor | None, grad_l: Tensor | None
) -> tuple[Any, ...]:
    queries, rmsnorm_gamma, *blocks = ctx.saved_tensors
    grads = _filled_parts(blocks, queries, grad_o, grad_m, grad_l)
    grad_queries, grad_gamma, grad_blocks = invoke_backward(
        prepare_backward, *grads, blocks, queries, rmsnorm_gamma, *ctx.attributes
    )
    grad_gamma = None if rmsnorm_gamma is None else grad_gamma
    return list(grad_blocks.unbind(0)), grad_queries, grad_gamma, None, None, None


def _merge_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.attributes = inputs[6:]
    ctx.save_for_backward(*inputs[:6])


def _merge_backward(ctx: Any, grad_h: Tensor | None) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    grad_h = filled(grad_h, saved[3], *saved[3].shape)
    *grads, grad_gamma = invoke_backward(merge_backward, grad_h, *saved, *ctx.attributes)
    return (*grads, None if saved[5] is None else grad_gamma, None, None, None)


register(prepare, _prepare_setup, _prepare_backward)
register(merge, _merge_setup, _merge_backward)
register(prepare_backward)
register(merge_backward)
