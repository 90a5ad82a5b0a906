"""Changes to other modules that can be taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_ABSENT = object()


class Patches:
    """Sets attributes and remembers what was there; undo() restores it, last change first."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self.active = True

    def set(self, owner: Any, name: str, value: Any) -> None:
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, value)

        def restore() -> None:
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

        self._undo.append(restore)

    def on_undo(self, action: Callable[[], None]) -> None:
        self._undo.append(action)

    def undo(self) -> None:
        self.active = False
        while self._undo:
            self._undo.pop()()
