"""Level 3: modules.

A new network of them computes what the plain residual network computes, within 1 %. Their
parameters are float32 and stay float32 under ``model.bfloat16()``, autocast and, sharded as
:func:`fp32_modules` says, FSDP2 mixed precision; outputs have x's dtype. See docs/nn.md.
"""

from __future__ import annotations

from anabranch.nn._fp32 import fp32_modules
from anabranch.nn.attention_residual import AttentionResidual
from anabranch.nn.hyper_connection import (
    PRESETS,
    Coefficients,
    HyperConnection,
    HyperConnectionHead,
    MixState,
    expand_streams,
)

__all__ = [
    "PRESETS",
    "AttentionResidual",
    "Coefficients",
    "HyperConnection",
    "HyperConnectionHead",
    "MixState",
    "expand_streams",
    "fp32_modules",
]
