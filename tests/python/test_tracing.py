"""torch.fx, FlopCounterMode, and torch.compile with everything dynamic."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor

import anabranch
from anabranch import nn, ops
from anabranch.compat import ai_infra
from conftest import CASES, flatten, leaves

T, N, D, L = 6, 4, 16, 3


def flops(call) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def test_flops_of_the_mhc_operators():
    x = torch.randn(T, N, D, requires_grad=True)
    rows = N * N + 2 * N
    phi = torch.randn(rows, N * D, requires_grad=True)
    args = (phi, torch.ones(3), torch.zeros(rows))
    # The projection and the weighted sum of the streams: a multiply-add counts 2.
    pre = 2 * T * N * D * rows + 2 * T * N * D
    for function in (anabranch.mhc_pre, anabranch.mhc_pre_sinkhorn):
        results = []
        assert flops(lambda f=function, r=results: r.extend(f(x, *args))) == pre
        total = sum(r.sum() for r in results)
        assert flops(lambda t=total: t.backward(retain_graph=True)) == 2 * pre
    h_in, h_post, h_res = anabranch.mhc_pre_sinkhorn(x, *args)
    assert flops(lambda: anabranch.mhc_post(x, h_res, h_in, h_post)) == 2 * T * D * N * (N + 1)
    assert flops(lambda: anabranch.mhc_post(x, None, h_in, h_post)) == 2 * T * D * N
    head = (torch.randn(N, N * D), torch.zeros(N), torch.ones(1))
    assert flops(lambda: anabranch.mhc_head(x, *head)) == 2 * T * N * D * (N + 1)


def test_flops_of_the_attention_operators():
    blocks = [torch.randn(T, D, requires_grad=True) for _ in range(L)]
    query = torch.randn(D, requires_grad=True)
    one = 2 * L * T * D * 2  # scores, weighted sum
    assert flops(lambda: anabranch.block_attn_res(blocks, query)) == one
    h = anabranch.block_attn_res(blocks, query)
    assert flops(lambda: h.sum().backward()) == 2 * one
    queries = torch.randn(5, D)
    assert flops(lambda: anabranch.attn_res_prepare(blocks, queries)) == 5 * one


def test_every_operator_has_a_flop_formula():
    import torch.utils.flop_counter as counter

    assert all(getattr(torch.ops.anabranch, name) in counter.flop_registry for name in ops.NAMES)


def test_the_counter_is_not_imported_with_us():
    code = "import sys, anabranch; print('torch.utils.flop_counter' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"


class _Attention(torch.nn.Module):
    def __init__(self, norm: bool) -> None:
        super().__init__()
        self.residual = nn.AttentionResidual(D, norm=norm)

    def forward(self, a: Tensor, b: Tensor, partial: Tensor) -> Tensor:
        return self.residual([a, b], partial)


def _connection(**options) -> tuple[torch.nn.Module, list[Tensor]]:
    return nn.HyperConnection(D, N, torch.nn.Linear(D, D), **options), [torch.randn(T, N, D)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: _connection(),
        lambda: _connection(residual="permutation", norm_weight=True),
        lambda: _connection(residual="identity"),
        lambda: _connection(clamp=(-1.0, 1.0)),
        lambda: (nn.HyperConnectionHead(D, N), [torch.randn(T, N, D)]),
        lambda: (_Attention(True), [torch.randn(T, D) for _ in range(3)]),
        lambda: (_Attention(False), [torch.randn(T, D) for _ in range(3)]),
    ],
    ids=["sinkhorn", "permutation", "identity", "clamp", "head", "attention", "no_norm"],
)
def test_symbolic_trace_computes_the_same_bits(make):
    torch.manual_seed(5)
    module, inputs = make()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    traced = torch.fx.symbolic_trace(module)
    assert torch.equal(traced(*inputs), module(*inputs))
    assert any("mhc" in str(n.target) or "attn" in str(n.target) for n in traced.graph.nodes)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_functions_compile_with_everything_dynamic(case):
    args = case.make((2, 3), torch.float32, torch.Generator().manual_seed(1))
    inputs = leaves(args)
    compiled = torch.compile(case.function, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch.no_grad():
        have = flatten(compiled(*inputs, **case.kwargs))
        want = flatten(case.function(*inputs, **case.kwargs))
    assert all(map(torch.equal, have, want))


def test_permutation_compiles_with_a_symbolic_n():
    def mix(logits: Tensor, x: Tensor) -> Tensor:
        return anabranch.mhc_permutation(logits, x.shape[-2])

    compiled = torch.compile(mix, fullgraph=True, dynamic=True, backend="aot_eager")
    for n, count in ((2, 2), (3, 6), (4, 24)):
        logits, x = torch.randn(7, count), torch.randn(7, n, 8)
        assert torch.equal(compiled(logits, x), anabranch.mhc_permutation(logits, n))


def test_ten_attention_residuals_of_ten_lengths_compile():
    """docs/nn.md says which limit to raise: torch.compile makes one graph a number of sources."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=32):
        for count in range(1, 11):
            module = nn.AttentionResidual(D)
            compiled = torch.compile(module, fullgraph=True, dynamic=True, backend="aot_eager")
            blocks = [torch.randn(5, D) for _ in range(count)]
            assert torch.equal(compiled(blocks), module(blocks))
    torch._dynamo.reset()


