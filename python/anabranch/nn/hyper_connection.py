"""Manifold-Constrained Hyper-Connections as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from anabranch import functional
from anabranch.nn._fp32 import Fp32Module, check_norm_eps, check_positive, check_streams
from anabranch.nn.coefficients import (
    Coefficients,
    MixState,
    Residual,
    gate_bias,
    reset_projection,
)

#: What a preset fixes; an explicit argument of the constructor goes before it.
PRESETS: dict[str, dict[str, Any]] = {
    "deepseek_v4": {
        "residual": "sinkhorn",
        "norm_weight": False,
        "norm_eps": 1e-6,
        "hc_eps": 1e-6,
    },
    "mhc_lite": {
        "residual": "permutation",
        "norm_weight": False,
        "norm_eps": 1e-6,
        "hc_eps": 0.0,
    },
}


def expand_streams(x: Tensor, n: int) -> Tensor:
    """``[*, D]`` to n equal streams ``[*, n, D]``: the start of a network. A view, no copy."""
    check_positive("expand_streams", n=n)
    check_streams("expand_streams", "x", x)
    if x.ndim < 1:
        raise ValueError("expand_streams: x has shape (), expected (*, D)")
    return x.unsqueeze(-2).expand(*x.shape[:-1], n, x.shape[-1])


class HyperConnection(nn.Module):
    """One sublayer on n residual streams: collapse, sublayer, write back and mix.

    ``h_in = sum_i h_pre[i] x[i]``, ``y[i] = h_post[i] sublayer(h_in) + sum_j h_res[j, i] x[j]``;
    see :func:`anabranch.mhc_pre_sinkhorn` and :func:`anabranch.mhc_post`. Streams start as copies
    of the embedding (:func:`expand_streams`) and end in a :class:`HyperConnectionHead`. New, it is
    ``x[i] + sublayer(x[i])`` within 1 % for equal streams.

    Args:
        dim: hidden size D.
        n: residual streams, 1..16.
        sublayer: module or function ``[*, D] -> [*, D]`` of the forward; None for models that call
            it between :meth:`pre` and :meth:`post`.
        preset: "deepseek_v4" or "mhc_lite": the defaults of the arguments below (:data:`PRESETS`).
        num_iters: Sinkhorn iterations.
        residual, norm_weight, norm_eps, hc_eps, clamp, save, device: see :class:`Coefficients`.

    State dict: ``coefficients.fn``, ``coefficients.base``, ``coefficients.scale``, with
    norm_weight ``coefficients.norm_weight``, then ``sublayer.*``. Loading also takes ``fn``,
    ``base``, ``scale``, as Hugging Face's DeepSeek-V4 names them.

    Source: Manifold-Constrained Hyper-Connections (mHC); DeepSeek-V4.
    """

    def __init__(
        self,
        dim: int,
        n: int = 4,
        sublayer: Callable[..., Tensor] | None = None,
        *,
        preset: str = "deepseek_v4",
        num_iters: int = 20,
        residual: Residual | None = None,
        norm_weight: bool | None = None,
        norm_eps: float | None = None,
        hc_eps: float | None = None,
        clamp: tuple[float, float] | None = None,
        save: Literal["recompute", "all"] = "recompute",
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        _check_options(dim, n, sublayer, preset, num_iters, residual, save)
        given = {
            "residual": residual,
            "norm_weight": norm_weight,
            "norm_eps": norm_eps,
            "hc_eps": hc_eps,
        }
        options = {**PRESETS[preset], **{k: v for k, v in given.items() if v is not None}}
        _check_residual(n, options["residual"], clamp)
        _check_eps("HyperConnection", n, options["norm_eps"], options["hc_eps"])
        self.dim, self.n, self.preset = dim, n, preset
        self.coefficients = Coefficients(
            dim, n, num_iters=num_iters, clamp=clamp, save=save, device=device, **options
        )
        self.sublayer = sublayer

    def reset_parameters(self) -> None:
        """Initialises the coefficients again, not the sublayer."""
        self.coefficients.reset_parameters()

    def pre(self, x: Tensor) -> tuple[Tensor, MixState]:
        """The sublayer's input ``[*, D]`` and what :meth:`post` needs, from x ``[*, n, D]``."""
        h_in, h_post, h_res = self.coefficients(x)
        return h_in, MixState(h_post, h_res)

    def post(self, x: Tensor, out: Tensor, state: MixState) -> Tensor:
        """The new streams ``[*, n, D]``: x those that :meth:`pre` got, out ``[*, D]`` of any dtype
        the sublayer's output, which is cast to x's dtype."""
        check_streams("HyperConnection", "x", x, self.n, self.dim)
        check_streams("HyperConnection", "out", out, self.dim)
        h_post, h_res = state
        return functional.mhc_post(x, h_res, out.to(x.dtype), h_post)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """``post(x, sublayer(h_in, *args, **kwargs))``, ``[*, n, D]`` of x's dtype."""
        if self.sublayer is None:
            raise ValueError(
                "HyperConnection: sublayer is None, expected a module "
                "(or call pre and post instead of forward)"
            )
        if isinstance(args, Proxy):  # torch.fx traces this module by itself: x alone
            args, kwargs = (), {}
        h_in, state = self.pre(x)
        return self.post(x, self.sublayer(h_in, *args, **kwargs), state)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, n={self.n}, preset={self.preset!r}"

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        names = [name for name, _ in self.coefficients.named_parameters()]
        _rename(state_dict, {f"{prefix}{k}": f"{prefix}coefficients.{k}" for k in names})
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _rename(state_dict: dict[str, Any], names: dict[str, str]) -> None:
    """Moves entries to our names, where those are missing."""
    for theirs, ours in names.items():
        if theirs in state_dict and ours not in state_dict:
            state_dict[ours] = state_dict.pop(theirs)


