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

    Each has been called before. At least `rounds` rounds, then on until `budget` seconds are used;
    of calls so slow that the rounds take four times the budget fewer, but two. A short call is
    repeated within its turn, so that a turn takes about a millisecond and the clock costs nothing;
    beside a call that is five times as slow a fast one gets five turns a round.
    """
    times: dict[str, list[float]] = {}
    repeats = {}
    begin = time.perf_counter()
    for name, call in calls.items():
        once = _seconds(call, 1)
        repeats[name] = max(1, min(1000, int(1e-3 / max(once, 1e-7))))
        times[name] = [once]
    slowest = max(seconds for (seconds,) in times.values())
    turns = {name: 5 if slowest > max(5 * times[name][0], 0.05) else 1 for name in calls}
    for name, (once,) in times.items():
        times[name] = [once] if once > 0.05 else []  # a first round that is worth keeping
    done = 0
    while True:
        for name, call in calls.items():
            for _ in range(turns[name]):
                times[name].append(_seconds(call, repeats[name]))
        done += 1
        elapsed = time.perf_counter() - begin
        enough = rounds if elapsed < 4 * budget else 1
        if done >= 200 or (done >= enough and elapsed >= budget):
            return {name: Times(seconds) for name, seconds in times.items()}


def _seconds(call: Call, repeats: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - begin) / repeats


@dataclass
class Line:
    """seconds = start + slope * tokens, fitted with equal weight for equal relative errors."""

    start: float
    slope: float
    worst: float  # largest relative distance of a point from the line


def fit_line(points: list[tuple[int, float]]) -> Line:
    """The straight line through (tokens, seconds)."""
    weights = [1 / seconds**2 for _, seconds in points]
    total = sum(weights)
    x = sum(w * t for w, (t, _) in zip(weights, points, strict=True)) / total
    y = sum(w * s for w, (_, s) in zip(weights, points, strict=True)) / total
    over = sum(w * (t - x) * (s - y) for w, (t, s) in zip(weights, points, strict=True))
    under = sum(w * (t - x) ** 2 for w, (t, _) in zip(weights, points, strict=True))
    slope = over / under
    start = y - slope * x
    worst = max(abs(start + slope * t - s) / s for t, s in points)
    return Line(start, slope, worst)


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
