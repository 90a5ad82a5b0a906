"""Level 2: differentiable functions.

Everywhere ``*`` stands for any leading dimensions (tokens: ``[B, S]``, ``[T]`` or none), n for the
residual streams, D for the hidden size, F for the rows of phi. Activations (x, h_out, blocks, ...)
are all bfloat16, all float16 or all float32; coefficients and statistics are float32. Everything
float64 runs the double-precision reference, made for ``torch.autograd.gradcheck``. Tensors may have
any strides; none is copied. Wrong shapes, dtypes and attributes raise ValueError, which names the
argument, what it got and what it wants. First derivatives are exact; second derivatives and
forward-mode derivatives are refused with RuntimeError. Where no gradient is wanted nothing is
computed or kept for one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, cast

from torch import Tensor

from anabranch import ops as _ops  # registers the operators  # noqa: F401
from anabranch._ops import attn_res as _attn
from anabranch._ops import block_attn_res as _block
from anabranch._ops import mhc_head as _head
from anabranch._ops import mhc_post as _post
from anabranch._ops import mhc_post_pre as _post_pre
from anabranch._ops import mhc_pre as _pre
from anabranch._ops import mhc_pre_sinkhorn as _pre_sinkhorn
from anabranch._ops import mhc_sinkhorn as _sinkhorn
from anabranch._ops._library import invoke, needs_grad

__all__ = [
    "ai_infra_block_attn_res",
    "ai_infra_block_attn_res_backward",
    "attn_res_merge",
    "attn_res_prepare",
    "block_attn_res",
    "mhc_head",
    "mhc_permutation",
    "mhc_post",
    "mhc_post_backward",
    "mhc_post_pre",
    "mhc_pre",
    "mhc_pre_backward",
    "mhc_pre_sinkhorn",
    "mhc_pre_sinkhorn_backward",
    "mhc_sinkhorn",
    "mhc_sinkhorn_backward",
]

_RESIDUALS = {"matrix": _pre.MATRIX, "permutation": _pre.PERMUTATION, "none": _pre.NONE}


def _sources(op: str, blocks: Sequence[Tensor] | Tensor) -> list[Tensor]:
    """The blocks as a list; one tensor [N, *, D] is N of them."""
    if isinstance(blocks, (list, tuple)):
        return list(blocks)
    if isinstance(blocks, Tensor) and blocks.ndim:
        return list(blocks.unbind(0))
    if blocks is None:
        raise ValueError(f"{op}: blocks is absent, expected a list of tensors")
    raise TypeError(f"{op}: blocks is a {type(blocks).__name__}, expected a list of tensors")


def _choice(op: str, argument: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        names = ", ".join(repr(c) for c in choices)
        raise ValueError(f"{op}: {argument} is {value!r}, expected one of {names}")


def _interval(op: str, clamp: tuple[float, float] | None) -> tuple[float, float]:
    """The clamp as the operator takes it: (0, 0) is none."""
    if clamp is None:
        return 0.0, 0.0
    if not isinstance(clamp, (list, tuple)) or len(clamp) != 2:
        raise ValueError(f"{op}: clamp is {clamp!r}, expected None or (low, high)")
    return clamp[0], clamp[1]


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
    _choice("mhc_pre", "residual", residual, tuple(_RESIDUALS))
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
        return _pre.NONE
    if not (isinstance(x, Tensor) and isinstance(grad_h_res, Tensor)):
        return _pre.MATRIX  # refused by the call
    if x.ndim < 2 or grad_h_res.ndim != x.ndim - 1:
        return _pre.MATRIX
    return _pre.MATRIX if grad_h_res.shape[-1] == x.shape[-2] ** 2 else _pre.PERMUTATION


def mhc_sinkhorn(
    logits: Tensor,
    *,
    num_iters: int = 20,
    eps: float = 1e-6,
    clamp: tuple[float, float] | None = None,
    save: Literal["recompute", "all"] = "recompute",
) -> Tensor:
    """Makes a nearly doubly stochastic matrix of every token's n x n logits.

    Softmax over each row, plus eps; a column normalisation; then num_iters - 1 times a row and a
    column normalisation (each divides by its sum plus eps).
    Source: Manifold-Constrained Hyper-Connections (mHC).

    Args:
        logits: ``[*, n, n]`` float32, n = 1..16.
        clamp: logits are clamped to this interval first; outside it the gradient is 0.
        save: what autograd keeps: "recompute" the logits, "all" every iterate too.

    Returns:
        h_res ``[*, n, n]``.

    Saved for the backward: the input; with save="all" ``8 * num_iters * (n + n*n)`` bytes a token.
    """
    _choice("mhc_sinkhorn", "save", save, ("recompute", "all"))
    low, high = _interval("mhc_sinkhorn", clamp)
    record = needs_grad(logits)
    iterates = record and save == "all"
    result = invoke(_sinkhorn.forward, record, logits, num_iters, eps, low, high, iterates)
    return cast(Tensor, result[0])


def mhc_sinkhorn_backward(
    grad_h_res: Tensor,
    logits: Tensor,
    *,
    num_iters: int = 20,
    eps: float = 1e-6,
    clamp: tuple[float, float] | None = None,
) -> Tensor:
    """The gradient of :func:`mhc_sinkhorn`, exact: all normalisations unrolled, none stored.

    Args:
        grad_h_res, logits: ``[*, n, n]`` float32; options as in the forward.

    Returns:
        grad_logits ``[*, n, n]``.
    """
    low, high = _interval("mhc_sinkhorn_backward", clamp)
    record = needs_grad(grad_h_res, logits)
    args = (grad_h_res, logits, None, None, num_iters, eps, low, high)
    return cast(Tensor, invoke(_sinkhorn.backward, record, *args))


def mhc_permutation(logits: Tensor, n: int) -> Tensor:
    """A doubly stochastic matrix as a softmax-weighted sum of all n x n permutation matrices.

    Permutations in lexicographic order. Source: mHC-lite.

    Args:
        logits: ``[*, n!]`` float32.
        n: residual streams, 1..5.

    Returns:
        h_res ``[*, n, n]``.

    Saved for the backward: the input, nothing else.
    """
    if n not in (1, 2, 3, 4, 5):
        raise ValueError(f"mhc_permutation: n is {n!r}, expected 1..5")
    if isinstance(logits, Tensor) and logits.ndim and logits.shape[-1] != math.factorial(n):
        have = tuple(int(size) for size in logits.shape)
        raise ValueError(
            f"mhc_permutation: logits has shape {have}, expected {math.factorial(n)} last for n {n}"
        )
    return cast(Tensor, invoke(_sinkhorn.permutation, needs_grad(logits), logits))


def mhc_pre_sinkhorn(
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    hc_mult: int = 4,
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
        x: ``[*, n, D]`` activation, n = hc_mult.
        phi, alpha, bias: ``[n*n + 2n, n*D]``, ``[3]``, ``[n*n + 2n]`` float32.
        save: what autograd keeps: "recompute" no Sinkhorn iterate, "all" every one.
        return_caches: also return ``(h_pre [*, n], hc_before_norm [*, F], inv_rms [*, 1],
            sum_out [2*num_iters, T, n], norm_out [2*num_iters, T, n, n])``, not differentiable.

    Returns:
        ``(h_in [*, D], h_post [*, n], h_res [*, n, n])``, and the caches if wanted.

    Saved for the backward, beside the inputs, per token: ``4 * (1 + F + n)`` bytes, with
    save="all" ``8 * num_iters * (n + n*n)`` more.
    """
    op = "mhc_pre_sinkhorn"
    _choice(op, "save", save, ("recompute", "all"))
    if isinstance(x, Tensor) and x.ndim >= 2 and x.shape[-2] != hc_mult:
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


