"""mhc_post for the dispatcher: its derivative."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anabranch._ops._library import filled, invoke_backward, register

forward = torch.ops.anabranch.mhc_post.default
backward = torch.ops.anabranch.mhc_post_backward.default


def _setup(ctx: Any, inputs: tuple[Tensor | None, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad_output: Tensor | None) -> tuple[Tensor | None, ...]:
    x, h_res, h_out, h_post = ctx.saved_tensors
    grad_output = filled(grad_output, x, *x.shape)
    grads = invoke_backward(backward, grad_output, x, h_res, h_out, h_post)
    grad_x, grad_h_res, grad_h_out, grad_h_post = grads
    return grad_x, None if h_res is None else grad_h_res, grad_h_out, grad_h_post


register(forward, _setup, _backward)
register(backward)
