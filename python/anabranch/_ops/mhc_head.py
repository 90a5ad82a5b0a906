"""mhc_head for the dispatcher: its derivative."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anabranch._ops._library import filled, invoke_backward, register

forward = torch.ops.anabranch.mhc_head.default
backward = torch.ops.anabranch.mhc_head_backward.default


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
    saved = ctx.saved_tensors
    x = saved[0]
    grad_y = filled(grad_y, x, *x.shape[:-2], x.shape[-1])
    return (*invoke_backward(backward, grad_y, *saved, ctx.hc_eps), None, None, None)


register(forward, _setup, _backward)
register(backward)
