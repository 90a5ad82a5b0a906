"""``torch.npu``'s memory functions: of the process, since a CPU has no memory of its own.

"Allocated" and "reserved" are the resident memory of the process, their maxima its peak.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

_STATUS = Path("/proc/self/status")
_PEAK_RESET = Path("/proc/self/clear_refs")


def _resident(peak: bool) -> int:
    """Bytes, from Linux; elsewhere the peak since the process began is all there is."""
    field = "VmHWM:" if peak else "VmRSS:"
    if _STATUS.exists():
        for line in _STATUS.read_text(encoding="ascii").splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def memory_allocated(device: Any = None) -> int:
    """Resident memory of the process in bytes."""
    return _resident(peak=False)


def max_memory_allocated(device: Any = None) -> int:
    """Peak resident memory of the process in bytes, since reset_peak_memory_stats on Linux."""
    return max(_resident(peak=True), _resident(peak=False))


def reset_peak_memory_stats(device: Any = None) -> None:
    """Starts the peak afresh where the kernel allows it (Linux, write access to clear_refs)."""
    if os.access(_PEAK_RESET, os.W_OK):
        _PEAK_RESET.write_text("5", encoding="ascii")


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(available, total) bytes of this machine."""
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def memory_stats(device: Any = None) -> dict[str, int]:
    """The two numbers that are known, under the names of an allocator's statistics."""
    numbers = {"current": memory_allocated(), "peak": max_memory_allocated()}
    return {
        f"{kind}_bytes.all.{name}": value
        for kind in ("allocated", "reserved")
        for name, value in numbers.items()
    }


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The same as a line of text."""
    now, peak = memory_allocated() / 2**20, max_memory_allocated() / 2**20
    return f"npu:0 is the CPU: {now:.1f} MiB resident, peak {peak:.1f} MiB"


def empty_cache() -> None:
    """Nothing is cached."""


memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated
reset_max_memory_allocated = reset_peak_memory_stats

FUNCTIONS = (
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
)
