"""Tensors at addresses that are no multiple of their element size, as memory-mapped files give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from anabranch import nn
from conftest import CASES, flatten, leaves, map_tensors


def odd(t: Tensor) -> Tensor:
    """The same values one byte behind an even address; a strided view stays one."""
    dense = t.detach().contiguous()
    memory = bytearray(dense.numel() * dense.element_size() + 1)
    torch.frombuffer(memory, dtype=torch.uint8)[1:] = dense.reshape(-1).view(torch.uint8)
    values = torch.frombuffer(memory, dtype=t.dtype, offset=1, count=dense.numel())
    result = values.view(t.shape)
    assert result.data_ptr() % t.element_size() != 0
    return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_every_function_forward_and_backward(case, dtype):
    args = case.make((2, 3), dtype, torch.Generator().manual_seed(3))

    def step(inputs: list[Any]) -> list[Tensor]:
        used = leaves(inputs)
        outputs = flatten(case.function(*used, **case.kwargs))
        torch.autograd.backward(outputs, [torch.ones_like(o) for o in outputs])
        return [*outputs, *(t.grad for t in flatten(used) if t.grad is not None)]

    want = step(args)
    have = step(map_tensors(lambda t: odd(t) if t.numel() else t, args))
    assert len(want) == len(have)
    assert all(map(torch.equal, have, want))


def test_every_operator_takes_strided_views_at_odd_addresses():
    """Transposed, so that the copy has to follow strides."""
    case = next(c for c in CASES if c.name == "mhc_post")
    x, h_res, h_out, h_post = case.make((2, 3), torch.float32, torch.Generator().manual_seed(4))
    turned = odd(x.transpose(-1, -2).contiguous()).transpose(-1, -2)
    assert torch.equal(
        case.function(turned, h_res, h_out, h_post), case.function(x, h_res, h_out, h_post)
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: (nn.HyperConnection(16, 4, torch.nn.Identity()), [torch.randn(5, 4, 16)]),
        lambda: (
            nn.HyperConnection(16, 4, torch.nn.Identity(), preset="mhc_lite"),
            [torch.randn(5, 4, 16)],
        ),
        lambda: (nn.HyperConnectionHead(16, 4), [torch.randn(5, 4, 16)]),
        lambda: (nn.AttentionResidual(16), [[torch.randn(5, 16) for _ in range(3)]]),
    ],
    ids=["hyper", "mhc_lite", "head", "attention"],
)
@pytest.mark.parametrize("how", ["assign", "set"])
def test_modules_run_with_such_parameters(make, how):
    module, inputs = make()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    want = module(*inputs)
    state = {name: odd(value) for name, value in module.state_dict().items()}
    if how == "assign":
        module.load_state_dict(state, assign=True)
    else:
        for name, value in state.items():
            owner, _, last = name.rpartition(".")
            setattr(module.get_submodule(owner), last, torch.nn.Parameter(value))
    assert all(p.data_ptr() % 4 for p in module.parameters())
    have = module(*inputs)
    assert torch.equal(have, want)
    have.sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in module.parameters())
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert torch.equal(compiled(*inputs), want)
