"""mhc_sinkhorn and mhc_permutation for the dispatcher: fake kernels, autograd, vmap."""

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

forward = torch.ops.anabranch.mhc_sinkhorn.default
backward = torch.ops.anabranch.mhc_sinkhorn_backward.default
permutation = torch.ops.anabranch.mhc_permutation.default
permutation_backward = torch.ops.anabranch.mhc_permutation_backward.default

# Rows of logits for each number of streams that the permutation form takes.
_FACTORIALS = {1: 1, 2: 2, 6: 3, 24: 4, 120: 5}


@fake("anabranch::mhc_sinkhorn")
def _forward_fake(
    logits: Tensor,
    num_iters: int,
    eps: float,
    clamp_low: float,
    clamp_high: float,
    iterates: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    infer(forward, (logits,), attributes=(num_iters, eps, clamp_low, clamp_high, iterates))
    agree(logits, *logits.shape[:-1], logits.shape[-2])
    shape = (2 * num_iters, *logits.shape)
    return (
        logits.new_empty(logits.shape),
        logits.new_empty(shape[:-1]) if iterates else absent(logits),
        logits.new_empty(shape) if iterates else absent(logits),
    )


@fake("anabranch::mhc_sinkhorn_backward")
def _backward_fake(
    grad_h_res: Tensor,
    logits: Tensor | None,
    sum_out: Tensor | None,
    norm_out: Tensor | None,
    num_iters: int,
    eps: float,
    clamp_low: float,
    clamp_high: float,
) -> Tensor:
    tensors = (grad_h_res, logits, sum_out, norm_out)
    infer(backward, tensors, attributes=(num_iters, eps, clamp_low, clamp_high))
    agree(logits, *grad_h_res.shape)
    return grad_h_res.new_empty(grad_h_res.shape)


@fake("anabranch::mhc_permutation")
def _permutation_fake(logits: Tensor) -> Tensor:
    infer(permutation, (logits,))
    n = _FACTORIALS[int(logits.shape[-1])]
    return logits.new_empty((*logits.shape[:-1], n, n))


@fake("anabranch::mhc_permutation_backward")
def _permutation_backward_fake(grad_h_res: Tensor, logits: Tensor) -> Tensor:
    infer(permutation_backward, (grad_h_res, logits))
    return logits.new_empty(logits.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, *attributes, iterates = inputs
    _, sum_out, norm_out = output
    ctx.mark_non_differentiable(sum_out, norm_out)
    ctx.attributes = tuple(attributes)
    ctx.save_for_backward(logits, *((sum_out, norm_out) if iterates else (None, None)))


def _backward(ctx: Any, grad_h_res: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    logits = ctx.saved_tensors[0]
    grad_h_res = filled(grad_h_res, logits, *logits.shape)
    grad = invoke_backward(backward, grad_h_res, *ctx.saved_tensors, *ctx.attributes)
    return grad, None, None, None, None, None


def _permutation_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)
    ctx.n = output.shape[-1]


def _permutation_backward(ctx: Any, grad_h_res: Tensor | None) -> Tensor:
    logits = ctx.saved_tensors[0]
    grad_h_res = filled(grad_h_res, logits, *logits.shape[:-1], ctx.n, ctx.n)
    grad: Tensor = invoke_backward(permutation_backward, grad_h_res, *ctx.saved_tensors)
    return grad


register_derivative(forward, _setup, _backward)
register_derivative(permutation, _permutation_setup, _permutation_backward)
refuse_second_derivative(backward)
refuse_second_derivative(permutation_backward)
register_vmap(forward, ("logits",), (0, 1, 1))
register_vmap(backward, (), None)
register_vmap(permutation, ("logits",), (0,))
register_vmap(permutation_backward, ("grad_h_res", "logits"), (0,))
