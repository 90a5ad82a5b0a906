"""anabranch.compat.npu: programs run unchanged as subprocesses, and what install() changes."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import _get_current_function_mode_stack

import anabranch
from anabranch.compat import npu
from anabranch.compat.npu import _memory, _modules, _runtime, _streams

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


@pytest.fixture
def layer() -> Iterator[None]:
    npu.install()
    yield
    npu.uninstall()


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
    close(r["h_res"], h_res, 1e-5)
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
    h, rms, alpha = anabranch.ai_infra_block_attn_res(
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


# ---- off unless asked for, and off again ---------------------------------------------------------


def test_nothing_without_install():
    assert not npu.is_installed()
    for name in _modules.TOP_LEVEL:
        assert importlib.util.find_spec(name) is None
    with pytest.raises(RuntimeError, match="device string: npu"):
        torch.zeros(1, device="npu")
    assert not hasattr(torch, "npu")
    assert not hasattr(Tensor, "npu")


def changed_things() -> list[Any]:
    """All that install() touches."""
    owners = (
        torch,
        Tensor,
        torch.nn.Module,
        torch.nn.utils.rnn.PackedSequence,
        torch.amp.autocast_mode.autocast,
        torch.amp.GradScaler,
        threading.Thread,
        torch._dynamo.variables.UserDefinedClassVariable,
        builtins,
    )
    state: list[Any] = [{k: id(v) for k, v in vars(owner).items()} for owner in owners]
    state += [list(sys.meta_path), list(torch.serialization._package_registry)]
    state += [_get_current_function_mode_stack()]
    state += [{m for m in sys.modules if re.match("torch_npu|torch.npu|torchair|pypto|cann_", m)}]
    return state


def test_uninstall_restores_everything():
    torch.compile(lambda x: x, backend="eager")(torch.ones(1))  # loads what it loads once
    before = changed_things()
    npu.install()
    npu.install()
    for name in (*_modules._CONTENTS, *_modules._ALIASES):
        module = importlib.import_module(name)
        assert sys.modules[name] is module and module.__doc__.endswith("anabranch.compat.npu.")
    import pypto

    assert pypto.ai_infra_block_attn_res is anabranch.ai_infra_block_attn_res
    assert changed_things() != before
    with torch.device("cpu"):  # another mode on the stack must not be in the way
        npu.uninstall()
        assert len(_get_current_function_mode_stack()) == 1
    npu.uninstall()
    assert changed_things() == before
    test_nothing_without_install()


def test_uninstall_belongs_to_the_thread_that_installed(layer):
    errors = []

    def work() -> None:
        try:
            npu.uninstall()
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert errors == ["uninstall: called in another thread, expected the one that installed"]


@pytest.fixture
def real_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Puts packages of these names on the path, as if the real ones were installed."""

    def make(*names: str) -> None:
        for name in names:
            (tmp_path / f"{name}.py").write_text("REAL = True\n", encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))

    yield make
    npu.uninstall()
    for name in _modules.TOP_LEVEL:
        sys.modules.pop(name, None)


def test_real_packages_go_first(real_modules):
    real_modules("pypto")
    with pytest.warns(UserWarning, match=r"installed packages go first: pypto \(.*pypto\.py\)$"):
        npu.install()
    import pypto
    import torch_npu

    assert pypto.REAL
    assert torch_npu.npu.device_count() == 1
    with pytest.raises(ModuleNotFoundError, match=r"'pypto' is not a package"):
        importlib.import_module("pypto.frontend")


def test_devices_of_a_real_torch_npu_are_left_alone(real_modules):
    real_modules("torch_npu")
    with pytest.warns(UserWarning, match="devices are left to torch_npu"):
        npu.install()
    import torch_npu
    import torchair

    assert torch_npu.REAL
    assert callable(torchair.get_npu_backend())
    assert not hasattr(torch, "npu")
    assert importlib.util.find_spec("torch.npu") is None
    with pytest.raises(RuntimeError, match="device string: npu"):
        torch.zeros(1, device="npu")


