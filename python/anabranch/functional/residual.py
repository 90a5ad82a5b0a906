"""The residual matrix of mHC alone: Sinkhorn and the permutation form."""

from __future__ import annotations

from typing import Literal, cast

from torch import Tensor

from anabranch import ops as _ops  # registers the operators  # noqa: F401
from anabranch._ops import mhc_sinkhorn as _sinkhorn
from anabranch._ops._library import invoke, needs_grad
from anabranch.functional._arguments import check_choice


def _interval(op: str, clamp: tuple[float, float] | None) -> tuple[float, float]:
    """The clamp as the operator takes it: (0, 0) is none."""
    if clamp is None:
        return 0.0, 0.0
    if not isinstance(clamp, (list, tuple)) or len(clamp) != 2:
        raise ValueError(f"{op}: clamp is {clamp!r}, expected None or (low, high)")
    return clamp[0], clamp[1]


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
    check_choice("mhc_sinkhorn", "save", save, ("recompute", "all"))
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


_PERMUTATIONS = ((1, 1), (2, 2), (3, 6), (4, 24), (5, 120))  # n, n!


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
    # Compared one by one: n is symbolic where torch.compile traces with dynamic shapes.
    count = next((c for streams, c in _PERMUTATIONS if streams == n), None)
    if count is None:
        raise ValueError(f"mhc_permutation: n is {n!r}, expected 1..5")
    if isinstance(logits, Tensor) and logits.ndim and logits.shape[-1] != count:
        have = tuple(int(size) for size in logits.shape)
        raise ValueError(
            f"mhc_permutation: logits has shape {have}, expected {count} last for n {n}"
        )
    return cast(Tensor, invoke(_sinkhorn.permutation, needs_grad(logits), logits))
