"""Shared by the tests of the demo: a small library of texts, small models, the program."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from anabranch.demo import __main__ as program
from anabranch.demo import data, train
from anabranch.demo.model import ModelConfig

MODEL = ModelConfig(dim=16, layers=2, hidden=24, context=16)
CONFIG = train.TrainConfig(MODEL, steps=8, batch=2, evaluations=4, held_out=2)
SMALL = ["--dim=16", "--layers=2", "--context=16", "--batch=2", "--rounds=1", "--steps=8"]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small library: many files, so that some are held out; and what is no part of it."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "test").mkdir()
    (folder / "test" / "test_a.py").write_text("unwanted", encoding="utf-8")
    (folder / "notes.txt").write_text("unwanted", encoding="utf-8")
    for i in range(60):
        body = f"def function_{i}(x):\n    return x + {i}\n" * 4
        (folder / f"module_{i}.py").write_text(body, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def text(folder: Path) -> data.Text:
    return data.read_text(MODEL.context, folder)


def call(folder: Path, out: Path, *arguments: str) -> int:
    """Runs the program in this process; its exit code."""
    argv = ["demo", *SMALL, "--text", str(folder), "--out", str(out), *arguments]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", argv)
        return program.main()


@pytest.fixture
def demo(folder: Path, tmp_path: Path) -> Callable[..., int]:
    return functools.partial(call, folder, tmp_path)


@dataclass
class Finished:
    """A run that nothing interrupted: what it wrote and what it showed."""

    folder: Path
    shown: str

    def results(self) -> dict[str, Any]:
        return json.loads((self.folder / "results.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def finished(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    out = tmp_path_factory.mktemp("finished")
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        assert call(folder, out) == 0
    return Finished(out, shown.getvalue())


def never() -> bool:
    return False


def bits(trainer: train.Trainer) -> list[torch.Tensor]:
    """All that training changes."""
    parameters = [p for m in trainer.models.values() for p in m.state_dict().values()]
    slots = [
        value
        for optimizer in trainer.optimizers.values()
        for state in optimizer.state_dict()["state"].values()
        for value in state.values()
    ]
    return [*parameters, *slots]
