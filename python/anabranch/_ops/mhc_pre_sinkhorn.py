"""mhc_pre_sinkhorn for the dispatcher: its derivative."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anabranch._ops._library import filled, invoke_backward, register

forward = torch.ops.anabranch.mhc_pre_sinkhorn.default
backward = torch.ops.anabranch.mhc_pre_sinkhorn_backward.default


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


register(forward, _setup, _backward)
register(backward)
