"""Times calls side by side, and the memory that a call needs on top of what is there."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

Call = Callable[[], object]


@dataclass
class Times:
    """Seconds of one contender's calls in one case."""

    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a fraction of the median."""
        if len(self.seconds) < 3:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return (high - low) / 2 / self.median


def side_by_side(calls: dict[str, Call], budget: float, rounds: int) -> dict[str, Times]:
    """Calls all of them in turn, so that noise of the machine hits every one alike.

    At least `rounds` rounds, then on until `budget` seconds are used. A short call is repeated
    within its turn, so that a turn takes about a millisecond and the clock costs nothing.
    """
    repeats = {}
    for name, call in calls.items():
        call()
        begin = time.perf_counter()
        call()
        once = time.perf_counter() - begin
        repeats[name] = max(1, min(1000, int(1e-3 / max(once, 1e-7))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    begin = time.perf_counter()
    done = 0
    while done < rounds or time.perf_counter() - begin < budget:
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.perf_counter() - start) / repeats[name])
        done += 1
        if done >= 200:
            break
    return {name: Times(seconds) for name, seconds in times.items()}


def available_bytes() -> int:
    """Memory that can be had without swapping."""
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no MemAvailable")


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def peak_bytes(call: Call) -> int:
    """The most memory that a call holds at once on top of what the process has before it.

    Resident pages, sampled every fifth of a millisecond while the call runs: outputs, what is kept
    for a backward, workspace. Pages that the allocator kept from earlier calls do not count, so
    call it before anything else with these sizes.
    """
    before = _resident_bytes()
    peak = before
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, _resident_bytes())
            time.sleep(2e-4)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        call()
    finally:
        done.set()
        watcher.join()
    return max(peak, _resident_bytes()) - before
