"""``torch.npu.NPUGraph``: calls that are recorded once and run again on the same memory."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only


class _Recorder(TorchDispatchMode):
    """Runs every operator call and keeps it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result


def _refresh(old: Any, new: Any) -> None:
    """Writes results of a replay to where the capture had them."""
    if isinstance(old, Tensor):
        if old.numel() and old.data_ptr() != new.data_ptr():
            old.copy_(new)
    elif isinstance(old, (list, tuple)):
        for a, b in zip(old, new, strict=True):
            _refresh(a, b)


class NPUGraph:
    """Capture runs the calls; :meth:`replay` runs them again, reading inputs from and writing
    results to the tensors of the capture."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = []
        self._recorder: _Recorder | None = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Starts recording in this thread."""
        if _capturing:
            raise RuntimeError("NPUGraph.capture_begin: a capture is running, expected none")
        self._recorder = _Recorder()
        self._recorder.__enter__()  # type: ignore[no-untyped-call]
        _capturing.append(self)

    def capture_end(self) -> None:
        """Ends recording."""
        if self._recorder is None:
            raise RuntimeError("NPUGraph.capture_end: no capture is running, expected one")
        self._recorder.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        _capturing.remove(self)
        detach = tree_map_only(Tensor, lambda t: t.detach(), self._recorder.calls)
        self._calls, self._recorder = detach, None

    def replay(self) -> None:
        """Runs the recorded calls on what their tensors hold now."""
        with torch.no_grad():
            for func, args, kwargs, result in self._calls:
                _refresh(result, func(*args, **kwargs))

    def reset(self) -> None:
        """Forgets the calls."""
        self._calls = []

    def pool(self) -> tuple[int, int]:
        """A handle that other graphs may be given; memory is not shared here."""
        return (0, 0)


class graph:
    """``with torch.npu.graph(g):`` captures into g."""

    def __init__(
        self,
        npu_graph: NPUGraph,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        **options: Any,
    ) -> None:
        self._graph = npu_graph

    def __enter__(self) -> None:
        self._graph.capture_begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._graph.capture_end()


_capturing: list[NPUGraph] = []


def is_current_stream_capturing() -> bool:
    """Whether a graph is being captured."""
    return bool(_capturing)


def graph_pool_handle() -> tuple[int, int]:
    """A handle for ``pool=``; memory is not shared here."""
    return (0, 0)


NAMES = ("NPUGraph", "graph", "graph_pool_handle", "is_current_stream_capturing")
