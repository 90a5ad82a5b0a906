"""``torch.npu.amp``: automatic mixed precision on the CPU."""

from __future__ import annotations

from typing import Any

import torch


class autocast(torch.amp.autocast_mode.autocast):
    """``torch.autocast("npu", dtype)``; the default dtype of an NPU is float16."""

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype = torch.float16,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("npu")``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu", *args, **kwargs)
