"""Fused residual-stream operators for Transformers: mHC and Block Attention Residuals, on the CPU.

Three levels: :mod:`anabranch.ops` (``torch.ops.anabranch.*``), :mod:`anabranch.functional` (also
here), and modules, :mod:`anabranch.nn`. :mod:`anabranch.eager` computes the functions with plain
PyTorch operators.
"""

from __future__ import annotations

import torch

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 10):
    raise ImportError(f"anabranch needs PyTorch >= 2.10, this is {torch.__version__}")

from anabranch import functional
from anabranch import nn as nn
from anabranch._C import version as __version__
from anabranch.functional import *  # noqa: F403

__all__ = ["__version__", *functional.__all__]
