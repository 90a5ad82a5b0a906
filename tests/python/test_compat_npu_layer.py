"""anabranch.compat.npu: what install() changes, and that uninstall() takes it back."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import pickle
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import _get_current_function_mode_stack

from anabranch.compat import ai_infra, npu
from anabranch.compat.npu import _graph, _memory, _modules, _runtime, _streams

HERE = Path(__file__).resolve().parent


@pytest.fixture
def layer() -> Iterator[None]:
    npu.install()
    yield
    npu.uninstall()


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

    assert pypto.ai_infra_block_attn_res is ai_infra.ai_infra_block_attn_res
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
    with pytest.raises(AttributeError, match=r"'flash'.*offers block_.*mhc_post, .*mhc_sinkhorn"):
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
        (_graph, _graph.NAMES),
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
