"""Level 1: opcheck, fake kernels, compile, export, vmap, meta."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

import anabranch
from anabranch import _C, ops
from conftest import CASES, Case, flatten, leaves, map_tensors


def dispatcher_calls(case: Case, args: list[Any]) -> list[tuple[Any, tuple[Any, ...]]]:
    """The forward and backward operator calls of one training step, as the CPU sees them."""
    calls: list[tuple[Any, tuple[Any, ...]]] = []

    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.namespace == "anabranch":
                calls.append((func, args))
            return func(*args, **(kwargs or {}))

    inputs = leaves(args)
    with Recorder():
        outputs = flatten(case.function(*inputs, **case.kwargs))
        torch.autograd.backward(outputs, [torch.ones_like(o) for o in outputs])
    return [(f, map_tensors(lambda t: t.detach(), a)) for f, a in calls]


def test_every_operator_is_exercised():
    seen = set()
    for case in CASES:
        args = case.make((2,), torch.float32, torch.Generator().manual_seed(1))
        seen |= {f._opname for f, _ in dispatcher_calls(case, args)}
    assert seen == set(ops.NAMES)


def test_opcheck(case, generator):
    args = case.make((2, 3), torch.float32, generator)
    for operator, call in dispatcher_calls(case, args):
        # Backwards refuse to be differentiated, which opcheck would try.
        first = not operator._opname.endswith("_backward")
        trainable = map_tensors(lambda t: t.clone().requires_grad_(first), call)  # noqa: B023
        torch.library.opcheck(operator, trainable)


def test_no_output_aliases_an_input(case, generator):
    args = case.make((2, 3), torch.float32, generator)
    for operator, call in dispatcher_calls(case, args):
        inputs = {t.untyped_storage().data_ptr() for t in flatten(list(call)) if t.numel()}
        for output in flatten(operator(*call)):
            assert not output.numel() or output.untyped_storage().data_ptr() not in inputs


def test_fake_kernels_agree_with_the_librarys_inference(case, generator):
    args = case.make((2, 3), torch.bfloat16, generator)
    for operator, call in dispatcher_calls(case, args):
        meta = map_tensors(lambda t: t.to("meta"), call)
        real = flatten(operator(*call))
        fake = flatten(operator(*meta))
        assert [(t.shape, t.dtype, t.stride()) for t in fake] == [
            (t.shape, t.dtype, t.stride()) for t in real
        ]
        assert all(t.is_meta for t in fake)


def test_infer_carries_unknown_sizes():
    known = ("float32", (2, 3, 4, 8))
    open_ = ("float32", (-1, 3, -1, 8))
    call = (open_, None, ("float32", (2, 3, 8)), ("float32", (2, 3, 4)))
    assert _C.infer("mhc_post", call, (), ()) == (known,)
    with pytest.raises(TypeError, match="no operator"):
        _C.infer("mhc_past", call, (), ())


def step(case: Case, inputs: list[Any]) -> torch.Tensor:
    outputs = flatten(case.function(*inputs, **case.kwargs))
    return sum((i + 1) * o.float().square().sum() for i, o in enumerate(outputs))


@pytest.mark.slow
def test_compile_fullgraph_dynamic(case, generator):
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        lambda *inputs: step(case, list(inputs)), fullgraph=True, dynamic=True, backend=counter
    )
    frames = 0
    # No number that another dimension has: equal sizes share a symbol.
    for tokens in [(5, 7), (11, 13), (17, 10)]:
        args = case.make(tokens, torch.float32, generator)
        eager_inputs, inputs = leaves(args), leaves(args)
        step(case, eager_inputs).backward()
        compiled(*inputs).backward()
        for a, b in zip(flatten(eager_inputs), flatten(inputs), strict=True):
            assert torch.equal(a.grad, b.grad)
        # The first call may restart its own compilation when it specialises an attribute.
        frames = frames or counter.frame_count
    assert counter.frame_count == frames, "recompiled from one number of tokens to another"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mhc_post", "block_attn_res_gamma"])
def test_compile_inductor(name, generator):
    case = next(c for c in CASES if c.name == name)
    compiled = torch.compile(lambda *i: step(case, list(i)), fullgraph=True, dynamic=True)
    args = case.make((2, 5), torch.float32, generator)
    eager_inputs, inputs = leaves(args), leaves(args)
    step(case, eager_inputs).backward()
    compiled(*inputs).backward()
    for a, b in zip(flatten(eager_inputs), flatten(inputs), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


class Step(torch.nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case

    def forward(self, *inputs: Any) -> tuple[torch.Tensor, ...]:
        return tuple(flatten(self.case.function(*inputs, **self.case.kwargs)))


def dynamic_tokens(case: Case, args: list[Any]) -> Any:
    """The leading dimension of every token tensor is dynamic."""
    tokens = torch.export.Dim("tokens", min=2, max=64)
    return (map_tensors(lambda t: {0: tokens} if t.shape[0] == 29 else None, tuple(args)),)


def test_export(case, generator):
    args = case.make((29,), torch.float32, generator)
    program = torch.export.export(
        Step(case), tuple(args), dynamic_shapes=dynamic_tokens(case, args)
    )
    assert any("anabranch" in str(node.target) for node in program.graph.nodes)
    other = case.make((11,), torch.float32, generator)
    for a, b in zip(program.module()(*other), Step(case)(*other), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mhc_post", "mhc_pre", "block_attn_res_partial"])
def test_aot_inductor(name, generator, tmp_path: Path):
    case = next(c for c in CASES if c.name == name)
    args = case.make((29,), torch.float32, generator)
    with torch.no_grad():
        program = torch.export.export(
            Step(case), tuple(args), dynamic_shapes=dynamic_tokens(case, args)
        )
        path = torch._inductor.aoti_compile_and_package(
            program, package_path=str(tmp_path / "step.pt2")
        )
        loaded = torch._inductor.aoti_load_package(path)
        other = case.make((11,), torch.float32, generator)
        for a, b in zip(loaded(*other), Step(case)(*other), strict=True):
            assert torch.equal(a, b)


def test_vmap_over_tokens_and_over_parameters(case, generator):
    rows = [case.make((3,), torch.float32, generator) for _ in range(4)]
    stacked = [
        [torch.stack(column) for column in zip(*[row[i] for row in rows], strict=True)]
        if isinstance(rows[0][i], list)
        else None
        if rows[0][i] is None
        else torch.stack([row[i] for row in rows])
        for i in range(len(rows[0]))
    ]
    present = [i for i, value in enumerate(stacked) if value is not None]

    def call(*values: Any) -> Any:
        full: list[Any] = [None] * len(stacked)
        for i, value in zip(present, values, strict=True):
            full[i] = value
        return tuple(flatten(case.function(*full, **case.kwargs)))

    mapped = torch.func.vmap(call)(*(stacked[i] for i in present))
    for index, row in enumerate(rows):
        for have, want in zip(mapped, flatten(case.function(*row, **case.kwargs)), strict=True):
            assert torch.equal(have[index], want)


def test_vmap_keeps_parameters_shared(generator):
    x = torch.randn(5, 3, 4, 24, generator=generator)
    _, phi, alpha, bias = CASES[3].make((3,), torch.float32, generator)
    mapped = torch.func.vmap(lambda t: anabranch.mhc_pre(t, phi, alpha, bias))(x)
    for have, want in zip(mapped, anabranch.mhc_pre(x, phi, alpha, bias), strict=True):
        assert torch.equal(have, want)


def test_functional_call_and_deepcopy(generator):
    class Mix(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(24, generator=generator))

        def forward(self, *blocks: torch.Tensor) -> torch.Tensor:
            return anabranch.block_attn_res(list(blocks), self.weight)

    module = Mix()
    blocks = [torch.randn(3, 24, generator=generator) for _ in range(2)]
    weight = torch.randn(24, generator=generator)
    out = torch.func.functional_call(module, {"weight": weight}, tuple(blocks))
    assert torch.equal(out, anabranch.block_attn_res(blocks, weight))
    assert torch.equal(copy.deepcopy(module)(*blocks), module(*blocks))


def test_get_names_the_operators():
    assert ops.get("mhc_post") is torch.ops.anabranch.mhc_post.default
    with pytest.raises(ValueError, match=r"name is 'mhc_past', expected one of .*mhc_post"):
        ops.get("mhc_past")
