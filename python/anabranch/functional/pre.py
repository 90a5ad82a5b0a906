"""mhc_pre and mhc_head: what a sublayer takes from the residual streams."""

from __future__ import annotations

from typing import Literal, cast

from torch import Tensor

from anabranch import ops as _ops  # registers the operators  # noqa: F401
from anabranch._ops import mhc_head as _head
from anabranch._ops import mhc_pre as _pre
from anabranch._ops._description import MATRIX, NONE, PERMUTATION
from anabranch._ops._library import invoke, needs_grad
from anabranch.functional._arguments import check_choice

_RESIDUALS = {"matrix": MATRIX, "permutation": PERMUTATION, "none": NONE}


def mhc_pre(
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    *,
    gamma: Tensor | None = None,
    norm_eps: float = 1e-6,
    hc_eps: float = 1e-6,
    residual: Literal["matrix", "permutation", "none"] = "matrix",
    op_impl_mode: int = 0,
    return_caches: bool = False,
) -> tuple[Tensor | None, ...]:
    """Collapses the residual streams into a sublayer's input and computes its coefficients.

    With xf the K = n*D values of a token, r = 1 / sqrt(mean(xf^2) + norm_eps),
    w = r * (phi @ (xf * gamma))::

        h_pre   = sigmoid(w_pre * alpha[0] + bias_pre) + hc_eps
        h_post  = 2 * sigmoid(w_post * alpha[1] + bias_post)
        h_res   = w_res * alpha[2] + bias_res           logits: see mhc_sinkhorn, mhc_permutation
        h_in[d] = sum_i h_pre[i] * x[i, d]

    Source: Manifold-Constrained Hyper-Connections (mHC); DeepSeek-V4.

    Args:
        x: ``[*, n, D]`` activation.
        phi: ``[F, n*D]``, F = n*n + 2n (matrix), n! + 2n (permutation) or 2n (none).
        alpha: ``[3]``, or ``[2]`` without residual part.
        bias: ``[F]``.
        gamma: ``[n, D]``; None means ones.
        residual: the form of h_res; never guessed from F.
        op_impl_mode: 1 allows products of TF32 precision (not used on the CPU).
        return_caches: also return what :func:`mhc_pre_backward` needs, not differentiable.

    Returns:
        ``(h_in [*, D], h_post [*, n], h_res)``, h_res ``[*, n, n]``, ``[*, n!]`` or None, and with
        return_caches ``inv_rms [*], h_mix [*, F], h_pre [*, n]``.

    Saved for the backward, beside the inputs, per token: ``4 * (1 + F + 2n)`` bytes.
    """
    check_choice("mhc_pre", "residual", residual, tuple(_RESIDUALS))
    record = needs_grad(x, phi, alpha, bias, gamma)
    h_in, h_post, h_res, *caches = invoke(
        _pre.forward,
        record,
        x,
        phi,
        alpha,
        bias,
        gamma,
        norm_eps,
        hc_eps,
        _RESIDUALS[residual],
        op_impl_mode,
        record or return_caches,
    )
    result = (h_in, h_post, None if residual == "none" else h_res)
    return (*result, *caches) if return_caches else result


def mhc_pre_backward(
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
    gamma: Tensor | None = None,
    grad_x_post: Tensor | None = None,
    *,
    hc_eps: float = 1e-6,
    op_impl_mode: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """The gradients of :func:`mhc_pre`, from its inputs, caches and output gradients.

    Args:
        grad_h_res: ``[*, n, n]`` for the matrix form, ``[*, n!]`` for the permutation form, None
            without residual part: its shape says which form is meant (a flat ``[*, n*n]`` too).
        grad_x_post: added to grad_x before it is rounded, ``[*, n, D]``.

    Returns:
        ``(grad_x, grad_phi, grad_alpha, grad_bias, grad_gamma)``; grad_gamma is None without gamma.
    """
    residual = _residual_of(x, phi, grad_h_res)
    record = needs_grad(x, phi, alpha, grad_h_in, grad_h_post, grad_h_res, gamma, grad_x_post)
    result = invoke(
        _pre.backward,
        record,
        x,
        phi,
        alpha,
        grad_h_in,
        grad_h_post,
        grad_h_res,
        inv_rms,
        h_mix,
        h_pre,
        h_post,
        gamma,
        grad_x_post,
        hc_eps,
        residual,
        op_impl_mode,
    )
    grad_x, grad_phi, grad_alpha, grad_bias, grad_gamma = result
    return grad_x, grad_phi, grad_alpha, grad_bias, None if gamma is None else grad_gamma


def _residual_of(x: Tensor, phi: Tensor, grad_h_res: Tensor | None) -> int:
    """The form that the shape of h_res's gradient says."""
    if grad_h_res is None:
        return NONE
    if not (isinstance(x, Tensor) and isinstance(grad_h_res, Tensor)):
        return MATRIX  # refused by the call
    if x.ndim < 2 or grad_h_res.ndim != x.ndim - 1:
        return MATRIX
    return MATRIX if grad_h_res.shape[-1] == x.shape[-2] ** 2 else PERMUTATION


def mhc_head(
    x: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    *,
    norm_eps: float = 1e-6,
    hc_eps: float = 1e-6,
) -> Tensor:
    """Collapses the residual streams at the end of a network.

    ``w = sigmoid(r * (fn @ xf) * scale + base) + hc_eps``, ``y = sum_i w[i] * x[i]``, r and xf as
    in :func:`mhc_pre`. Source: DeepSeek-V4.

    Args:
        x: ``[*, n, D]`` activation.
        fn, base, scale: ``[n, n*D]``, ``[n]``, ``[1]`` float32.

    Returns:
        y ``[*, D]`` of x's dtype.

    Saved for the backward, beside the inputs, per token: ``4 * (1 + 2n)`` bytes.
    """
    record = needs_grad(x, fn, base, scale)
    result = invoke(_head.forward, record, x, fn, base, scale, norm_eps, hc_eps, record)
    return cast(Tensor, result[0])