def test_the_runner_says_that_real_packages_go_first(tmp_path: Path):
    (tmp_path / "pypto.py").write_text("ai_infra_block_attn_res = 'real'\n", encoding="utf-8")
    program = tmp_path / "program.py"
    program.write_text("import pypto\nprint(pypto.ai_infra_block_attn_res)\n", encoding="utf-8")
    result = run_program(program)
    assert result.stdout == "real\n"
    where = tmp_path / "pypto.py"
    note = f"anabranch.compat.npu: installed packages go first: pypto ({where})\n"
    assert result.stderr == note


# ---- the device ----------------------------------------------------------------------------------


def test_names_of_the_device(layer):
    for device in ("npu", "npu:0", 0, torch.device("npu"), torch.device("npu", 0)):
        assert torch.zeros(1, device=device).device == torch.device("cpu")
        assert torch.ones(1).to(device).npu().is_npu
    assert torch.device(type="npu", index=0) == torch.device("cpu")
    assert torch.device("cpu", 0) == torch.device("cpu:0")
    assert torch.zeros(1).to("meta").is_meta
    assert torch.einsum("npu->n", torch.ones(2, 1, 1)).tolist() == [1, 1]
    for call in (
        lambda: torch.zeros(1, device="npu:1"),
        lambda: torch.device("npu", 3),
        lambda: torch.ones(1).npu(2),
        lambda: torch.npu.set_device(1),
        lambda: torch.nn.Linear(1, 1).npu(1),
    ):
        with pytest.raises(RuntimeError, match=r"^npu: device.* expected .*0.* \(.*the CPU\)$"):
            call()
    with pytest.raises(RuntimeError, match="set_device: device is 'meta', expected 0, 'npu'"):
        torch.npu.set_device("meta")


def test_moves_are_copies(layer):
    x = torch.ones(3)
    moves = (
        lambda t: t.npu(),
        lambda t: t.cpu(),
        lambda t: t.to("npu"),
        lambda t: t.to("cpu", torch.float32),
        lambda t: t.to("npu", torch.float32, False, False),
        lambda t: t.to(device="npu:0", non_blocking=True),
        lambda t: t.to(torch.device("npu")),
        lambda t: torch.as_tensor(t, device="npu"),
        lambda t: t.pin_memory(),
    )
    for move in moves:
        move(x).add_(1)
    assert x.tolist() == [1, 1, 1]
    assert x.to(torch.float32) is x
    assert x.to(x) is x


def test_moves_of_parameters(layer):
    leaf = torch.ones(3, device="npu", requires_grad=True)
    assert leaf.npu() is leaf  # an optimizer may get it
    assert leaf.to("npu:0") is leaf
    assert not leaf.cpu().is_leaf
    with torch.no_grad():
        assert leaf.npu() is not leaf
    model = torch.nn.Linear(2, 2)
    weight, values = model.weight, model.weight.data
    assert model.npu() is model and model.to("npu:0") is model
    assert model.weight is weight and weight.data.data_ptr() != values.data_ptr()
    model.npu().weight.data.zero_()
    assert values.abs().sum() > 0


def test_gradients_pass_moves(layer):
    x = torch.ones(3, requires_grad=True)
    (x * 2).npu().to("cpu").to("npu:0").cpu().sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_generators_precision_and_files(layer, tmp_path: Path):
    generator = torch.Generator(device="npu").manual_seed(3)
    assert isinstance(generator, torch.Generator)
    assert isinstance(torch.default_generator, torch.Generator)
    assert pickle.loads(pickle.dumps(generator)).initial_seed() == 3
    want = torch.randn(2, generator=torch.Generator().manual_seed(3))
    assert torch.equal(torch.randn(2, generator=generator, device="npu"), want)
    with torch.autocast("npu"):
        assert (torch.ones(1, 1) @ torch.ones(1, 1)).dtype == torch.float16
    with torch.npu.amp.autocast(dtype=torch.bfloat16):
        assert (torch.ones(1, 1) @ torch.ones(1, 1)).dtype == torch.bfloat16
    assert torch.amp.GradScaler("npu").scale(torch.ones(1)) > 1
    assert torch.get_device_module("npu") is torch.npu
    assert torch.get_device_module("cpu") is torch.cpu

    # A file written on an NPU: its storages are tagged npu:N, whatever N.
    entry = (1, lambda storage: "npu:3", lambda storage, location: None)
    torch.serialization.register_package(*entry)
    try:
        torch.save(torch.ones(2), tmp_path / "file.pt")
    finally:
        torch.serialization._package_registry.remove(entry)
    for where in (None, "npu", torch.device("npu:0"), {"npu:3": "npu:0"}, "cpu"):
        assert torch.load(tmp_path / "file.pt", map_location=where).tolist() == [1, 1]


