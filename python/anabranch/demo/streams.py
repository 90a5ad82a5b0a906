"""The three residual streams, one interface, and their eager twins.

A Stream carries the embedding ``[B, T, D]`` through the sublayers and returns what the final norm
sees. The fused ones are made of :mod:`anabranch.nn`; the eager ones have the same parameters and
compute the same with :mod:`anabranch.eager`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from torch import Tensor, nn

from anabranch import eager
from anabranch.nn import (
    AttentionResidual,
    HyperConnection,
    HyperConnectionHead,
    MixState,
    expand_streams,
)

#: The streams, in the order of every table, with their names for people.
KINDS = {"plain": "plain", "mhc": "mHC", "attn_res": "Block Attention Residuals"}


class Stream(nn.Module):
    """What all streams share: their operators run through :meth:`run`, which can be timed."""

    stopwatch: Callable[..., Any] | None = None  # set by anabranch.demo.measure

    def run(self, owner: nn.Module, operator: Callable[..., Any], *inputs: Any) -> Any:
        if self.stopwatch is None:
            return operator(*inputs)
        return self.stopwatch(list(owner.parameters()), operator, *inputs)


class PlainStream(Stream):
    """``x + f(x)``, sublayer after sublayer."""

    def forward(self, x: Tensor, sublayers: Sequence[nn.Module]) -> Tensor:
        for sublayer in sublayers:
            x = self.run(self, Tensor.add, x, sublayer(x))
        return x


class HyperStream(Stream):
    """mHC: n lanes, mixed around every sublayer and collapsed at the end."""

    def __init__(self, dim: int, depth: int, lanes: int, *, eager: bool) -> None:
        super().__init__()
        connection = EagerHyperConnection if eager else HyperConnection
        self.lanes = lanes
        self.connections = nn.ModuleList(connection(dim, lanes) for _ in range(depth))
        self.head = (EagerHyperConnectionHead if eager else HyperConnectionHead)(dim, lanes)

    def forward(self, x: Tensor, sublayers: Sequence[nn.Module]) -> Tensor:
        x = expand_streams(x, self.lanes)
        for module, sublayer in zip(self.connections, sublayers, strict=True):
            connection = cast(HyperConnection, module)
            h_in, state = self.run(connection, connection.pre, x)
            x = self.run(connection, connection.post, x, sublayer(h_in), state)
        return cast(Tensor, self.run(self.head, self.head, x))


class AttentionStream(Stream):
    """Every sublayer attends over the embedding, the finished blocks and the unfinished one.

    A block is the sum of the outputs of `block` sublayers; the final norm's input is attended to
    as well.
    """

    def __init__(self, dim: int, depth: int, block: int, *, eager: bool) -> None:
        super().__init__()
        residual = EagerAttentionResidual if eager else AttentionResidual
        self.block = block
        self.residuals = nn.ModuleList(residual(dim) for _ in range(depth + 1))

    def forward(self, x: Tensor, sublayers: Sequence[nn.Module]) -> Tensor:
        blocks: list[Tensor] = [x]
        partial: Tensor | None = None
        *residuals, last = self.residuals
        for i, (residual, sublayer) in enumerate(zip(residuals, sublayers, strict=True)):
            out = sublayer(self.run(residual, residual, blocks, partial))
            partial = out if partial is None else partial + out
            if (i + 1) % self.block == 0:
                blocks, partial = [*blocks, partial], None
        return cast(Tensor, self.run(last, last, blocks, partial))


def make_stream(
    kind: str, dim: int, depth: int, *, lanes: int, block: int, eager: bool = False
) -> Stream:
    """A new stream of one of KINDS for `depth` sublayers."""
    if kind == "plain":
        return PlainStream()
    if kind == "mhc":
        return HyperStream(dim, depth, lanes, eager=eager)
    if kind == "attn_res":
        return AttentionStream(dim, depth, block, eager=eager)
    raise ValueError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")


class EagerHyperConnection(HyperConnection):
    """HyperConnection composed of plain PyTorch operators."""

    def pre(self, x: Tensor) -> tuple[Tensor, MixState]:
        c = self.coefficients
        h_in, h_post, h_res = eager.mhc_pre_sinkhorn(
            x, c.fn, c.scale, c.base, c.n, c.num_iters, c.hc_eps, c.norm_eps
        )
        return h_in, MixState(h_post, h_res)

    def post(self, x: Tensor, out: Tensor, state: MixState) -> Tensor:
        return eager.mhc_post(x, state.h_res, out, state.h_post)


class EagerHyperConnectionHead(HyperConnectionHead):
    """HyperConnectionHead composed of plain PyTorch operators."""

    def forward(self, x: Tensor) -> Tensor:
        parameters = (self.fn, self.base, self.scale)
        return eager.mhc_head(x, *parameters, norm_eps=self.norm_eps, hc_eps=self.hc_eps)


class EagerAttentionResidual(AttentionResidual):
    """AttentionResidual composed of plain PyTorch operators."""

    def forward(self, blocks: Sequence[Tensor], partial: Tensor | None = None) -> Tensor:
        return eager.block_attn_res(
            blocks, self.query, partial, self.scale, self.norm_eps, self.norm_weight, self.norm
        )
