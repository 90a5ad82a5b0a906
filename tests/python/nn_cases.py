"""Shared by the tests of the modules: every module with an input."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anabranch import nn

DIM, N = 48, 4


class Mlp(torch.nn.Module):
    def __init__(self, dim: int, norm: bool = True) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(dim) if norm else torch.nn.Identity()
        self.up, self.down = torch.nn.Linear(dim, 2 * dim), torch.nn.Linear(2 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.nn.functional.silu(self.up(self.norm(x))))


def hyper(**kwargs: Any) -> nn.HyperConnection:
    return nn.HyperConnection(DIM, kwargs.pop("n", N), Mlp(DIM), **kwargs)


def spread(module: torch.nn.Module) -> None:
    """Parameters as after training: far from where they start."""
    with torch.no_grad():
        for part in nn.fp32_modules(module):
            for name, parameter in part.named_parameters(recurse=False):
                noise = torch.randn_like(parameter)
                parameter.copy_(noise / parameter.shape[-1] ** 0.5 if name == "fn" else noise)


def modules() -> dict[str, tuple[torch.nn.Module, Any]]:
    """Every module with its input, parameters away from where they start."""
    made = {
        "sinkhorn": hyper(),
        "norm_weight": hyper(norm_weight=True),
        "clamp": hyper(clamp=(-2.0, 2.0)),
        "permutation": hyper(preset="mhc_lite"),
        "identity": hyper(residual="identity"),
        "head": nn.HyperConnectionHead(DIM, N),
        "attention": Attend(DIM),
    }
    for module in made.values():
        spread(module)
    streams = torch.randn(2, 5, N, DIM)
    sources = torch.randn(4, 2, 5, DIM)
    return {k: (m, sources if k == "attention" else streams) for k, m in made.items()}


class Attend(nn.AttentionResidual):
    """Of one tensor of sources, so that all modules here can be called alike."""

    def forward(self, sources: Tensor) -> Tensor:
        *blocks, partial = sources.unbind()
        return super().forward(blocks, partial)


NAMES = list(modules())


def relative(a: Tensor, b: Tensor) -> float:
    return ((a - b).norm() / b.norm()).item()


def saved_bytes(call: Any, *known: Tensor) -> int:
    pointers = {t.data_ptr() for t in known}
    saved: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        if t.data_ptr() not in pointers:
            saved[t.data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        call()
    return sum(saved.values())
