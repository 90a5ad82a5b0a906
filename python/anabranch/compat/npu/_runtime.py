"""``torch.npu`` and ``torch_npu.npu``: one device, which is the CPU."""

from __future__ import annotations

import os
from types import SimpleNamespace, TracebackType
from typing import Any

import torch
from torch import Tensor

from anabranch.compat.npu import _memory
from anabranch.compat.npu._devices import require_npu

# What the machine may be taken for: the names that the aclnn-compatible library uses, too.
_SOC_NAMES = {
    "native": "Ascend950PR",
    "950": "Ascend950PR",
    "a2": "Ascend910B1",
    "a3": "Ascend910_9392",
}


def is_available() -> bool:
    """True: the CPU stands in."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> int:
    """0."""
    return 0


def set_device(device: Any) -> None:
    """Accepts 0, "npu", "npu:0" and devices; RuntimeError for another index."""
    require_npu("set_device", device)


def synchronize(device: Any = None) -> None:
    """Every call has finished when it returns."""
    require_npu("synchronize", device)


def get_device_name(device: Any = None) -> str:
    """The name of ``ANABRANCH_SOC`` (native, 950, a2, a3), as from the C library."""
    require_npu("get_device_name", device)
    profile = os.environ.get("ANABRANCH_SOC", "native")
    if profile not in _SOC_NAMES:
        known = ", ".join(_SOC_NAMES)
        raise RuntimeError(
            f"get_device_name: ANABRANCH_SOC is {profile!r}, expected one of {known}"
        )
    return _SOC_NAMES[profile]


def get_device_properties(device: Any = None) -> SimpleNamespace:
    """Name and total memory of the machine."""
    return SimpleNamespace(name=get_device_name(device), total_memory=_memory.mem_get_info()[1])


class device:
    """``with torch.npu.device(0):`` chooses the only device there is."""

    def __init__(self, device: Any) -> None:
        require_npu("device", device)
        self.idx = 0

    def __enter__(self) -> device:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


def init() -> None:
    """Nothing to initialise."""


def is_initialized() -> bool:
    """True."""
    return True


def is_bf16_supported() -> bool:
    """True."""
    return True


def manual_seed(seed: int) -> None:
    """Seeds the CPU's generator."""
    torch.default_generator.manual_seed(seed)


def seed() -> None:
    """Seeds the CPU's generator with a random number."""
    torch.default_generator.seed()


def initial_seed() -> int:
    """The seed of the CPU's generator."""
    return torch.default_generator.initial_seed()


def get_rng_state(device: Any = "npu") -> Tensor:
    """The state of the CPU's generator."""
    require_npu("get_rng_state", device)
    return torch.default_generator.get_state()


def set_rng_state(new_state: Tensor, device: Any = "npu") -> None:
    """Sets the state of the CPU's generator."""
    require_npu("set_rng_state", device)
    torch.default_generator.set_state(new_state)


def set_compile_mode(jit_compile: bool | None = None) -> None:
    """No effect: kernels are compiled ahead."""


def set_option(options: dict[str, Any]) -> None:
    """No effect: options of the NPU's runtime."""


def options() -> dict[str, SimpleNamespace]:
    """``torch.npu.config``, ``matmul`` and ``conv``: keep what is set, of no effect."""
    return {
        "config": SimpleNamespace(allow_internal_format=False),
        "matmul": SimpleNamespace(allow_hf32=False),
        "conv": SimpleNamespace(allow_hf32=False),
    }


def set_deterministic_level(level: int) -> None:
    """Any level (0, 1 or 2) holds: every operator is deterministic always."""
    if level not in (0, 1, 2):
        raise ValueError(f"set_deterministic_level: level is {level}, expected 0, 1 or 2")


def ipc_collect() -> None:
    """Nothing is shared between processes that would have to be collected."""


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """False: there is one device."""
    require_npu("can_device_access_peer", device)
    return False


def utilization(device: Any = None) -> int:
    """0: nothing runs between calls."""
    require_npu("utilization", device)
    return 0


OutOfMemoryError = torch.OutOfMemoryError

manual_seed_all = manual_seed
seed_all = seed

NAMES = (
    "OutOfMemoryError",
    "can_device_access_peer",
    "current_device",
    "device",
    "device_count",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "ipc_collect",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_compile_mode",
    "set_deterministic_level",
    "set_device",
    "set_option",
    "set_rng_state",
    "synchronize",
    "utilization",
)
