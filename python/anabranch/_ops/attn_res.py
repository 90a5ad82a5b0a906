"""attn_res_prepare and attn_res_merge for the dispatcher: fake kernels, autograd, vmap."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anabranch._ops._library import (
    Size,
    absent,
    fake,
    filled,
    infer,
    invoke_backward,
    refuse_second_derivative,
    register_derivative,
    register_vmap,
)
from anabranch._ops.block_attn_res import agree_sources
from anabranch._ops.mhc_pre import coefficient

prepare = torch.ops.anabranch.attn_res_prepare.default
prepare_backward = torch.ops.anabranch.attn_res_prepare_backward.default
merge = torch.ops.anabranch.attn_res_merge.default
merge_backward = torch.ops.anabranch.attn_res_merge_backward.default


def _like_or_absent(parameter: Tensor | None, like: Tensor) -> Tensor:
    return absent(like) if parameter is None else parameter.new_empty(parameter.shape)


def _agree(blocks: list[Tensor], queries: Tensor, gamma: Tensor | None) -> list[Tensor]:
    """The blocks; without any, the queries, which then have no tokens to agree with."""
    if blocks:
        agree_sources(blocks, (), (queries, gamma))
    return blocks or [queries]


def _tokens(blocks: list[Tensor]) -> tuple[Size, ...]:
    return tuple(blocks[0].shape[:-1]) if blocks else ()


@fake("anabranch::attn_res_prepare")
def _prepare_fake(
    blocks: list[Tensor],
    queries: Tensor,
    rmsnorm_gamma: Tensor | None,
    scale: float,
    rmsnorm_eps: float,
    enable_rmsnorm: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    infer(prepare, (queries, rmsnorm_gamma), blocks, (scale, rmsnorm_eps, enable_rmsnorm))
    first, *_ = _agree(blocks, queries, rmsnorm_gamma)
    dtype = coefficient(first)
    statistics = (queries.shape[0], *_tokens(blocks))
    return (
        first.new_empty((*statistics, queries.shape[1]), dtype=dtype),
        first.new_empty(statistics, dtype=dtype),
        first.new_empty(statistics, dtype=dtype),
    )


@fake("anabranch::attn_res_prepare_backward")
def _prepare_backward_fake(
    grad_o: Tensor,
    grad_m: Tensor,
    grad_l: Tensor,
    blocks: list[Tensor],
    queries: Tensor,
    rmsnorm_gamma: Tensor | None,
    scale: float,
    rmsnorm_eps: float,
    enable_rmsnorm: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    tensors = (grad_o, grad_m, grad_l, queries, rmsnorm_gamma)
    infer(prepare_backward, tensors, blocks, (scale, rmsnorm_eps, enable_rmsnorm))
    first, *_ = _agree(blocks, queries, rmsnorm_gamma)
    return (
        queries.new_empty(queries.shape),
        _like_or_absent(rmsnorm_gamma, first),
        first.new_empty((len(blocks), *first.shape)) if blocks else absent(first),
    )


@fake("anabranch::attn_res_merge")
def _merge_fake(
    o: Tensor,
    m: Tensor,
    l: Tensor,  # noqa: E741
    v: Tensor,
    query: Tensor,
    rmsnorm_gamma: Tensor | None,
    scale: float,
    rmsnorm_eps: float,
    enable_rmsnorm: bool,
) -> Tensor:
    tensors = (o, m, l, v, query, rmsnorm_gamma)
    infer(merge, tensors, attributes=(scale, rmsnorm_eps, enable_rmsnorm))
    agree_sources([v], (o,), (query, rmsnorm_gamma))
    return v.new_empty(v.shape)


@fake("anabranch::attn_res_merge_backward")
def _merge_backward_fake(
    grad_h: Tensor,
    o: Tensor,
    m: Tensor,
    l: Tensor,  # noqa: E741
    v: Tensor,
    query: Tensor,
    rmsnorm_gamma: Tensor | None,
    scale: float,
    rmsnorm_eps: float,
    enable_rmsnorm: bool,
) -> tuple[Tensor, ...]:
    tensors = (grad_h, o, m, l, v, query, rmsnorm_gamma)
    infer(merge_backward, tensors, attributes=(scale, rmsnorm_eps, enable_rmsnorm))
    agree_sources([v], (o, grad_h), (query, rmsnorm_gamma))
    return (
        *(t.new_empty(t.shape) for t in (o, m, l, v, query)),
        _like_or_absent(rmsnorm_gamma, v),
    )


def _filled_parts(
    blocks: list[Tensor],
    queries: Tensor,
    grad_o: Tensor | None,
    grad_m: Tensor | None,
    grad_l: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    like = blocks[0] if blocks else queries
    dtype = coefficient(like)
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


register_derivative(prepare, _prepare_setup, _prepare_backward)
register_derivative(merge, _merge_setup, _merge_backward)
refuse_second_derivative(prepare_backward)
refuse_second_derivative(merge_backward)
register_vmap(prepare, ("blocks",), (1, 1, 1))
register_vmap(prepare_backward, (), None)
register_vmap(merge, ("o", "m", "l", "v"), (0,))
register_vmap(merge_backward, (), None)
