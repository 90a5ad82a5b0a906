"""mhc_post, alone and with the next sublayer's pre: what a sublayer gives back."""

from __future__ import annotations

from typing import cast

from torch import Tensor

from anabranch import ops as _ops  # registers the operators  # noqa: F401
from anabranch._ops import mhc_post as _post
from anabranch._ops import mhc_post_pre as _post_pre
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


def mhc_post_pre(
    x: Tensor,
    h_res: Tensor | None,
    h_out: Tensor,
    h_post: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    hc_mult: int = 4,
    num_iters: int = 20,
    hc_eps: float = 1e-6,
    norm_eps: float = 1e-6,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """:func:`mhc_post` of one sublayer and :func:`mhc_pre_sinkhorn` of the next in one pass.

    The new streams are projected while they are in cache; the bits are those of the two calls,
    forward and backward. Source: Manifold-Constrained Hyper-Connections (mHC); DeepSeek-V4.

    Args:
        x, h_res, h_out, h_post: of the sublayer that ends, as :func:`mhc_post` takes them.
        phi, alpha, bias: of the sublayer that begins, as :func:`mhc_pre_sinkhorn` takes them.

    Returns:
        ``(y [*, n, D], h_in [*, D], next_h_post [*, n], next_h_res [*, n, n])``; y and h_in of x's
        dtype, the others float32.

    Saved for the backward, beside the inputs and y, per token: ``4 * (1 + F + n)`` bytes.
    """
    op = "mhc_post_pre"
    if isinstance(x, Tensor) and x.ndim >= 2 and x.shape[-2] != hc_mult:
        raise ValueError(f"{op}: hc_mult is {hc_mult}, expected {x.shape[-2]} to match x")
    record = needs_grad(x, h_res, h_out, h_post, phi, alpha, bias)
    args = (x, h_res, h_out, h_post, phi, alpha, bias, num_iters, hc_eps, norm_eps, record)
    y, h_in, next_h_post, next_h_res, *_ = invoke(_post_pre.forward, record, *args)
    return y, h_in, next_h_post, next_h_res
