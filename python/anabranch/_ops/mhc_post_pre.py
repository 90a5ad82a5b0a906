"""mhc_post_pre for the dispatcher: fake kernel, autograd through its two halves, vmap."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anabranch._ops import mhc_post, mhc_pre_sinkhorn
from anabranch._ops._library import (
    absent,
    agree,
    fake,
    filled,
    infer,
    invoke_backward,
    register_derivative,
    register_vmap,
)
from anabranch._ops.mhc_pre import coefficient

forward = torch.ops.anabranch.mhc_post_pre.default


@fake("anabranch::mhc_post_pre")
def _forward_fake(
    x: Tensor,
    h_res: Tensor | None,
    h_out: Tensor,
    h_post: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    num_iters: int,
    hc_eps: float,
    norm_eps: float,
    caches: bool,
) -> tuple[Tensor, ...]:
    tensors = (x, h_res, h_out, h_post, phi, alpha, bias)
    infer(forward, tensors, attributes=(num_iters, hc_eps, norm_eps, caches))
    *tokens, n, d = x.shape
    if h_res is not None:
        agree(h_res, *tokens, *((n, n) if h_res.ndim == x.ndim else (n * n,)))
    agree(h_out, *tokens, d)
    agree(h_post, *tokens, n)
    agree(phi, n * n + 2 * n, n * d)
    agree(bias, n * n + 2 * n)
    dtype = coefficient(x)
    kept = ((*tokens, n), (*tokens, phi.shape[0]), (*tokens, 1))
    return (
        x.new_empty(x.shape),
        x.new_empty((*tokens, d)),
        x.new_empty((*tokens, n), dtype=dtype),
        x.new_empty((*tokens, n, n), dtype=dtype),
        *(x.new_empty(shape, dtype=dtype) if caches else absent(x) for shape in kept),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, num_iters, hc_eps, _, caches = inputs
    ctx.mark_non_differentiable(*output[4:])
    ctx.attributes = (num_iters, hc_eps)
    ctx.caches = caches
    if caches:
        ctx.save_for_backward(*tensors, output[0], *output[4:])


def _backward(
    ctx: Any,
    grad_y: Tensor | None,
    grad_h_in: Tensor | None,
    grad_next_h_post: Tensor | None,
    grad_next_h_res: Tensor | None,
    *_: Any,
) -> tuple[Tensor | None, ...]:
    if not ctx.caches:
        raise RuntimeError(
            "mhc_post_pre: caches is False, expected True for a call to differentiate"
        )
    x, h_res, h_out, h_post, phi, alpha, bias, y, *kept = ctx.saved_tensors
    *tokens, n, d = x.shape
    grads = (
        filled(grad_h_in, x, *tokens, d),
        filled(grad_next_h_post, phi, *tokens, n),
        filled(grad_next_h_res, phi, *tokens, n, n),
    )
    through_pre, *grad_parameters = invoke_backward(
        mhc_pre_sinkhorn.backward,
        *grads,
        y,
        phi,
        alpha,
        bias,
        *kept,
        None,
        None,
        *ctx.attributes,
    )
    grad_output = through_pre if grad_y is None else grad_y + through_pre
    grad_x, grad_h_res, grad_h_out, grad_h_post = invoke_backward(
        mhc_post.backward, grad_output, x, h_res, h_out, h_post
    )
    grad_h_res = None if h_res is None else grad_h_res
    return (grad_x, grad_h_res, grad_h_out, grad_h_post, *grad_parameters, None, None, None, None)


register_derivative(forward, _setup, _backward)
register_vmap(forward, ("x", "h_res", "h_out", "h_post"), None)
