"""mhc_head for the dispatcher: fake kernels, autograd, vmap."""

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

forward = torch.ops.anabranch.mhc_head.default
backward = torch.ops.anabranch.mhc_head_backward.default


@fake("anabranch::mhc_head")
def _forward_fake(
    x: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    norm_eps: float,
    hc_eps: float,
    caches: bool,
) -> tuple[Tensor, ...]:
    infer(forward, (x, fn, base, scale), attributes=(norm_eps, hc_eps, caches))
    *tokens, n, d = x.shape
    agree(fn, n, n * d)
    agree(base, n)
    dtype = coefficient(x)
    kept = ((*tokens,), (*tokens, n), (*tokens, n))
    return (
        x.new_empty((*tokens, d)),
        *(x.new_empty(shape, dtype=dtype) if caches else absent(x) for shape in kept),
    )


@fake("anabranch::mhc_head_backward")
def _backward_fake(
    grad_y: Tensor,
    x: Tensor,
    fn: Tensor,
    scale: Tensor,
    inv_rms: Tensor,
    h_mix: Tensor,
    w: Tensor,
    hc_eps: float,
) -> tuple[Tensor, ...]:
    infer(backward, (grad_y, x, fn, scale, inv_rms, h_mix, w), attributes=(hc_eps,))
    agree(fn, x.shape[-2], x.shape[-2] * x.shape[-1])
    return (
        x.new_empty(x.shape),
        fn.new_empty(fn.shape),
        fn.new_empty((x.shape[-2],)),
        scale.new_empty(scale.shape),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, fn, _, scale, _, hc_eps, caches = inputs
    kept = output[1:]
    ctx.mark_non_differentiable(*kept)
    ctx.hc_eps = hc_eps
    ctx.caches = caches
    if caches:
        ctx.save_for_backward(x, fn, scale, *kept)


def _backward(ctx: Any, grad_y: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    if not ctx.caches:
        raise RuntimeError("mhc_head: caches is False, expected True for a call to differentiate")
    x = ctx.saved_tensors[0]
    grad_y = filled(grad_y, x, *x.shape[:-2], x.shape[-1])
    return (*invoke_backward(backward, grad_y, *ctx.saved_tensors, ctx.hc_eps), None, None, None)


register_derivative(forward, _setup, _backward)
refuse_second_derivative(backward)
register_vmap(forward, ("x",), (0,) * 4)
register_vmap(backward, (), None)
