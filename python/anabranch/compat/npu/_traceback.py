"""Tracebacks without this layer's own frames: they end in the program, as without the layer."""

from __future__ import annotations

import os
from types import TracebackType

_FOLDER = os.path.dirname(os.path.abspath(__file__))
# Frames of these carry calls through; those of other files are where an error was found.
_CARRIERS = tuple(
    os.path.join(_FOLDER, name) for name in ("__main__.py", "_devices.py", "_runner.py")
)


def _without_carriers(trace: TracebackType | None) -> TracebackType | None:
    kept = []
    while trace is not None:
        if trace.tb_frame.f_code.co_filename not in _CARRIERS:
            kept.append(trace)
        trace = trace.tb_next
    result: TracebackType | None = None
    for item in reversed(kept):
        result = TracebackType(result, item.tb_frame, item.tb_lasti, item.tb_lineno)
    return result


def clean(error: BaseException) -> None:
    """Does so in place, for the error and all that it came from."""
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        item = todo.pop()
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        item.__traceback__ = _without_carriers(item.__traceback__)
        todo += [item.__cause__, item.__context__]
        todo += getattr(item, "exceptions", ())
