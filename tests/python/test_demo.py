"""The training demo: its text, models, measurement, report, and what survives an interruption."""

# ruff: noqa: F811  (fixtures are imported, and named again as arguments)

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from anabranch.demo import data, train
from anabranch.demo.measure import Stopwatch, eager_twin
from anabranch.demo.model import make_model
from anabranch.demo.streams import KINDS
from demo_cases import CONFIG, MODEL, Finished, _one_thread, bits, demo, finished, folder, text  # noqa: F401

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
