"""The demo stopped and continued: signals, checkpoints, whole files."""

# ruff: noqa: F811  (fixtures are imported, and named again as arguments)

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from anabranch.demo import checkpoint, data, train
from anabranch.demo.streams import KINDS
from demo_cases import (  # noqa: F401
    CONFIG,
    SMALL,
    Finished,
    _one_thread,
    bits,
    demo,
    finished,
    folder,
    never,
    text,
)

# --- training, interrupted or not ---------------------------------------------------------------


@pytest.mark.parametrize("stops", [[3], [1, 5, 7]])
def test_an_interrupted_run_continues_with_the_same_bits(
    stops: list[int], text: data.Text, tmp_path: Path
):
    whole = train.Trainer(CONFIG, text, tmp_path / "whole.bin")
    assert whole.run(never)
    path = tmp_path / "parts.bin"
    for stop in stops:
        part = train.Trainer(CONFIG, text, path)
        assert not part.run(lambda trainer=part, stop=stop: trainer.done == stop)
        assert part.done == stop
    rest = train.Trainer(CONFIG, text, path)
    assert rest.done == stops[-1]
    assert rest.run(never)
    assert rest.done == 8
    assert rest.history == whole.history
    have, want = bits(rest), bits(whole)
    assert len(have) == len(want)
    assert all(torch.equal(a, b) for a, b in zip(have, want, strict=True))
    # Not by doing nothing:
    new = train.Trainer(CONFIG, text, tmp_path / "new.bin")
    assert not all(torch.equal(a, b) for a, b in zip(bits(new), want, strict=False))


def test_it_learns(text: data.Text, tmp_path: Path):
    trainer = train.Trainer(CONFIG, text, tmp_path / "c.bin")
    trainer.run(never)
    for kind in KINDS:
        losses = trainer.history.held_out[kind]
        assert [step for step, _ in losses] == [0, 2, 4, 6, 8]
        assert len(trainer.history.train[kind]) == 8
        assert losses[-1][1] < losses[0][1] - 0.05


def test_checkpoints_are_written_on_the_way(text: data.Text, tmp_path: Path):
    path = tmp_path / "c.bin"
    trainer = train.Trainer(CONFIG, text, path)
    seen: list[bool] = []

    def stopped() -> bool:
        seen.append(path.exists())
        return False

    trainer.run(stopped, save_seconds=0.0)
    assert seen == [False, *[True] * 6]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_after_a_step_and_lose_nothing(
    number: signal.Signals,
    demo: Callable[..., int],
    finished: Finished,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    step = train.Trainer._step

    def step_and_signal(self: train.Trainer, bar: object) -> None:
        step(self, bar)
        if self.done == 5:
            os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr(train.Trainer, "_step", step_and_signal)
        assert demo() == 128 + number
    assert f"{number.name}: stopped after step 5" in capsys.readouterr().out
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert not (tmp_path / "report.html").exists()
    assert demo() == 0
    assert "continues after step 5 of 8" in capsys.readouterr().out
    interrupted = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    whole = finished.results()
    for key in ("history", "h_res", "block_attention"):
        assert interrupted[key] == whole[key], key


def test_a_second_signal_is_not_held_back():
    before = signal.getsignal(signal.SIGINT)
    with train.Interrupt() as interrupt:
        assert not interrupt
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt
        assert signal.getsignal(signal.SIGINT) is before


def test_the_program_stops_for_sigterm(folder: Path, tmp_path: Path):
    arguments = [
        *SMALL[:-1],
        "--steps=1000000",
        "--threads=1",
        "--text",
        str(folder),
        "--out",
        str(tmp_path),
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "anabranch.demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert "text: 60 files" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        try:
            rest, _ = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert "SIGTERM: stopped after step" in rest
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.bin"]


# --- checkpoints that cannot be continued -------------------------------------------------------


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip, "is damaged: its .* bytes have SHA-256"),
        (lambda content: content[: len(content) // 2], "is damaged"),
        (lambda _: b"", "not a checkpoint of this demo"),
        (lambda _: b"\xff\x00 something else\n" * 9, "not a checkpoint of this demo"),
    ],
    ids=["flipped", "cut", "empty", "foreign"],
)
def test_a_damaged_checkpoint_is_named_and_kept(
    damage: Callable[[bytes], bytes],
    message: str,
    demo: Callable[..., int],
    text: data.Text,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    path = tmp_path / "checkpoint.bin"
    checkpoint.save(path, {}, {"done": 3})
    path.write_bytes(damage(path.read_bytes()))
    before = path.read_bytes()
    assert demo() == 2
    error = capsys.readouterr().err
    assert re.search(f"demo: {re.escape(str(path))} .*{message}", error)
    assert "--fresh (make demo FRESH=1)" in error
    assert path.read_bytes() == before


def test_another_configuration_is_refused(
    demo: Callable[..., int],
    finished: Finished,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    shutil.copy(finished.folder / "checkpoint.bin", tmp_path)
    before = (tmp_path / "checkpoint.bin").read_bytes()
    capsys.readouterr()
    assert demo("--steps=9", "--seed=2") == 2
    assert "is of another run: it has seed 1, expected 2; steps 8, expected 9" in (
        capsys.readouterr().err
    )
    assert (tmp_path / "checkpoint.bin").read_bytes() == before
    assert demo("--steps=1", "--seed=2", "--fresh") == 0


def test_a_file_is_whole_or_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "file"
    checkpoint.write_whole(path, b"old")

    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        checkpoint.write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
