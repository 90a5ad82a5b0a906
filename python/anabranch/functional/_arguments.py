"""Arguments of the functions that no operator checks."""

from __future__ import annotations

from collections.abc import Sequence


def check_choice(op: str, argument: str, value: str, choices: Sequence[str]) -> None:
    """ValueError unless the value is one of the choices."""
    if value not in choices:
        names = ", ".join(repr(c) for c in choices)
        raise ValueError(f"{op}: {argument} is {value!r}, expected one of {names}")
