"""mhc_sinkhorn and mhc_permutation for the dispatcher: their derivatives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anabranch._ops._library import filled, invoke_backward, register

forward = torch.ops.anabranch.mhc_sinkhorn.default
backward = torch.ops.anabranch.mhc_sinkhorn_backward.default
permutation = torch.ops.anabranch.mhc_permutation.default
permutation_backward = torch.ops.anabranch.mhc_permutation_backward.default


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, *attributes, iterates = inputs
    _, sum_out, norm_out = output
    ctx.mark_non_differentiable(sum_out, norm_out)
    ctx.attributes = tuple(attributes)
    ctx.save_for_backward(logits, *((sum_out, norm_out) if iterates else (None, None)))


def _backward(ctx: Any, grad_h_res: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    grad_h_res = filled(grad_h_res, saved[0], *saved[0].shape)
    grad = invoke_backward(backward, grad_h_res, *saved, *ctx.attributes)
    return grad, None, None, None, None, None


def _permutation_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)
    ctx.n = output.shape[-1]


def _permutation_backward(ctx: Any, grad_h_res: Tensor | None) -> Tensor:
    (logits,) = ctx.saved_tensors
    grad_h_res = filled(grad_h_res, logits, *logits.shape[:-1], ctx.n, ctx.n)
    grad: Tensor = invoke_backward(permutation_backward, grad_h_res, logits)
    return grad


register(forward, _setup, _backward)
register(permutation, _permutation_setup, _permutation_backward)
register(backward)
register(permutation_backward)
