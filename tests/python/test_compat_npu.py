"""anabranch.compat.npu: programs run unchanged, as subprocesses, like plain python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import anabranch
from anabranch.compat import ai_infra

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "npu_programs"
EXAMPLE = HERE.parents[1] / "examples" / "npu" / "mhc_block.py"
RUNNER = ["-m", "anabranch.compat.npu"]


def python(*args: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, timeout=300, check=False, **kwargs
    )


def run_program(path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    result = python(*RUNNER, str(path), *args)
    assert result.returncode == 0, result.stderr
    return result


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Runs one of the programs and loads what it saved."""

    def run(name: str) -> dict[str, Any]:
        run_program(PROGRAMS / f"{name}.py", str(tmp_path / "saved.pt"))
        return torch.load(tmp_path / "saved.pt")

    return run


def close(have: Tensor, want: Tensor, tolerance: float) -> None:
    """Within tolerance of the largest value: results of sums have errors of that size."""
    assert have.shape == want.shape
    error = (have.double() - want.double()).abs().max().item()
    assert error <= tolerance * max(1.0, want.abs().max().item())


def double(*tensors: Tensor) -> list[Tensor]:
    return [t.double().requires_grad_() for t in tensors]


# ---- programs, against the double-precision path -------------------------------------------------


def test_eager_program(saved):
    r = saved("mhc_eager")
    x, phi, alpha, bias = double(r["x"], r["phi"], r["alpha"], r["bias"])
    h_in, h_post, h_res = anabranch.mhc_pre_sinkhorn(x, phi, alpha, bias, 4, 20, 1e-6, 1e-6)
    close(r["h_in"], h_in, 2**-8)
    close(r["h_post"], h_post, 1e-5)
    close(r["h_res"], h_res.flatten(-2), 1e-5)
    y = anabranch.mhc_post(x, h_res, torch.tanh(h_in), h_post)
    y.backward(r["grad"].double())
    close(r["y"], y, 2**-6)
    for name, tensor in zip(("x", "phi", "alpha", "bias"), (x, phi, alpha, bias), strict=True):
        close(r[f"grad_{name}"], tensor.grad, 2**-6)


class Sublayer(torch.nn.Module):
    """The network of mhc_graph.py in double precision."""

    def __init__(self, n: int, d: int) -> None:
        super().__init__()
        f = n * n + 2 * n
        self.phi = torch.nn.Parameter(torch.zeros(f, n * d))
        self.alpha = torch.nn.Parameter(torch.zeros(3))
        self.bias = torch.nn.Parameter(torch.zeros(f))
        self.mlp = torch.nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        args = (self.phi, self.alpha, self.bias)
        h_in, h_post, h_res = anabranch.mhc_pre_sinkhorn(x, *args, num_iters=5)
        return anabranch.mhc_post(x, h_res, torch.tanh(self.mlp(h_in)), h_post)


def test_training_in_graph_mode(saved):
    r = saved("mhc_graph")
    model = torch.nn.Sequential(Sublayer(4, 32), Sublayer(4, 32))
    model.load_state_dict(r["start"])
    model.double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for loss_there in r["losses"]:
        optimizer.zero_grad()
        output = model(r["data"].double())
        loss = torch.nn.functional.mse_loss(output, r["target"].double())
        loss.backward()
        optimizer.step()
        assert loss.item() == pytest.approx(loss_there, rel=1e-4)
    assert r["losses"][-1] < r["losses"][0]
    changed = 0
    for name, value in model.state_dict().items():
        close(r["end"][name], value, 1e-3)
        changed += not torch.equal(r["start"][name], r["end"][name])
    assert changed == len(r["start"])  # the start was a copy: training did not change it


def test_operators_of_torch_npu(saved):
    r = saved("torch_npu_operators")
    x, phi, alpha, bias, gamma = double(*(r[k] for k in ("x", "phi", "alpha", "bias", "gamma")))
    h_in, h_post, logits = anabranch.mhc_pre(x, phi, alpha, bias, gamma=gamma)
    h_res = anabranch.mhc_sinkhorn(logits, num_iters=7)
    y = anabranch.mhc_post(x, h_res, torch.tanh(h_in), h_post)
    y.square().sum().backward()
    for way in ("explicit", "autograd"):
        want = (y, *(t.grad for t in (x, phi, alpha, bias, gamma)))
        for have, expected in zip(r[way], want, strict=True):
            close(have, expected, 1e-5)


def test_block_attention_residuals(saved):
    r = saved("block_attention_residuals")
    *sources, weight, gamma = double(*r["blocks"], r["partial"], r["weight"], r["gamma"])
    blocks, partial = sources[:-1], sources[-1]
    h, rms, alpha = ai_infra.ai_infra_block_attn_res(
        blocks,
        weight,
        partial,
        rmsnorm_gamma=gamma,
        rms_out_flag=True,
        alpha_out_flag=True,
    )
    h.backward(r["grad_h"].double())
    close(r["h"], h, 2**-10)
    close(r["rms"], rms, 1e-5)
    close(r["alpha"], alpha, 1e-5)
    for have, tensor in zip(r["grads"], (*sources, weight, gamma), strict=True):
        close(have, tensor.grad, 2**-10)


