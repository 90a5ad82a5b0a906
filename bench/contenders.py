"""What the suite compares: our functions and modules, and what a user would take instead."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import anabranch
from anabranch import eager
from anabranch.nn import HyperConnection

N = 4
ITERATIONS = 20
Call = Callable[[], object]


@dataclass(frozen=True)
class Work:
    """One row of the table. BF16 activations, FP32 parameters, one sequence of `tokens` tokens."""

    op: str  # "mhc sublayer", "block_attn_res"
    tokens: int
    d: int
    sources: int = 0
    backward: bool = False

    @property
    def title(self) -> str:
        sources = f" L={self.sources}" if self.sources else ""
        way = "forward + backward" if self.backward else "forward"
        return f"{self.op}{sources} D={self.d} T={self.tokens} {way}"

    @property
    def eager_bytes(self) -> int:
        """About what the eager composition holds at once: it goes through FP32 copies."""
        rows = N if self.op == "mhc sublayer" else self.sources
        return self.tokens * self.d * rows * 4 * (12 if self.backward else 6)


def _steps(function: Callable[..., Tensor], inputs: list[Tensor], backward: bool) -> Call:
    if not backward:

        def forward() -> object:
            with torch.no_grad():
                return function(*inputs)

        return forward
    with torch.no_grad():
        result = function(*inputs)
    # The same for every contender.
    generator = torch.Generator().manual_seed(3)
    gradient = torch.randn(result.shape, generator=generator).to(result.dtype)

    def both() -> object:
        return torch.autograd.grad(function(*inputs), inputs, gradient, allow_unused=True)

    return both


def _ours_sublayer(x: Tensor, fn: Tensor, base: Tensor, scale: Tensor) -> Tensor:
    h_in, h_post, h_res = anabranch.mhc_pre_sinkhorn(x, fn, scale, base, num_iters=ITERATIONS)
    return anabranch.mhc_post(x, h_res, h_in, h_post)


def _eager_sublayer(x: Tensor, fn: Tensor, base: Tensor, scale: Tensor) -> Tensor:
    h_in, h_post, h_res = eager.mhc_pre_sinkhorn(x, fn, scale, base, num_iters=ITERATIONS)
    return eager.mhc_post(x, h_res, h_in, h_post)


def _hugging_face(d: int) -> tuple[nn.Module, Callable[..., Tensor]]:
    """transformers' DeepSeek-V4 hyper-connection and the lines of its decoder layer around it."""
    from transformers.models.deepseek_v4 import modeling_deepseek_v4 as deepseek
    from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config

    config = DeepseekV4Config(hidden_size=d, hc_mult=N, hc_sinkhorn_iters=ITERATIONS)
    module = deepseek.DeepseekV4HyperConnection(config)

    def sublayer(x: Tensor, *_: Tensor) -> Tensor:
        post, comb, collapsed = module(x)
        mixed = torch.matmul(comb.to(x.dtype).transpose(-1, -2), x)
        return post.to(x.dtype).unsqueeze(-1) * collapsed.unsqueeze(-2) + mixed

    return module, sublayer


def _mhc(work: Work, compiled: bool) -> dict[str, Call]:
    generator = torch.Generator().manual_seed(1)
    rows, k = N * N + 2 * N, N * work.d

    def leaf(*shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
        values = torch.randn(shape, generator=generator) * scale
        return values.to(dtype).requires_grad_(work.backward)

    x = leaf(1, work.tokens, N, work.d, dtype=torch.bfloat16)
    parameters = [leaf(rows, k, scale=k**-0.5), leaf(rows), leaf(3)]
    inputs = [x, *parameters]
    ours = HyperConnection(work.d, N, nn.Identity(), num_iters=ITERATIONS)
    theirs, hugging_face = _hugging_face(work.d)
    with torch.no_grad():
        values = dict(zip(("fn", "base", "scale"), parameters, strict=True))
        for name, value in values.items():
            getattr(theirs, name).copy_(value)
            getattr(ours.coefficients, name).copy_(value)
    modules = {
        "anabranch.nn": (ours, [x, *ours.parameters()]),
        "transformers": (hugging_face, [x, *theirs.parameters()]),
    }

    def module_call(function: Callable[..., Tensor], tensors: list[Tensor]) -> Call:
        return _steps(lambda x, *_: function(x), tensors, work.backward)

    calls: dict[str, Call] = {
        "anabranch": _steps(_ours_sublayer, inputs, work.backward),
        "anabranch.nn": module_call(*modules["anabranch.nn"]),
        "eager": _steps(_eager_sublayer, inputs, work.backward),
        "transformers": module_call(*modules["transformers"]),
    }
    if compiled:
        calls["eager, compiled"] = _steps(torch.compile(_eager_sublayer), inputs, work.backward)
        function, tensors = modules["transformers"]
        calls["transformers, compiled"] = module_call(torch.compile(function), tensors)
    return calls


def _attention(work: Work, compiled: bool) -> dict[str, Call]:
    generator = torch.Generator().manual_seed(2)

    def leaf(*shape: int, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
        values = torch.randn(shape, generator=generator) * scale
        return values.to(dtype).requires_grad_(work.backward)

    blocks = [leaf(1, work.tokens, work.d, dtype=torch.bfloat16) for _ in range(work.sources)]
    weight = leaf(work.d, dtype=torch.float32, scale=work.d**-0.5)

    def ours(weight: Tensor, *blocks: Tensor) -> Tensor:
        return anabranch.block_attn_res(list(blocks), weight)

    def composed(weight: Tensor, *blocks: Tensor) -> Tensor:
        return eager.block_attn_res(list(blocks), weight)

    inputs = [weight, *blocks]
    calls: dict[str, Call] = {
        "anabranch": _steps(ours, inputs, work.backward),
        "eager": _steps(composed, inputs, work.backward),
    }
    if compiled:
        calls["eager, compiled"] = _steps(torch.compile(composed), inputs, work.backward)
    if importlib.util.find_spec("attn_res") is not None:
        from attn_res.main import AttnResOperator

        operator: Any = AttnResOperator(work.d).to(torch.bfloat16)
        with torch.no_grad():
            operator.pseudo_query.copy_(weight)
            stacked = torch.stack([b.detach() for b in blocks]).requires_grad_(work.backward)
        # It is given its sources stacked already, which a model would have to do first.
        tensors = [stacked, operator.pseudo_query]
        calls["attn-res"] = _steps(lambda s, _: operator(s), tensors, work.backward)
    return calls


def contenders(work: Work, compiled: bool) -> dict[str, Call]:
    """Calls that all compute `work`, ours first."""
    return (_mhc if work.op == "mhc sublayer" else _attention)(work, compiled)
