"""mhc_pre for the dispatcher: fake kernels, autograd, vmap."""

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

forward = torch.ops.anabranch.mhc_pre.default
backward = torch.ops.anabranch.mhc_pre_backward.default

# Residual forms, as include/anabranch/mhc_options.h numbers them.
MATRIX, PERMUTATION, NONE = 0, 1, 2


def coefficient(x: Tensor) -> torch.dtype:
    """The dtype of coefficients that go with activations x."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _agree(x: Tensor, phi: Tensor, bias: Tensor | None, gamma: Tensor | None) -> None:
    *_, n, d = x.shape
    agree(phi, phi.shape[0], n * d)
    agree(bias, phi.shape[0])
    agree(gamma, n, d)


def _residual_shape(x: Tensor, phi: Tensor, residual: int) -> tuple[Size, ...]:
    *tokens, n, _ = x.shape
    return (*tokens, n, n) if residual == MATRIX else (*tokens, phi.shape[0] - 2 * n)


@fake("anabranch::mhc_pre")
def _forward_fake(
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    gamma: Tensor | None,
    norm_eps: float,
    hc_eps: float,
    residual: int,
    op_impl_mode: int,
    caches: bool,
) -> tuple[Tensor, ...]:
    attributes = (norm_eps, hc_eps, residual, op_impl_mode, caches)
    infer(forward, (x, phi, alpha, bias, gamma), attributes=attributes)
    _agree(x, phi, bias, gamma)
    *tokens, n, d = x.shape
    dtype = coefficient(x)
    kept = ((*tokens,), (*tokens, phi.shape[0]), (*tokens, n))
    return (
        x.new_empty((*tokens, d)),
        x.new_empty((*tokens, n), dtype=dtype),
        absent(x)
        if residual == NONE
        else x.new_empty(_residual_shape(x, phi, residual), dtype=dtype),
        *(x.new_empty(shape, dtype=dtype) if caches else absent(x) for shape in kept),
    )


@fake("anabranch::mhc_pre_backward")
def _backward_fake(
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    grad_h_in: Tensor,
    grad_h_post: Tensor,
    grad_h_res: Tensor | None,
    inv_rms: Tensor,
    h_mix: Tensor,
    h_pre: Tensor,
    h_post: Tensor,
    gamma: Tensor | None,
    grad_x_post: Tensor | None,
    hc_eps: float,
    residual: int,
    op_impl_mode: int,
) -> tuple[Tensor, ...]:
    tensors = (x, phi, alpha, grad_h_in, grad_h_post, grad_h_res, inv_rms, h_mix, h_pre, h_post)
    attributes = (hc_eps, residual, op_impl_mode)
    infer(backward, (*tensors, gamma, grad_x_post), attributes=attributes)
    _agree(x, phi, None, gamma)
    return (
        x.new_empty(x.shape),
        phi.new_empty(phi.shape),
        alpha.new_empty(alpha.shape),
        phi.new_empty((phi.shape[0],)),
        absent(x) if gamma is None else gamma.new_empty(gamma.shape),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, phi, alpha, _, gamma, _, hc_eps, residual, op_impl_mode, caches = inputs
    _, h_post, _, *kept = output
    ctx.mark_non_differentiable(*kept)
    ctx.attributes = (hc_eps, residual, op_impl_mode)
    ctx.caches = caches
    if caches:
        ctx.save_for_backward(x, phi, alpha, gamma, h_post, *kept)


def _backward(
    ctx: Any,
    grad_h_in: Tensor | None,
    grad_h_post: Tensor | None,
    grad_h_res: Tensor | None,
    *_: Any,
) -> tuple[Tensor | None, ...]:
    if not ctx.caches:
        raise RuntimeError("mhc_pre: caches is False, expected True for a call to differentiate")
    x, phi, alpha, gamma, h_post, inv_rms, h_mix, h_pre = ctx.saved_tensors
    *tokens, _, d = x.shape
    residual = ctx.attributes[1]
    grad_x, grad_phi, grad_alpha, grad_bias, grad_gamma = invoke_backward(
        backward,
        x,
        phi,
        alpha,
        filled(grad_h_in, x, *tokens, d),
        filled(grad_h_post, h_post, *h_post.shape),
        None if residual == NONE else filled(grad_h_res, h_mix, *_residual_shape(x, phi, residual)),
        inv_rms,
        h_mix,
        h_pre,
        h_post,
        gamma,
        None,
        *ctx.attributes,
    )
    grads = (grad_x, grad_phi, grad_alpha, grad_bias, None if gamma is None else grad_gamma)
    return (*grads, None, None, None, None, None)


register_derivative(forward, _setup, _backward)
refuse_second_derivative(backward)
register_vmap(forward, ("x",), (0,) * 6)
register_vmap(backward, ("x",), None)
