"""Streams and events of the CPU, where every call has finished when it returns."""

from __future__ import annotations

import itertools
import threading
import time
from types import TracebackType
from typing import Any

import torch

from anabranch.compat.npu._devices import require_npu

_numbers = itertools.count(1)
_state = threading.local()


class Stream:
    """A queue that is always empty."""

    def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
        require_npu("Stream", device)
        self.device = torch.device("cpu")
        self.priority = priority
        self.stream_id = next(_numbers)
        self._outer: list[Stream] = []

    def synchronize(self) -> None:
        """Everything is done already."""

    def query(self) -> bool:
        """Whether all work is done: yes."""
        return True

    def wait_event(self, event: Event) -> None:
        """Nothing to wait for."""

    def wait_stream(self, stream: Stream) -> None:
        """Nothing to wait for."""

    def record_event(self, event: Event | None = None) -> Event:
        """Records the event (a new one without) and returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._outer.append(current_stream())
        set_stream(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        set_stream(self._outer.pop())

    def __repr__(self) -> str:
        return f"<torch.npu.Stream device=cpu stream_id={self.stream_id}>"


class Event:
    """A moment of the host's clock."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self.enable_timing = enable_timing
        self._moment: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Takes the time."""
        self._moment = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """Whether the work before it is done: yes."""
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to the other."""
        if not (self.enable_timing and end_event.enable_timing):
            raise RuntimeError("Event.elapsed_time: enable_timing is False, expected True for both")
        if self._moment is None or end_event._moment is None:
            raise RuntimeError("Event.elapsed_time: an event is not recorded, expected both to be")
        return (end_event._moment - self._moment) * 1e3


_default = Stream()


def default_stream(device: Any = None) -> Stream:
    """The stream of a thread that chose none."""
    return _default


def current_stream(device: Any = None) -> Stream:
    """The stream that this thread chose last."""
    chosen: Stream = getattr(_state, "stream", _default)
    return chosen


def set_stream(stream: Stream) -> None:
    """Chooses this thread's stream."""
    _state.stream = stream


class stream:
    """``with torch.npu.stream(s):``; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self._stream = stream

    def __enter__(self) -> Stream | None:
        return None if self._stream is None else self._stream.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stream is not None:
            self._stream.__exit__(kind, error, trace)


NAMES = ("Event", "Stream", "current_stream", "default_stream", "set_stream", "stream")
