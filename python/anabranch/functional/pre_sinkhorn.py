"""mhc_pre_sinkhorn: the pre and the Sinkhorn of a sublayer in one pass."""

from __future__ import annotations

from typing import Literal, cast

from torch import Tensor

from anabranch import ops as _ops  # registers the operators  # noqa: F401
from anabranch._ops import mhc_pre_sinkhorn as _pre_sinkhorn
from anabranch._ops._library import invoke, needs_grad
from anabranch.functional._arguments import check_choice


def mhc_pre_sinkhorn(
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    hc_mult: int | None = None,
    num_iters: int = 20,
    hc_eps: float = 1e-6,
    norm_eps: float = 1e-6,
    *,
    save: Literal["recompute", "all"] = "recompute",
    return_caches: bool = False,
) -> tuple[Tensor, ...]:
    """:func:`mhc_pre` in its matrix form, then Sinkhorn on h_res, in one pass over x.

    Softmax over each row of the logits, plus hc_eps; then a column normalisation; then
    num_iters - 1 times a row and a column normalisation (each divides by its sum plus hc_eps).
    Source: Manifold-Constrained Hyper-Connections (mHC); DeepSeek-V4.

    Args:
        x: ``[*, n, D]`` activation.
        phi, alpha, bias: ``[n*n + 2n, n*D]``, ``[3]``, ``[n*n + 2n]`` float32.
        hc_mult: n, if given: it must be that of x.
        save: what autograd keeps: "recompute" no Sinkhorn iterate, "all" every one.
        return_caches: also return ``(h_pre [*, n], hc_before_norm [*, F], inv_rms [*, 1],
            sum_out [2*num_iters, *, n], norm_out [2*num_iters, *, n, n])``, not differentiable.

    Returns:
        ``(h_in [*, D], h_post [*, n], h_res [*, n, n])``, and the caches if wanted.

    Saved for the backward, beside the inputs, per token: ``4 * (1 + F + n)`` bytes, with
    save="all" ``8 * num_iters * (n + n*n)`` more.
    """
    op = "mhc_pre_sinkhorn"
    check_choice(op, "save", save, ("recompute", "all"))
    if hc_mult is not None and isinstance(x, Tensor) and x.ndim >= 2 and x.shape[-2] != hc_mult:
        raise ValueError(f"{op}: hc_mult is {hc_mult}, expected {x.shape[-2]} to match x")
    record = needs_grad(x, phi, alpha, bias)
    iterates = return_caches or (record and save == "all")
    args = (x, phi, alpha, bias, num_iters, hc_eps, norm_eps, record, iterates)
    result = invoke(_pre_sinkhorn.forward, record, *args)
    return tuple(result) if return_caches else tuple(result[:3])


def mhc_pre_sinkhorn_backward(
    grad_h_in: Tensor,
    grad_h_post: Tensor,
    grad_h_res: Tensor,
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    h_pre: Tensor,
    hc_before_norm: Tensor,
    inv_rms: Tensor,
    sum_out: Tensor | None = None,
    norm_out: Tensor | None = None,
    hc_eps: float = 1e-6,
    *,
    num_iters: int = 20,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of :func:`mhc_pre_sinkhorn`: ``(grad_x, grad_phi, grad_alpha, grad_bias)``.

    Without sum_out and norm_out the iterates are recomputed, num_iters of them; with them their
    number is theirs. Caches are trusted as they are.

    Args:
        grad_h_in, grad_h_post, grad_h_res: ``[*, D]`` of x's dtype; ``[*, n]`` and ``[*, n, n]`` or
            ``[*, n*n]`` float32.
        x, phi, alpha, bias: as in the forward; the caches as it returns them.
    """
    record = needs_grad(grad_h_in, grad_h_post, grad_h_res, x, phi, alpha, bias)
    args = (grad_h_in, grad_h_post, grad_h_res, x, phi, alpha, bias, h_pre, hc_before_norm)
    result = invoke(
        _pre_sinkhorn.backward,
        record,
        *args,
        inv_rms,
        sum_out,
        norm_out,
        num_iters,
        hc_eps,
    )
    return cast("tuple[Tensor, Tensor, Tensor, Tensor]", result)