def test_operators_in_graph_mode(saved):
    r = saved("graph_operators")
    p = {name: value.double().requires_grad_() for name, value in r["parameters"].items()}
    x, alpha = double(r["x"], r["alpha"])
    h_in, h_post, logits = anabranch.mhc_pre(x, p["phi"], alpha, p["bias"])
    h_res = anabranch.mhc_sinkhorn(logits, num_iters=4)
    y = anabranch.mhc_post(x, h_res, torch.sin(h_in), h_post)
    h = anabranch.block_attn_res(list(y.unbind(-2)), p["query"])
    h.square().mean().backward()
    want = (h, x.grad, *(value.grad for value in p.values()))
    for eager, graph, expected in zip(r["eager"], r["graph"], want, strict=True):
        close(eager, expected, 1e-5)
        assert torch.equal(eager, graph)


def test_runtime_program(saved):
    assert saved("runtime")["ok"]


@pytest.mark.slow
def test_example():
    out = run_program(EXAMPLE).stdout
    assert "eager and graph mode agree: True" in out


# ---- the runner is as plain python ---------------------------------------------------------------

INTROSPECTION = """
import sys
print(sys.argv, sys.path[0], __name__, __file__, __spec__, __package__, __doc__)
print(sorted(globals()), __builtins__.__name__, sys.modules["__main__"].__dict__ is globals())
print(type(__loader__).__name__, __loader__.name, __loader__.path)
class Thing:
    pass
import pickle
print(type(pickle.loads(pickle.dumps(Thing()))) is Thing, Thing.__module__)
sys.exit(7)
"""
FAILURE = """import sys
import torch

def outer(x):
    try:
        inner(x)
    except RuntimeError as error:
        raise ValueError(f"no {len(sys.argv)}") from error

def inner(x):
    return torch.matmul(x, torch.ones(5, 5))

outer(torch.ones(3, 4))
"""


SLOW = pytest.mark.slow
HOOK = "import sys\nsys.excepthook = lambda *e: print('hook', e[1], e[2].tb_lineno)\n1 / 0"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param(INTROSPECTION, 7, id="introspection"),
        pytest.param(FAILURE, 1, id="failure"),
        pytest.param("print(1)\nx = = 2\n", 1, marks=SLOW, id="syntax"),
        pytest.param("raise SystemExit('a message')", 1, marks=SLOW, id="message"),
        pytest.param("raise KeyboardInterrupt", -signal.SIGINT, marks=SLOW, id="interrupt"),
        pytest.param(HOOK, 1, marks=SLOW, id="hook"),
    ],
)
def test_same_as_plain_python(tmp_path: Path, text: str, code: int):
    program = tmp_path / "folder" / "program.py"
    program.parent.mkdir()
    program.write_text(text, encoding="utf-8")
    call = ["folder/program.py", "a", "--flag", "-m"]
    plain = python(*call, cwd=tmp_path)
    here = python(*RUNNER, *call, cwd=tmp_path)
    assert here.returncode == plain.returncode == code
    assert here.stdout == plain.stdout
    assert here.stderr == plain.stderr


@pytest.mark.slow
def test_command_line(tmp_path: Path):
    missing = python(*RUNNER, "absent.py", cwd=tmp_path)
    assert missing.returncode == 2
    path = str(tmp_path / "absent.py")
    assert missing.stderr.startswith(f"anabranch.compat.npu: can't open file {path!r}")
    usage = python(*RUNNER)
    assert usage.returncode == 2
    assert usage.stderr.startswith("usage: python -m anabranch.compat.npu program.py")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes(tmp_path: Path, method: str):
    """Children that import the program again need the layer for its first lines."""
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, torch, torch_npu\n"
        "def work(n):\n"
        "    return float(torch.ones(n, device='npu').sum())\n"
        "if __name__ == '__main__':\n"
        f"    with multiprocessing.get_context('{method}').Pool(1) as pool:\n"
        "        print(pool.map(work, [2, 3]))\n",
        encoding="utf-8",
    )
    assert run_program(program).stdout == "[2.0, 3.0]\n"


def test_the_runner_says_that_real_packages_go_first(tmp_path: Path):
    (tmp_path / "pypto.py").write_text("ai_infra_block_attn_res = 'real'\n", encoding="utf-8")
    program = tmp_path / "program.py"
    program.write_text("import pypto\nprint(pypto.ai_infra_block_attn_res)\n", encoding="utf-8")
    result = run_program(program)
    assert result.stdout == "real\n"
    where = tmp_path / "pypto.py"
    note = f"anabranch.compat.npu: installed packages go first: pypto ({where})\n"
    assert result.stderr == note


def test_the_environment_is_not_used():
    """Only the runner and install() switch the layer on."""
    environment = {**os.environ, "ANABRANCH_NPU_PROGRAM": "/nothing"}
    code = "import anabranch, anabranch.compat.npu as n; print(n.is_installed())"
    assert python("-c", code, env=environment).stdout == "False\n"
