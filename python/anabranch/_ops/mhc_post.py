"""mhc_post for the dispatcher: fake kernels, autograd, vmap."""

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

forward = torch.ops.anabranch.mhc_post.default
backward = torch.ops.anabranch.mhc_post_backward.default


def _agree(x: Tensor, h_res: Tensor | None, h_out: Tensor, h_post: Tensor) -> None:
    *tokens, n, d = x.shape
    if h_res is not None:
        agree(h_res, *tokens, *((n, n) if h_res.ndim == x.ndim else (n * n,)))
    agree(h_out, *tokens, d)
    agree(h_post, *tokens, n)


@fake("anabranch::mhc_post")
def _forward_fake(x: Tensor, h_res: Tensor | None, h_out: Tensor, h_post: Tensor) -> Tensor:
    infer(forward, (x, h_res, h_out, h_post))
    _agree(x, h_res, h_out, h_post)
    return x.new_empty(x.shape)


@fake("anabranch::mhc_post_backward")
def _backward_fake(
    grad_output: Tensor, x: Tensor, h_res: Tensor | None, h_out: Tensor, h_post: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    infer(backward, (grad_output, x, h_res, h_out, h_post))
    _agree(x, h_res, h_out, h_post)
    agree(grad_output, *x.shape)
    return (
        x.new_empty(x.shape),
        absent(x) if h_res is None else h_res.new_empty(h_res.shape),
        h_out.new_empty(h_out.shape),
        h_post.new_empty(h_post.shape),
    )


def _setup(ctx: Any, inputs: tuple[Tensor | None, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad_output: Tensor | None) -> tuple[Tensor | None, ...]:
    x, h_res, h_out, h_post = ctx.saved_tensors
    grad_output = filled(grad_output, x, *x.shape)
    grads = invoke_backward(backward, grad_output, x, h_res, h_out, h_post)
    grad_x, grad_h_res, grad_h_out, grad_h_post = grads
    return grad_x, None if h_res is None else grad_h_res, grad_h_out, grad_h_post


register_derivative(forward, _setup, _backward)
refuse_second_derivative(backward)
register_vmap(forward, ("x", "h_res", "h_out", "h_post"), (0,))
register_vmap(backward, ("grad_output", "x", "h_res", "h_out", "h_post"), (0, 0, 0, 0))
