"""Fused residual-stream operators for Transformers: mHC and Block Attention Residuals, on the CPU.

Three levels: :mod:`anabranch.ops` (``torch.ops.anabranch.*``), :mod:`anabranch.functional` (also
here), and modules, :mod:`anabranch.nn`. :mod:`anabranch.eager` computes the functions with plain
PyTorch operators.
"""

from __future__ import annotations

import importlib

import torch

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 10):
    raise ImportError(f"anabranch needs PyTorch >= 2.10, this is {torch.__version__}")

from anabranch import functional
from anabranch import nn as nn
from anabranch import ops as ops
from anabranch._C import version as __version__
from anabranch.functional import *  # noqa: F403

__all__ = ["__version__", *functional.__all__]

# torch.fx.symbolic_trace keeps each of these as one call.
for _name in functional.__all__:
    torch.fx.wrap(_name)


def __getattr__(name: str) -> object:
    """Sub-modules that are imported when they are first used."""
    if name in ("compat", "distributed", "eager"):
        return importlib.import_module(f"anabranch.{name}")
    if name.startswith("ai_infra_"):
        moved: object = getattr(functional, name)
        return moved
    raise AttributeError(f"module 'anabranch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "compat", "distributed", "eager"})
