"""The comparison suite (bench/): what it computes, and that a run leaves all its results."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

BENCH = Path(__file__).parents[2] / "bench"


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_line_goes_through_points_that_lie_on_one() -> None:
    line = _module("measure").fit_line([(t, 1e-4 + 3e-6 * t) for t in (512, 1024, 8192, 65536)])
    assert line.start == pytest.approx(1e-4, rel=1e-6)
    assert line.slope == pytest.approx(3e-6, rel=1e-9)
    assert line.worst < 1e-9


def test_the_line_says_how_far_a_point_is_from_it() -> None:
    points = [(t, 3e-6 * t) for t in (512, 1024, 2048, 4096)]
    points[2] = (2048, 2 * points[2][1])
    assert 0.2 < _module("measure").fit_line(points).worst < 0.8


def test_slow_and_fast_calls_take_turns() -> None:
    order: list[str] = []
    calls = {name: (lambda name=name: order.append(name)) for name in ("a", "b")}
    times = _module("measure").side_by_side(calls, budget=0.05, rounds=3)
    assert set(times) == {"a", "b"}
    assert all(len(t.seconds) >= 3 for t in times.values())
    turns = [name for k, name in enumerate(order) if k == 0 or order[k - 1] != name]
    assert turns[-6:] == ["a", "b"] * 3


def test_contenders_compute_the_same() -> None:
    contenders = _module("contenders")
    for work in (
        contenders.Work("mhc sublayer", 3, 32),
        contenders.Work("mhc sublayer", 3, 32, 0, True),
        contenders.Work("block_attn_res", 3, 32, 4),
        contenders.Work("block_attn_res", 3, 32, 4, True),
    ):
        results = {name: call() for name, call in contenders.contenders(work, False).items()}
        ours = results.pop("anabranch")
        for name, result in results.items():
            # Modules and attn-res are given their inputs in another order: compare outputs only.
            if work.backward and name != "eager":
                continue
            for a, b in zip(
                *([r] if torch.is_tensor(r) else r for r in (ours, result)), strict=True
            ):
                torch.testing.assert_close(
                    a.float().squeeze(),
                    b.float().squeeze(),
                    atol=0.1,
                    rtol=0.05,
                    msg=lambda m, name=name: f"{name}: {m}",
                )


@pytest.mark.parametrize("extra", [[], ["--keep-memory"]], ids=["fresh", "kept"])
def test_a_run_leaves_results_table_and_plots(tmp_path: Path, extra: list[str]) -> None:
    command = [sys.executable, str(BENCH / "suite.py"), "--quick", "--no-compile"]
    command += ["--only", "block_attn_res", "--seconds", "0.05", "--rounds", "2"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    subprocess.run(
        [*command, "--out", str(tmp_path), *extra],
        check=True,
        env=environment,
        capture_output=True,
        timeout=600,
    )
    data = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [r["work"]["backward"] for r in data["results"]] == [False, True]
    for result in data["results"]:
        rows = {row["name"]: row for row in result["contenders"]}
        assert rows["anabranch"]["ratio"] == 1.0
        assert rows["eager"]["median"] > 0
        assert (rows["eager"]["peak_bytes"] is None) == bool(extra)
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| eager |" in table
    assert ("| - |" in table) == bool(extra)
    for name in ("ratios_block_attn_res.png", "threads.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_a_run_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH / "suite.py"), "--quick", "--no-compile", "--resume"]
    command += ["--seconds", "0.05", "--rounds", "2", "--out", str(tmp_path)]
    only = ["--only", "block_attn_res"]
    subprocess.run([*command, *only], check=True, capture_output=True, timeout=600)
    path = tmp_path / "results.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    kept = data["results"].pop(0)
    kept["contenders"][1]["median"] = 17.0
    data["results"] = [kept]
    path.write_text(json.dumps(data), encoding="utf-8")
    subprocess.run([*command, *only], check=True, capture_output=True, timeout=600)
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    assert results[0] == kept
    assert [r["work"]["backward"] for r in results] == [False, True]

    path.write_text(json.dumps(data | {"machine": "another"}), encoding="utf-8")
    run = subprocess.run([*command, *only], capture_output=True, text=True, timeout=600)
    assert run.returncode == 1
    assert "is of another" in run.stderr


def test_a_title_that_nothing_has_is_refused() -> None:
    run = subprocess.run(
        [sys.executable, str(BENCH / "suite.py"), "--only", "nothing"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 2
    assert "--only is 'nothing', expected part of a title" in run.stderr
