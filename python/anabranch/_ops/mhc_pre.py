"""mhc_pre for the dispatcher: its derivative."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anabranch._ops._description import MATRIX, NONE, Size
from anabranch._ops._library import filled, invoke_backward, register

forward = torch.ops.anabranch.mhc_pre.default
backward = torch.ops.anabranch.mhc_pre_backward.default


def _residual_shape(x: Tensor, phi: Tensor, residual: int) -> tuple[Size, ...]:
    *tokens, n, _ = x.shape
    return (*tokens, n, n) if residual == MATRIX else (*tokens, phi.shape[0] - 2 * n)


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


register(forward, _setup, _backward)
register(backward)