def test_compiled_code_names_devices(layer):
    import torchair

    def function(x: Tensor) -> Tensor:
        y = x.npu() + torch.ones(3, device=torch.device("npu", 0)).to("npu:0")
        with torch.autocast("npu", dtype=torch.bfloat16):
            z = y.view(1, 3) @ y.view(3, 1)
        return z.cpu() if x.is_npu else y

    x = torch.arange(3.0).requires_grad_()
    want = function(x)
    for backend in (torchair.get_npu_backend(), "aot_eager"):
        have = torch.compile(function, backend=backend, fullgraph=True)(x)
        assert have.dtype == torch.bfloat16 and torch.equal(have, want)


# ---- modules -------------------------------------------------------------------------------------


def test_unknown_names_say_what_there_is(layer):
    import torch_npu
    from cann_ops_transformer import ops

    with pytest.raises(AttributeError, match=r"'npu_rms_norm'.*offers .*npu_mhc_pre.*npu\.md"):
        _ = torch_npu.npu_rms_norm
    with pytest.raises(AttributeError, match=r"'flash'.*offers mhc_post, .*mhc_sinkhorn_backward"):
        _ = ops.flash
    with pytest.raises(AttributeError, match=r"'nothing'.*set_device"):
        _ = torch.npu.nothing
    with pytest.raises(ModuleNotFoundError, match=r"'torch_npu.profiler'.*offers .*torch_npu.npu"):
        importlib.import_module("torch_npu.profiler")
    with pytest.raises(ImportError, match=r"'npu_swiglu' from 'torch_npu' \(.*compat.npu"):
        from torch_npu import npu_swiglu  # noqa: F401
    assert not hasattr(torch_npu, "npu_rms_norm")


def test_every_offered_name_is_there(layer):
    for source, names in (
        (_runtime, _runtime.NAMES),
        (_memory, _memory.FUNCTIONS),
        (_streams, _streams.NAMES),
    ):
        for name in names:
            assert getattr(torch.npu, name) is getattr(source, name)
    page = (HERE.parents[1] / "docs" / "npu.md").read_text(encoding="utf-8")
    undocumented = [
        name
        for module in ("torch.npu", "torch_npu", "cann_ops_transformer.ops", "pypto", "torchair")
        for name in _modules._CONTENTS[module]()
        if not name.startswith("_") and f"`{name}" not in page
    ]
    assert not undocumented


def test_absent_outputs(layer):
    import torch_npu
    from cann_ops_transformer.ops import mhc_pre_sinkhorn, mhc_pre_sinkhorn_backward

    x, alpha, bias = torch.randn(3, 4, 8), torch.randn(3), torch.randn(24)
    phi = torch.randn(24, 32)
    h_in, h_post, h_res, *caches = torch_npu.npu_mhc_pre(x, phi, alpha, bias)
    assert [c.numel() for c in caches] == [0, 0, 0]
    *_, h_res_absent, inv_rms, h_mix, h_pre = torch_npu.npu_mhc_pre(
        x, phi[:8], alpha[:2], bias[:8], out_flag=1
    )
    assert h_res_absent is None
    grads = torch_npu.npu_mhc_pre_backward(
        x, phi[:8], alpha[:2], h_in, h_post, None, inv_rms, h_mix, h_pre, h_post, None, 1e-6, x
    )
    assert [None if g is None else tuple(g.shape) for g in grads] == [
        (3, 4, 8),
        (8, 32),
        (2,),
        (8,),
        None,
    ]
    _, norm, total = torch_npu.npu_mhc_sinkhorn(h_res)
    assert norm.numel() == total.numel() == 0
    assert torch_npu.npu_mhc_post_backward(x, x, None, h_in, h_post)[1] is None

    forward = mhc_pre_sinkhorn(x, phi, alpha, bias, 4, 3, 1e-6, 1e-6)
    assert len(forward) == 3
    *results, kept_pre, kept_mix, kept_rms, sums, norms = mhc_pre_sinkhorn(
        x, phi, alpha, bias, hc_mult=4, num_iters=3, need_backward=True
    )
    assert all(torch.equal(a, b) for a, b in zip(results, forward, strict=True))
    grads = mhc_pre_sinkhorn_backward(
        *results, x, phi, alpha, bias, kept_pre, kept_mix, kept_rms, sums, norms, 1e-6
    )
    assert [g.shape for g in grads] == [t.shape for t in (x, phi, alpha, bias)]


