"""mhc_pre_sinkhorn for the dispatcher: fake kernels, autograd, vmap."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anabranch._ops._library import (
    Size,
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

forward = torch.ops.anabranch.mhc_pre_sinkhorn.default
backward = torch.ops.anabranch.mhc_pre_sinkhorn_backward.default


def _agree(x: Tensor, phi: Tensor, bias: Tensor) -> None:
    *_, n, d = x.shape
    agree(phi, n * n + 2 * n, n * d)
    agree(bias, n * n + 2 * n)


@fake("anabranch::mhc_pre_sinkhorn")
def _forward_fake(
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    num_iters: int,
    hc_eps: float,
    norm_eps: float,
    caches: bool,
    iterates: bool,
) -> tuple[Tensor, ...]:
    attributes = (num_iters, hc_eps, norm_eps, caches, iterates)
    infer(forward, (x, phi, alpha, bias), attributes=attributes)
    _agree(x, phi, bias)
    *tokens, n, d = x.shape
    dtype = coefficient(x)
    count: Size = 1
    for size in tokens:
        count = count * size
    steps = 2 * num_iters
    kept: tuple[tuple[bool, tuple[Size, ...]], ...] = (
        (caches or iterates, (*tokens, n)),
        (caches or iterates, (*tokens, phi.shape[0])),
        (caches or iterates, (*tokens, 1)),
        (iterates, (steps, count, n)),
        (iterates, (steps, count, n, n)),
    )
    return (
        x.new_empty((*tokens, d)),
        x.new_empty((*tokens, n), dtype=dtype),
        x.new_empty((*tokens, n, n), dtype=dtype),
        *(x.new_empty(shape, dtype=dtype) if wanted else absent(x) for wanted, shape in kept),
    )


@fake("anabranch::mhc_pre_sinkhorn_backward")
def _backward_fake(
    grad_h_in: Tensor,
    grad_h_post: Tensor,
    grad_h_res: Tensor,
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    h_pre: Tensor,
    hc_before_norm: Tensor,
    inv_rms: Tensor,
    sum_out: Tensor | None,
    norm_out: Tensor | None,
    num_iters: int,
    hc_eps: float,
) -> tuple[Tensor, ...]:
    tensors = (grad_h_in, grad_h_post, grad_h_res, x, phi, alpha, bias, h_pre, hc_before_norm)
    attributes = (num_iters, hc_eps)
    infer(backward, (*tensors, inv_rms, sum_out, norm_out), attributes=attributes)
    _agree(x, phi, bias)
    return tuple(t.new_empty(t.shape) for t in (x, phi, alpha, bias))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, phi, alpha, bias, num_iters, hc_eps, _, caches, iterates = inputs
    kept = output[3:]
    ctx.mark_non_differentiable(*kept)
    ctx.attributes = (num_iters, hc_eps)
    ctx.caches = caches or iterates
    if ctx.caches:
        optional = kept[3:] if iterates else (None, None)
        ctx.save_for_backward(x, phi, alpha, bias, *kept[:3], *optional)


def _backward(
    ctx: Any,
    grad_h_in: Tensor | None,
    grad_h_post: Tensor | None,
    grad_h_res: Tensor | None,
    *_: Any,
) -> tuple[Tensor | None, ...]:
    if not ctx.caches:
        raise RuntimeError(
            "mhc_pre_sinkhorn: caches is False, expected True for a call to differentiate"
        )
    saved = ctx.saved_tensors
    x, phi = saved[:2]
    *tokens, n, d = x.shape
    grads = invoke_backward(
        backward,
        filled(grad_h_in, x, *tokens, d),
        filled(grad_h_post, phi, *tokens, n),
        filled(grad_h_res, phi, *tokens, n, n),
        *saved,
        *ctx.attributes,
    )
    return (*grads, None, None, None, None, None)


register_derivative(forward, _setup, _backward)
refuse_second_derivative(backward)
register_vmap(forward, ("x",), None)
register_vmap(backward, (), None)
