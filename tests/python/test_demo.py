"""The training demo: its text, models, measurement, report, and what survives an interruption."""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from anabranch.demo import __main__ as program
from anabranch.demo import checkpoint, data, train
from anabranch.demo.measure import Stopwatch, eager_twin
from anabranch.demo.model import ModelConfig, make_model
from anabranch.demo.streams import KINDS

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


# --- the text -----------------------------------------------------------------------------------


def test_text_is_whole_files_some_held_out(text: data.Text):
    assert text.files == 60
    train_bytes, held_out = (bytes(t.tolist()) for t in (text.train, text.held_out))
    assert b"unwanted" not in train_bytes + held_out
    numbers = [set(re.findall(rb"function_(\d+)", part)) for part in (train_bytes, held_out)]
    assert numbers[0].isdisjoint(numbers[1])
    assert len(numbers[0] | numbers[1]) == 60


def test_a_batch_depends_on_seed_and_step_alone(text: data.Text):
    first = text.batch(1, 5, 4, 16)
    torch.manual_seed(99)
    text.batch(1, 6, 4, 16)
    again = text.batch(1, 5, 4, 16)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert torch.equal(first[0][:, 1:], first[1][:, :-1])  # targets are the next bytes
    assert not torch.equal(first[0], text.batch(1, 6, 4, 16)[0])
    assert not torch.equal(first[0], text.batch(2, 5, 4, 16)[0])


def test_the_standard_library_is_there():
    text = data.read_text(256)
    assert text.train.numel() > 2_000_000
    assert text.held_out.numel() > 50_000


def test_too_little_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "a.py").write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(data.TextError, match=r"bytes of Python sources .*, expected at least 64"):
        data.read_text(16, tmp_path)


# --- the models ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_no_position_sees_the_future(kind: str):
    model = make_model(kind, MODEL, 0)
    tokens = torch.arange(16).unsqueeze(0)
    later = tokens.clone()
    later[0, 10:] += 100
    have, want = model(later), model(tokens)
    torch.testing.assert_close(have[:, :10], want[:, :10])
    assert not torch.allclose(have[:, 10:], want[:, 10:])


def test_models_differ_in_their_stream_alone():
    plain, *others = (make_model(kind, MODEL, 3) for kind in KINDS)
    for other in others:
        for name, parameter in plain.named_parameters():
            assert torch.equal(parameter, other.get_parameter(name)), name
        extra = other.state_dict().keys() - plain.state_dict().keys()
        assert extra
        assert all(name.startswith("stream.") for name in extra)


def test_the_order_of_positions_matters():
    """RoPE: the same bytes in another order give other logits at the end."""
    model = make_model("plain", MODEL, 0)
    tokens = torch.tensor([[1, 2, 3, 4]])
    swapped = torch.tensor([[2, 1, 3, 4]])
    assert not torch.allclose(model(tokens)[:, -1], model(swapped)[:, -1])


def gradients(
    model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]
) -> dict[str, object]:
    model.loss(*batch).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("kind", KINDS)
def test_eager_and_timed_models_compute_the_same(kind: str, text: data.Text, tmp_path: Path):
    trainer = train.Trainer(CONFIG, text, tmp_path / "checkpoint.bin")
    for step in range(3):  # off the initial symmetry
        batch = text.batch(0, step, 2, 16)
        trainer.optimizers[kind].param_groups[-1]["lr"] = 0.1
        train.train_step(trainer.models[kind], trainer.optimizers[kind], batch)
    model = trainer.models[kind]
    eager, timed = (eager_twin(model, trainer, kind), make_model(kind, MODEL, 0))
    timed.load_state_dict(model.state_dict())
    timed.stream.stopwatch = stopwatch = Stopwatch()
    want = gradients(model, batch)
    for other in (eager, timed):
        for name, have in gradients(other, batch).items():
            torch.testing.assert_close(have, want[name], rtol=1e-3, atol=1e-5, msg=name)
    assert stopwatch.seconds > 0


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dim=18"], "dim is 18, expected an even multiple of 4"),
        (["--context=100000"], "bytes of Python sources to train on, expected at least 400000"),
    ],
)
def test_wrong_options_get_one_line(
    arguments: list[str], message: str, demo: Callable[..., int], capsys: pytest.CaptureFixture[str]
):
    assert demo(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


# --- the report ---------------------------------------------------------------------------------


def test_the_report(finished: Finished):
    shown, results = finished.shown, finished.results()
    path = finished.folder / "report.html"
    page = path.read_text(encoding="utf-8")

    # The terminal names the report and has the page's table.
    assert f"report: {path}" in shown
    cells = [re.findall(r"<t[dh]>(.*?)</t[dh]>", row) for row in re.findall("<tr>(.*?)</tr>", page)]
    rows = [row for row in cells if len(row) == 4]
    assert rows[0] == ["", *KINDS.values()]
    lines = [re.split(r"\s{2,}", line.strip()) for line in shown.splitlines()]
    for name, *values in rows[1:]:
        assert [name.strip(), *values] in lines
    assert len(rows) == 12

    # Its numbers are those of the results.
    table = {row[0]: row[1:] for row in rows}
    assert table["held-out loss, bits/byte"] == [
        f"{results['history']['held_out'][kind][-1][1]:.3f}" for kind in KINDS
    ]
    timings = {(t["kind"], t["eager"]): t for t in results["timings"]}
    assert table["  share, eager"][1:] == [
        f"{timings[kind, True]['share']:.1%}" for kind in ("mhc", "attn_res")
    ]

    # One file: every picture is inside, nothing is fetched.
    sources = re.findall(r'src="([^"]*)"', page)
    assert len(sources) == 4
    for source in sources:
        kind, _, body = source.partition(",")
        assert kind == "data:image/svg+xml;base64"
        assert base64.b64decode(body).lstrip().startswith(b"<?xml")
    assert not re.search(r"href=|url\(|<script|https?://", page)
    assert re.findall('figure id="([a-z]*)"', page) == ["loss", "time", "mixing", "attention"]


def test_results_make_sense(finished: Finished):
    results = finished.results()
    matrices = torch.tensor(results["h_res"])
    assert matrices.shape == (4, 4, 4)
    for dim in (1, 2):
        torch.testing.assert_close(matrices.sum(dim), torch.ones(4, 4), rtol=0, atol=1e-3)
    attention = results["block_attention"]
    assert [len(row["blocks"]) for row in attention] == [1, 1, 2, 2, 3]
    assert [row["unfinished"] is None for row in attention] == [True, False, True, False, True]
    for row in attention:
        assert sum(row["blocks"]) + (row["unfinished"] or 0.0) == pytest.approx(1.0, abs=1e-3)
    timings = {(t["kind"], t["eager"]): t for t in results["timings"]}
    assert len(timings) == 5
    for timing in timings.values():
        assert 0 < timing["residual"] < timing["step"]
    for kind in ("mhc", "attn_res"):  # the same model: the loss says so
        assert timings[kind, True]["loss"] == pytest.approx(timings[kind, False]["loss"], abs=1e-4)
    assert results["configuration"]["steps"] == 8


def test_a_finished_run_is_reported_again_without_training(
    demo: Callable[..., int],
    finished: Finished,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    shutil.copy(finished.folder / "checkpoint.bin", tmp_path)

    def step(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(train.Trainer, "_step", step)
    assert demo() == 0
    assert (tmp_path / "report.html").exists()
    again = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert again["history"] == finished.results()["history"]