def test_sinkhorn_from_iterates_is_the_derivative(layer):
    import torch_npu

    logits = torch.randn(5, 2, 4, 4).mul(3).requires_grad_()
    y, norm, total = torch_npu.npu_mhc_sinkhorn(logits, eps=1e-3, num_iters=6, out_flag=1)
    assert norm.shape == (12, 5, 2, 4, 4) and total.shape == (12, 5, 2, 4)
    torch.testing.assert_close(norm[0], torch.softmax(logits, -1), rtol=0, atol=1e-6)
    grad = torch.randn_like(y)
    y.backward(grad)
    have = torch_npu.npu_mhc_sinkhorn_backward(grad, norm.detach(), total.detach())
    torch.testing.assert_close(have, logits.grad, rtol=0, atol=1e-6)


def test_refusals_name_argument_and_value(layer):
    import torch_npu
    import torchair

    x = torch.zeros(1, 4, 4)
    for call, text in (
        (lambda: torch_npu.npu_mhc_sinkhorn(x, out_flag=2), "npu_mhc_sinkhorn: out_flag is 2,"),
        (lambda: torch_npu.npu_mhc_pre(x, x, x, x, inner_precise=3), "inner_precise is 3,"),
        (
            lambda: torch_npu.npu_mhc_sinkhorn_backward(x, torch.zeros(3, 4), x),
            r"norm has shape \(3, 4\), expected 2\*num_iters first",
        ),
        (lambda: torch_npu.npu_mhc_post(x, x, x, x), "mhc_post: "),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(TypeError, match="norm is a NoneType, expected a tensor"):
        torch_npu.npu_mhc_sinkhorn_backward(x, None, x)
    with pytest.raises(TypeError, match=r"compiler_config is a dict, expected a torchair\.Comp"):
        torchair.get_npu_backend(compiler_config={})
    event = torch.npu.Event()
    with pytest.raises(RuntimeError, match="enable_timing is False"):
        event.elapsed_time(event)
    timed = torch.npu.Event(enable_timing=True)
    with pytest.raises(RuntimeError, match="not recorded"):
        timed.elapsed_time(timed)


def test_the_name_of_the_machine(layer, monkeypatch: pytest.MonkeyPatch):
    for profile, name in {
        "a2": "Ascend910B1",
        "a3": "Ascend910_9392",
        "950": "Ascend950PR",
    }.items():
        monkeypatch.setenv("ANABRANCH_SOC", profile)
        assert torch.npu.get_device_name() == name
        assert torch.npu.get_device_properties(0).name == name
    monkeypatch.setenv("ANABRANCH_SOC", "b7")
    with pytest.raises(RuntimeError, match="ANABRANCH_SOC is 'b7', expected one of native, 950"):
        torch.npu.get_device_name()


def test_compiler_options_are_kept():
    from anabranch.compat.npu._torchair import CompilerConfig

    config = CompilerConfig()
    config.debug.graph_dump.type = "pbtxt"
    config.mode = "reduce-overhead"
    assert config.debug.graph_dump.type == "pbtxt"
    assert repr(config) == (
        "CompilerConfig(debug=CompilerConfig(graph_dump=CompilerConfig(type='pbtxt')), "
        "mode='reduce-overhead')"
    )
    assert not hasattr(config, "__len__")


def test_the_environment_is_not_used():
    """Only the runner and install() switch the layer on."""
    environment = {**os.environ, "ANABRANCH_NPU_PROGRAM": "/nothing"}
    code = "import anabranch, anabranch.compat.npu as n; print(n.is_installed())"
    assert python("-c", code, env=environment).stdout == "False\n"