def _check_options(
    dim: int,
    n: int,
    sublayer: Any,
    preset: str,
    num_iters: int,
    residual: str | None,
    save: str,
) -> None:
    owner = "HyperConnection"
    check_positive(owner, dim=dim, n=n, num_iters=num_iters)
    if n > 16:
        raise ValueError(f"{owner}: n is {n}, expected 1..16")
    if sublayer is not None and not callable(sublayer):
        raise TypeError(f"{owner}: sublayer is a {type(sublayer).__name__}, expected a callable")
    choices = {
        "preset": (preset, tuple(PRESETS)),
        "residual": (residual, ("sinkhorn", "permutation", "identity", None)),
        "save": (save, ("recompute", "all")),
    }
    for name, (value, allowed) in choices.items():
        if value not in allowed:
            names = ", ".join(repr(a) for a in allowed if a is not None)
            raise ValueError(f"{owner}: {name} is {value!r}, expected one of {names}")


def _check_residual(n: int, residual: str, clamp: tuple[float, float] | None) -> None:
    owner = "HyperConnection"
    if residual == "permutation" and n > 5:
        raise ValueError(f"{owner}: n is {n}, expected 1..5 for residual 'permutation'")
    if clamp is None:
        return
    if residual != "sinkhorn":
        raise ValueError(f"{owner}: clamp is set for residual {residual!r}, expected None")
    if len(clamp) != 2 or not clamp[0] < clamp[1]:
        raise ValueError(f"{owner}: clamp is {clamp}, expected (low, high) with low < high")


def _check_eps(owner: str, n: int, norm_eps: float, hc_eps: float) -> None:
    check_norm_eps(owner, norm_eps)
    if not 0 <= hc_eps < 1 / n:  # a gate of 1/n must be possible
        raise ValueError(f"{owner}: hc_eps is {hc_eps}, expected 0 <= hc_eps < 1/{n}")


class HyperConnectionHead(Fp32Module):
    """Collapses n streams at the end of a network: ``[*, n, D] -> [*, D]``; new, their mean.

    See :func:`anabranch.mhc_head`. Parameters fn ``[n, n*D]``, base ``[n]``, scale ``[1]``,
    float32. Loading also takes ``hc_fn``, ``hc_base``, ``hc_scale``, as Hugging Face's DeepSeek-V4
    names them. Source: DeepSeek-V4.
    """

    fn: Tensor
    base: Tensor
    scale: Tensor

    def __init__(
        self,
        dim: int,
        n: int = 4,
        *,
        norm_eps: float = 1e-6,
        hc_eps: float = 1e-6,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        check_positive("HyperConnectionHead", dim=dim, n=n)
        if n > 16:
            raise ValueError(f"HyperConnectionHead: n is {n}, expected 1..16")
        _check_eps("HyperConnectionHead", n, norm_eps, hc_eps)
        self.dim, self.n, self.norm_eps, self.hc_eps = dim, n, norm_eps, hc_eps

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, dtype=torch.float32, device=device))

        self.fn, self.base, self.scale = parameter(n, n * dim), parameter(n), parameter(1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights near 1/n."""
        reset_projection(self.fn, self.scale)
        nn.init.constant_(self.base, gate_bias(self.n, self.hc_eps))

    def forward(self, x: Tensor) -> Tensor:
        """``[*, D]`` of x's dtype from x ``[*, n, D]``."""
        check_streams("HyperConnectionHead", "x", x, self.n, self.dim)
        self._check_dtype("HyperConnectionHead")
        parameters = (self.fn, self.base, self.scale)
        return functional.mhc_head(x, *parameters, norm_eps=self.norm_eps, hc_eps=self.hc_eps)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, n={self.n}, norm_eps={self.norm_eps:g}, hc_eps={self.hc_eps:g}"

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        _rename(state_dict, {f"{prefix}hc_{k}": prefix + k for k in self._parameters})
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