def test_twelve_hyper_connections_share_a_compilation():
    torch._dynamo.reset()
    with torch.no_grad():
        for layer in range(12):
            module = nn.HyperConnection(D, N, torch.nn.Linear(D, D))
            compiled = torch.compile(module, fullgraph=True, dynamic=True, backend="aot_eager")
            x = torch.randn(3 + layer, N, D)
            assert torch.equal(compiled(x), module(x))
    torch._dynamo.reset()


def test_submodules_are_attributes():
    code = (
        "import anabranch; anabranch.eager.mhc_post; anabranch.functional; anabranch.nn; "
        "anabranch.ops; anabranch.compat.npu; anabranch.distributed; "
        "print('eager' in dir(anabranch))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "True"
    with pytest.raises(AttributeError, match="'anabranch' has no attribute 'eeger'"):
        _ = anabranch.eeger


@pytest.mark.parametrize("name", ai_infra.__all__)
def test_moved_names_forward_with_a_warning(name):
    for owner in (anabranch, anabranch.functional):
        with pytest.warns(DeprecationWarning, match=f"anabranch.compat.ai_infra.{name}"):
            assert getattr(owner, name) is getattr(ai_infra, name)


def test_hc_mult_is_that_of_x():
    x, rows = torch.randn(T, 8, D), 80
    args = (torch.randn(rows, 8 * D) / 12, torch.ones(3), torch.zeros(rows))
    default = anabranch.mhc_pre_sinkhorn(x, *args)
    assert all(map(torch.equal, default, anabranch.mhc_pre_sinkhorn(x, *args, 8)))
    assert torch.allclose(default[2], anabranch.eager.mhc_pre_sinkhorn(x, *args)[2], atol=1e-5)
    for function in (anabranch.mhc_pre_sinkhorn, anabranch.eager.mhc_pre_sinkhorn):
        with pytest.raises(ValueError, match="hc_mult is 4, expected 8"):
            function(x, *args, 4)


@pytest.mark.parametrize("tokens", [(), (5,), (2, 3), (2, 3, 2)])
def test_caches_have_the_tokens_of_x(tokens):
    x = torch.randn(*tokens, N, D)
    rows = N * N + 2 * N
    args = (torch.randn(rows, N * D) / 8, torch.ones(3), torch.zeros(rows))
    *_, inv_rms, sum_out, norm_out = anabranch.mhc_pre_sinkhorn(
        x, *args, num_iters=3, return_caches=True
    )
    assert inv_rms.shape == (*tokens, 1)
    assert sum_out.shape == (6, *tokens, N)
    assert norm_out.shape == (6, *tokens, N, N)