def _attend(
    blocks: Sequence[Tensor],
    proj_weight: Tensor,
    partial_block: Tensor | None,
    rmsnorm_gamma: Tensor | None,
    scale: float,
    rmsnorm_eps: float,
    enable_rmsnorm: bool,
    rms_out: bool,
    alpha_out: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    blocks = _sources("block_attn_res", blocks)
    record = needs_grad(*blocks, proj_weight, partial_block, rmsnorm_gamma)
    result = invoke(
        _block.forward,
        record,
        blocks,
        partial_block,
        proj_weight,
        rmsnorm_gamma,
        scale,
        rmsnorm_eps,
        enable_rmsnorm,
        rms_out or (record and enable_rmsnorm),
        alpha_out or record,
    )
    return cast("tuple[Tensor, Tensor, Tensor]", result)


def block_attn_res(
    blocks: Sequence[Tensor],
    proj_weight: Tensor,
    partial_block: Tensor | None = None,
    scale: float = 1.0,
    rmsnorm_eps: float = 1e-6,
    rmsnorm_gamma: Tensor | None = None,
    enable_rmsnorm: bool = True,
) -> Tensor:
    """A layer's input as attention over the outputs of earlier blocks, one learned query.

    For the L sources v (the blocks, then the partial block), per token::

        s_l = scale * sum_d gamma_d w_d v_{l,d} / sqrt(mean_d(v_l^2) + rmsnorm_eps)
        h   = sum_l softmax(s)_l v_l                     raw v

    Without the norm the root is 1 and gamma is not used. Source: Attention Residuals (Kimi).

    Args:
        blocks: 1 to 127 tensors ``[*, D]``; never stacked or copied.
        proj_weight: w, ``[D]`` or ``[1, D]``, float32 or the blocks' dtype.
        partial_block: one more source; None is no source, not a zero one.
        rmsnorm_gamma: as proj_weight; None with the norm on means ones.

    Returns:
        h ``[*, D]`` of the blocks' dtype.

    Saved for the backward, beside the inputs, per token: ``8 * L`` bytes, ``4 * L`` without norm.
    """
    args = (rmsnorm_gamma, scale, rmsnorm_eps, enable_rmsnorm)
    return _attend(blocks, proj_weight, partial_block, *args, False, False)[0]


def ai_infra_block_attn_res(
    blocks: Sequence[Tensor],
    proj_weight: Tensor,
    partial_block: Tensor | None = None,
    scale: float = 1.0,
    rmsnorm_eps: float = 1e-6,
    rmsnorm_gamma: Tensor | None = None,
    enable_rmsnorm: bool = True,
    rms_out_flag: bool = False,
    alpha_out_flag: bool = False,
) -> Tensor | tuple[Tensor, ...]:
    """:func:`block_attn_res` with the caches its explicit backward wants.

    Here rmsnorm_gamma is required with the norm, and rms_out_flag needs the norm (ValueError).

    Returns:
        h, (h, rms), (h, alpha) or (h, rms, alpha) by the flags; rms ``[*, L, 1]`` and alpha
        ``[*, L]`` float32, not differentiable.
    """
    op = "ai_infra_block_attn_res"
    if enable_rmsnorm and rmsnorm_gamma is None:
        raise ValueError(f"{op}: rmsnorm_gamma is absent, expected a tensor with enable_rmsnorm")
    if rms_out_flag and not enable_rmsnorm:
        raise ValueError(f"{op}: rms_out_flag is True, expected False without enable_rmsnorm")
    args = (rmsnorm_gamma, scale, rmsnorm_eps, enable_rmsnorm, rms_out_flag, alpha_out_flag)
    h, rms, alpha = _attend(blocks, proj_weight, partial_block, *args)
    caches = (*((rms,) if rms_out_flag else ()), *((alpha,) if alpha_out_flag else ()))
    return (h, *caches) if caches else h


def ai_infra_block_attn_res_backward(
    grad_h: Tensor,
    blocks: Sequence[Tensor],
    proj_weight: Tensor,
    alpha_cache: Tensor,
    partial_block: Tensor | None = None,
    rmsnorm_gamma: Tensor | None = None,
    rms_cache: Tensor | None = None,
    scale: float = 1.0,
    enable_rmsnorm: bool = True,
) -> tuple[list[Tensor] | Tensor | None, ...]:
    """The gradients of :func:`ai_infra_block_attn_res`, from its inputs and caches.

    Returns:
        ``(list of grad_blocks, grad_partial | None, grad_proj_weight)``, and ``grad_gamma`` with
        the norm on, when rmsnorm_gamma and rms_cache are required (ValueError). Gradients of
        parameters have their parameter's dtype and shape.
    """
    op = "ai_infra_block_attn_res_backward"
    for name, tensor in (("rmsnorm_gamma", rmsnorm_gamma), ("rms_cache", rms_cache)):
        if enable_rmsnorm and tensor is None:
            raise ValueError(f"{op}: {name} is absent, expected a tensor with enable_rmsnorm")
    blocks = _sources(op, blocks)
    record = needs_grad(grad_h, *blocks, proj_weight, partial_block, rmsnorm_gamma)
    grad_partial, grad_weight, grad_gamma, grad_blocks = invoke(
        _block.backward,
        record,
        grad_h,
        blocks,
        partial_block,
        proj_weight,
        rmsnorm_gamma,
        alpha_cache,
        rms_cache,
        scale,
        1e-6,  # only used where rms is recomputed: never here
        enable_rmsnorm,
    )
    result = (
        list(grad_blocks.unbind(0)),
        None if partial_block is None else grad_partial,
        grad_weight,
    )
    return (*result, grad_gamma) if enable_rmsnorm else result


def attn_res_prepare(
    blocks: Sequence[Tensor],
    queries: Tensor,
    scale: float = 1.0,
    rmsnorm_eps: float = 1e-6,
    rmsnorm_gamma: Tensor | None = None,
    enable_rmsnorm: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Phase one of attention residuals: all queries over the finished blocks, un-normalised.

    Per query, with the scores of :func:`block_attn_res`: m = max s, l = sum exp(s - m),
    o = sum exp(s - m) v. Source: Attention Residuals (Kimi).

    Args:
        blocks: 0 to 127 tensors ``[*, D]``, or one ``[N, *, D]``. Without any m is the lowest
            float32, l and o are 0, and a merge gives its source; the tokens are then those of
            ``[0, *, D]``, and none (``o [S, D]``) for an empty list.
        queries: ``[S, D]``, float32 or the blocks' dtype.
        rmsnorm_gamma: ``[D]`` for all queries or ``[S, D]``; None with the norm on means ones.

    Returns:
        ``(o [S, *, D], m [S, *], l [S, *])``, float32.

    Saved for the backward: the inputs, nothing else.
    """
    sources = _sources("attn_res_prepare", blocks)
    record = needs_grad(*sources, queries, rmsnorm_gamma)
    args = (sources, queries, rmsnorm_gamma, scale, rmsnorm_eps, enable_rmsnorm)
    o, m, l = invoke(_attn.prepare, record, *args)  # noqa: E741
    if isinstance(blocks, Tensor) and not sources:
        tokens = blocks.shape[1:-1]
        o = _spread(o, tokens)
        m, l = _spread(m, tokens), _spread(l, tokens)  # noqa: E741
    return o, m, l


def _spread(t: Tensor, tokens: Sequence[int]) -> Tensor:
    """[S] or [S, D] -> [S, *tokens] or [S, *tokens, D]."""
    ones = (1,) * len(tokens)
    last = t.shape[1:]
    view = t.reshape(t.shape[0], *ones, *last)
    return view.expand(t.shape[0], *tokens, *last).contiguous()


def attn_res_merge(
    o: Tensor,
    m: Tensor,
    l: Tensor,  # noqa: E741
    v: Tensor,
    query: Tensor,
    scale: float = 1.0,
    rmsnorm_eps: float = 1e-6,
    rmsnorm_gamma: Tensor | None = None,
    enable_rmsnorm: bool = True,
) -> Tensor:
    """Phase two: adds one more source v to one query's part of :func:`attn_res_prepare`.

    With v's score s and m' = max(m, s):
    ``h = (o e^(m-m') + v e^(s-m')) / (l e^(m-m') + e^(s-m'))``, which is
    ``block_attn_res(blocks, query, v)`` within float32 rounding.

    Args:
        o, m, l: ``[*, D]``, ``[*]``, ``[*]`` float32.
        v: ``[*, D]`` activation.
        query: ``[D]``, float32 or v's dtype; rmsnorm_gamma likewise.

    Returns:
        h ``[*, D]`` of v's dtype.

    Saved for the backward: the inputs, nothing else.
    """
    record = needs_grad(o, m, l, v, query, rmsnorm_gamma)
    args = (o, m, l, v, query, rmsnorm_gamma, scale, rmsnorm_eps, enable_rmsnorm)
    return cast(Tensor, invoke(_attn.merge, record, *args))
