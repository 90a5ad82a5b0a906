"""The operators as ``torch_npu`` publishes them, and ``cann_ops_transformer.ops``' forward of mHC.

Same arguments and results; outputs that are absent are tensors of no elements, so that a program
can unpack, move and print them; absent gradients are None.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from anabranch import functional
from anabranch._ops import mhc_sinkhorn as _sinkhorn
from anabranch._ops._library import invoke, needs_grad


def _flag(op: str, name: str, value: int) -> bool:
    if value not in (0, 1):
        raise ValueError(f"{op}: {name} is {value}, expected 0 or 1")
    return bool(value)


def npu_mhc_pre(
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    *,
    gamma: Tensor | None = None,
    norm_eps: float = 1e-6,
    hc_eps: float = 1e-6,
    out_flag: int = 0,
    inner_precise: int = 0,
) -> tuple[Tensor | None, ...]:
    """:func:`anabranch.mhc_pre`, matrix form; without residual part where alpha has two entries.

    Args:
        out_flag: 1 fills inv_rms, h_mix and h_pre; with 0 they have no elements.
        inner_precise: 1 allows products of HF32 precision (not used on the CPU).

    Returns:
        ``(h_in, h_post, h_res, inv_rms, h_mix, h_pre)``; h_res is None without residual part.
    """
    caches = _flag("npu_mhc_pre", "out_flag", out_flag)
    _flag("npu_mhc_pre", "inner_precise", inner_precise)
    short = isinstance(alpha, Tensor) and alpha.ndim == 1 and alpha.shape[0] == 2
    residual: Literal["matrix", "none"] = "none" if short else "matrix"
    result = functional.mhc_pre(
        x,
        phi,
        alpha,
        bias,
        gamma=gamma,
        norm_eps=norm_eps,
        hc_eps=hc_eps,
        residual=residual,
        op_impl_mode=inner_precise,
        return_caches=caches,
    )
    return result if caches else (*result, *(phi.new_empty((0,)) for _ in range(3)))


def npu_mhc_pre_backward(
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
    hc_eps: float = 1e-6,
    grad_x_post: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """:func:`anabranch.mhc_pre_backward` in another order of arguments.

    Returns:
        ``(grad_x, grad_phi, grad_alpha, grad_bias, grad_gamma)``; grad_gamma is None without gamma.
    """
    return functional.mhc_pre_backward(
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
        hc_eps=hc_eps,
    )


def npu_mhc_sinkhorn(
    x: Tensor, *, eps: float = 1e-6, num_iters: int = 20, out_flag: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`anabranch.mhc_sinkhorn` of logits x ``[*, n, n]``, with every iterate if wanted.

    Returns:
        ``(y, norm_out, sum_out)``; with out_flag=1 norm_out is ``[2*num_iters, *, n, n]`` and
        sum_out ``[2*num_iters, *, n]``, else both have no elements. Slot 0 of norm_out is the
        softmax without eps: the backward knows no eps.
    """
    iterates = _flag("npu_mhc_sinkhorn", "out_flag", out_flag)
    record = needs_grad(x)
    args = (x, num_iters, eps, 0.0, 0.0, iterates)
    y, sum_out, norm_out = invoke(_sinkhorn.forward, record, *args)
    if iterates:
        norm_out = torch.cat([norm_out[:1] - eps, norm_out[1:]])
    return y, norm_out, sum_out


def npu_mhc_sinkhorn_backward(grad_y: Tensor, norm: Tensor, sum: Tensor) -> Tensor:
    """The gradient of the logits from the iterates that :func:`npu_mhc_sinkhorn` returned."""
    op = "npu_mhc_sinkhorn_backward"
    for name, tensor in (("norm", norm), ("sum", sum)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{op}: {name} is a {type(tensor).__name__}, expected a tensor")
    steps = norm.shape[0] if norm.ndim else 0
    if steps < 2 or steps % 2:
        shape = tuple(norm.shape)
        raise ValueError(
            f"{op}: norm has shape {shape}, expected 2*num_iters first, as out_flag=1 returns it"
        )
    record = needs_grad(grad_y)
    args = (grad_y, None, sum, norm, steps // 2, 0.0, 0.0, 0.0)
    grad: Tensor = invoke(_sinkhorn.backward, record, *args)
    return grad


def npu_mhc_post(x: Tensor, h_res: Tensor | None, h_out: Tensor, h_post: Tensor) -> Tensor:
    """:func:`anabranch.mhc_post`."""
    return functional.mhc_post(x, h_res, h_out, h_post)


def npu_mhc_post_backward(
    grad_output: Tensor, x: Tensor, h_res: Tensor | None, h_out: Tensor, h_post: Tensor
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """:func:`anabranch.mhc_post_backward`."""
    return functional.mhc_post_backward(grad_output, x, h_res, h_out, h_post)


def mhc_pre_sinkhorn(
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    hc_mult: int | None = None,
    num_iters: int = 20,
    hc_eps: float = 1e-6,
    norm_eps: float = 1e-6,
    need_backward: bool = False,
    *,
    save: Literal["recompute", "all"] = "recompute",
    return_caches: bool = False,
) -> tuple[Tensor, ...]:
    """:func:`anabranch.mhc_pre_sinkhorn` with h_res as ``[*, n*n]``.

    need_backward is another name of return_caches.
    """
    h_in, h_post, h_res, *caches = functional.mhc_pre_sinkhorn(
        x,
        phi,
        alpha,
        bias,
        hc_mult,
        num_iters,
        hc_eps,
        norm_eps,
        save=save,
        return_caches=need_backward or return_caches,
    )
    return (h_in, h_post, h_res.flatten(-2), *caches)
