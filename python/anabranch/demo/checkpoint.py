"""Checkpoints that are whole or absent, and say so when they are neither.

A file is one line, ``anabranch-demo 1 <sha256 of the rest>``, then what ``torch.save`` writes. It
appears under its name only when all of it is on the disk.
"""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import torch

_MAGIC = "anabranch-demo 1"


class CheckpointError(Exception):
    """A checkpoint that cannot be continued; the message says which, why, and what to do."""


def write_whole(path: Path, *parts: bytes | memoryview) -> None:
    """Writes a file so that a reader sees the old one or all of the new one, never less."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def save(path: Path, identity: dict[str, Any], state: dict[str, Any]) -> None:
    """Writes state, and identity, which a run must share to continue from it."""
    buffer = io.BytesIO()
    torch.save({"identity": identity, "state": state}, buffer)
    body = buffer.getbuffer()
    header = f"{_MAGIC} {hashlib.sha256(body).hexdigest()}\n".encode()
    write_whole(path, header, body)


def load(path: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The state of a checkpoint of this identity, None if there is no file.

    CheckpointError if it is damaged, of another version or another identity.
    """
    try:
        header, _, body = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    magic, _, digest = header.decode("ascii", "replace").rpartition(" ")
    if magic != _MAGIC:
        raise CheckpointError(
            f"{path} starts with {header[:32]!r}, expected {_MAGIC!r}: not a checkpoint of this "
            "demo, or of another version of it"
        )
    have = hashlib.sha256(body).hexdigest()
    if have != digest:
        raise CheckpointError(
            f"{path} is damaged: its {len(body)} bytes have SHA-256 {have[:12]}..., expected "
            f"{digest[:12]}..."
        )
    content = torch.load(io.BytesIO(body), weights_only=True)
    _compare(path, content["identity"], identity)
    state: dict[str, Any] = content["state"]
    return state


def _compare(path: Path, have: dict[str, Any], want: dict[str, Any]) -> None:
    names = sorted(have.keys() | want.keys())
    differences = [
        f"{name} {have.get(name, 'absent')}, expected {want.get(name, 'absent')}"
        for name in names
        if have.get(name) != want.get(name)
    ]
    if differences:
        raise CheckpointError(f"{path} is of another run: it has {'; '.join(differences)}")
