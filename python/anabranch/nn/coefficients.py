"""The coefficients of one hyper-connection."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from anabranch import functional
from anabranch.nn._fp32 import Fp32Module, check_streams

Residual = Literal["sinkhorn", "permutation", "identity"]

# A new network is the plain residual network but for the projection's share: logits of deviation
# 0.005, h_post off by 0.25 %. Not zero: equal streams would stay equal for ever.
_INITIAL_SCALE = 0.01
_INITIAL_PROJECTION = 0.5
# What a new h_res gives away from its diagonal, in all.
_INITIAL_LEAK = 0.01
# For n = 1, where a sigmoid cannot be 1.
_LARGEST_GATE = 0.999


class MixState(NamedTuple):
    """What ``HyperConnection.pre`` hands to ``post``: h_post ``[*, n]``, h_res ``[*, n, n]`` or
    None, float32."""

    h_post: Tensor
    h_res: Tensor | None


def gate_bias(n: int, hc_eps: float) -> float:
    """The bias b with sigmoid(b) + hc_eps = 1/n."""
    gate = min(1 / n - hc_eps, _LARGEST_GATE)
    return math.log(gate / (1 - gate))


def _kept_logit(others: int) -> float:
    """The logit that beats `others` zeros up to the initial leak."""
    return math.log((1 - _INITIAL_LEAK) / _INITIAL_LEAK * others) if others else 0.0


def reset_projection(fn: Tensor, scale: Tensor) -> None:
    nn.init.normal_(fn, std=_INITIAL_PROJECTION * fn.shape[1] ** -0.5)
    nn.init.constant_(scale, _INITIAL_SCALE)


class Coefficients(Fp32Module):
    """The parameters of one hyper-connection; its forward computes all that depends on x.

    A module of its own because FSDP2 gathers a module's parameters for the time of its forward.

    Args:
        dim, n: hidden size D and residual streams; K = n*D.
        residual: the form of h_res: "sinkhorn" (F = n*n + 2n), "permutation" (F = n! + 2n,
            n <= 5) or "identity" (F = 2n: h_res is absent).
        norm_weight: whether the norm has a weight ``[n, D]``.
        clamp: interval of the Sinkhorn logits.
        save: "recompute" or "all", see :func:`anabranch.mhc_pre_sinkhorn`.

    Shapes:
        fn ``[F, K]``, base ``[F]``, scale ``[3]`` (``[2]`` for "identity"), norm_weight ``[n, D]``,
        float32.
    """

    fn: Tensor
    base: Tensor
    scale: Tensor
    norm_weight: Tensor | None

    def __init__(
        self,
        dim: int,
        n: int,
        *,
        residual: Residual,
        norm_weight: bool,
        num_iters: int,
        norm_eps: float,
        hc_eps: float,
        clamp: tuple[float, float] | None = None,
        save: Literal["recompute", "all"] = "recompute",
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.n, self.residual = dim, n, residual
        self.num_iters, self.norm_eps, self.hc_eps = num_iters, norm_eps, hc_eps
        self.clamp, self.save = clamp, save
        mixing = {"sinkhorn": n * n, "identity": 0}.get(residual)
        rows = 2 * n + (math.factorial(n) if mixing is None else mixing)

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, dtype=torch.float32, device=device))

        self.fn = parameter(rows, n * dim)
        self.base = parameter(rows)
        self.scale = parameter(2 if residual == "identity" else 3)
        self.register_parameter("norm_weight", parameter(n, dim) if norm_weight else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """h_pre near 1/n, h_post near 1, h_res near the identity."""
        n = self.n
        reset_projection(self.fn, self.scale)
        if self.norm_weight is not None:
            nn.init.ones_(self.norm_weight)
        with torch.no_grad():
            self.base.zero_()
            self.base[:n] = gate_bias(n, self.hc_eps)
            mixing = self.base[2 * n :]
            if self.residual == "sinkhorn":
                mixing[:: n + 1] = _kept_logit(n - 1)
            elif self.residual == "permutation":
                mixing[0] = _kept_logit(mixing.numel() - 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """``(h_in [*, D], h_post [*, n], h_res [*, n, n] or None)`` of x ``[*, n, D]``."""
        check_streams("HyperConnection", "x", x, self.n, self.dim)
        self._check_dtype("HyperConnection", "coefficients.")
        return self._coefficients(x)

    @property
    def _plain(self) -> bool:
        return self.residual == "sinkhorn" and self.norm_weight is None and self.clamp is None

    def _coefficients(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        parameters = (self.fn, self.scale, self.base)
        if self._plain:
            fused = functional.mhc_pre_sinkhorn(
                x,
                *parameters,
                num_iters=self.num_iters,
                hc_eps=self.hc_eps,
                norm_eps=self.norm_eps,
                save=self.save,
            )
            return cast("tuple[Tensor, Tensor, Tensor]", fused)
        forms: dict[str, Literal["matrix", "permutation", "none"]] = {
            "sinkhorn": "matrix",
            "permutation": "permutation",
            "identity": "none",
        }
        h_in, h_post, logits = functional.mhc_pre(
            x,
            *parameters,
            gamma=self.norm_weight,
            norm_eps=self.norm_eps,
            hc_eps=self.hc_eps,
            residual=forms[self.residual],
        )
        return cast(Tensor, h_in), cast(Tensor, h_post), self._mix(logits)

    def _mix(self, logits: Tensor | None) -> Tensor | None:
        if logits is None or self.residual == "identity":
            return None
        if self.residual == "permutation":
            return functional.mhc_permutation(logits, self.n)
        return functional.mhc_sinkhorn(
            logits, num_iters=self.num_iters, eps=self.hc_eps, clamp=self.clamp, save=self.save
        )

    def extra_repr(self) -> str:
        text = f"dim={self.dim}, n={self.n}, residual={self.residual!r}"
        if self.residual == "sinkhorn":
            text += f", num_iters={self.num_iters}"
        if self.clamp is not None:
            text += f", clamp={self.clamp}"
        if self.norm_weight is not None:
            text += ", norm_weight=True"
        return f"{text}, norm_eps={self.norm_eps:g}, hc_eps={self.hc_eps:g}"
