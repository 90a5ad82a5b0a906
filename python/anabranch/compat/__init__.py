"""Layers that let programs written for other libraries run here; none is active unasked."""

from __future__ import annotations

import importlib


def __getattr__(name: str) -> object:
    """Sub-modules that are imported when they are first used."""
    if name in ("ai_infra", "npu"):
        return importlib.import_module(f"anabranch.compat.{name}")
    raise AttributeError(f"module 'anabranch.compat' has no attribute {name!r}")
