"""mhc_post: what a sublayer gives back to the residual streams."""

from __future__ import annotations

from typing import cast

from torch import Tensor

from anabranch import ops as _ops  # registers the operators  # noqa: F401
from anabranch._ops import mhc_post as _post
from anabranch._ops._library import invoke, needs_grad


def mhc_post(x: Tensor, h_res: Tensor | None, h_out: Tensor, h_post: Tensor) -> Tensor:
    """Writes a sublayer's output back to all residual streams and mixes them.

    ``y[i] = h_post[i] * h_out + sum_j h_res[j, i] * x[j]`` (the first index of h_res is summed), or
    with h_res None ``y[i] = h_post[i] * h_out + x[i]``.
    Source: Manifold-Constrained Hyper-Connections (mHC); DeepSeek-V4.

    Args:
        x: ``[*, n, D]`` activation.
        h_res: ``[*, n, n]`` or ``[*, n*n]`` float32, or None: streams are not mixed.
        h_out: ``[*, D]`` of x's dtype.
        h_post: ``[*, n]`` float32.

    Returns:
        y ``[*, n, D]`` of x's dtype.

    Saved for the backward: the inputs, nothing else.
    """
    record = needs_grad(x, h_res, h_out, h_post)
    return cast(Tensor, invoke(_post.forward, record, x, h_res, h_out, h_post))


def mhc_post_backward(
    grad_output: Tensor, x: Tensor, h_res: Tensor | None, h_out: Tensor, h_post: Tensor
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """The gradients of :func:`mhc_post`: ``(grad_x, grad_h_res | None, grad_h_out, grad_h_post)``.

    ``grad_output`` is ``[*, n, D]`` of x's dtype; each gradient has its input's shape and dtype.
    """
    record = needs_grad(grad_output, x, h_res, h_out, h_post)
    grad_x, grad_h_res, grad_h_out, grad_h_post = invoke(
        _post.backward, record, grad_output, x, h_res, h_out, h_post
    )
    return grad_x, None if h_res is None else grad_h_res, grad_h_out, grad_h_post
