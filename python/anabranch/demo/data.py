"""Real text that every machine has: the sources of the Python standard library."""

from __future__ import annotations

import hashlib
import os
import sysconfig
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

# Not the library itself (installed packages), tests, and tables of characters and help texts.
_SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "encodings"}
_SKIPPED |= {"pydoc_data", "__pycache__"}
_HELD_OUT = 20  # one file of so many is not trained on


class TextError(Exception):
    """There is not enough text; the message says where it was looked for."""


@dataclass(frozen=True)
class Text:
    """Bytes to train on and bytes that are held out, whole files each."""

    train: Tensor  # [bytes] uint8
    held_out: Tensor  # [bytes] uint8
    files: int
    folder: Path
    digest: str  # of both: a checkpoint belongs to its text

    def batch(self, seed: int, step: int, size: int, context: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets ``[size, context]`` int64, a function of seed and step alone."""
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        last = self.train.numel() - context - 1
        starts = torch.randint(last + 1, (size,), generator=generator)
        return _windows(self.train, starts, context)

    def held_out_batch(self, size: int, context: int) -> tuple[Tensor, Tensor]:
        """The same windows every time, spread evenly over the held-out bytes."""
        last = self.held_out.numel() - context - 1
        starts = torch.arange(size) * last // max(size - 1, 1)
        return _windows(self.held_out, starts, context)


def _windows(data: Tensor, starts: Tensor, context: int) -> tuple[Tensor, Tensor]:
    rows = data[starts.unsqueeze(1) + torch.arange(context + 1)].long()
    return rows[:, :-1], rows[:, 1:]


def _sources(folder: Path) -> Iterator[Path]:
    """Python files under folder, in an order that no file system decides."""
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - _SKIPPED)
        yield from (Path(root, name) for name in sorted(files) if name.endswith(".py"))


def read_text(context: int, folder: Path | None = None) -> Text:
    """The text of all ``.py`` files under folder (default: the standard library).

    Which files are held out depends on their names alone. TextError if either part is shorter
    than a few contexts.
    """
    folder = folder or Path(sysconfig.get_paths()["stdlib"])
    parts: dict[bool, list[bytes]] = {True: [], False: []}
    for path in _sources(folder):
        name = path.relative_to(folder).as_posix()
        parts[zlib.crc32(name.encode()) % _HELD_OUT == 0].append(path.read_bytes())
    held_out, train = (b"".join(parts[part]) for part in (True, False))
    for what, data in (("train on", train), ("hold out", held_out)):
        if len(data) < 4 * context:
            raise TextError(
                f"{folder} has {len(data)} bytes of Python sources to {what}, expected at least "
                f"{4 * context} (another folder: --text FOLDER)"
            )
    return Text(
        train=torch.frombuffer(bytearray(train), dtype=torch.uint8),
        held_out=torch.frombuffer(bytearray(held_out), dtype=torch.uint8),
        files=sum(map(len, parts.values())),
        folder=folder,
        digest=hashlib.sha256(b"%d " % len(train) + train + held_out).hexdigest(),
    )
