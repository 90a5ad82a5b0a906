"""Sinkhorn in Python: shapes of its caches, its eps, its iterations; defaults that follow x."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anabranch
from anabranch import eager, functional
from anabranch.compat.npu import _operators as npu

D = 6
ITERS = 3
TOKENS = [(), (5,), (2, 3), (2, 1, 3), (1, 2, 2, 2, 1)]


def inputs(tokens: tuple[int, ...], n: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    rows = n * n + 2 * n

    def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * scale

    x, phi = normal(*tokens, n, D), normal(rows, n * D, scale=(n * D) ** -0.5)
    return [x, phi, normal(3), normal(rows)]


def gradients(tokens: tuple[int, ...], n: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    return [torch.randn(*tokens, *s, generator=generator) for s in ((D,), (n,), (n, n))]


def shapes(tokens: tuple[int, ...], n: int = 4) -> list[tuple[int, ...]]:
    steps = 2 * ITERS
    return [
        (*tokens, D),
        (*tokens, n),
        (*tokens, n, n),
        (*tokens, n),
        (*tokens, n * n + 2 * n),
        (*tokens, 1),
        (steps, *tokens, n),
        (steps, *tokens, n, n),
    ]


def forward(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return anabranch.mhc_pre_sinkhorn(*args, num_iters=ITERS, return_caches=True)


@pytest.mark.parametrize("tokens", TOKENS, ids=str)
def test_caches_have_the_leading_dimensions_of_x(tokens):
    args = inputs(tokens)
    results = forward(*args)
    assert [tuple(t.shape) for t in results] == shapes(tokens)
    with torch.device("meta"):
        fake = forward(*(torch.empty(a.shape) for a in args))
    assert [tuple(t.shape) for t in fake] == shapes(tokens)
    grads = gradients(tokens)
    cached = anabranch.mhc_pre_sinkhorn_backward(*grads, *args, *results[3:])
    leaves = [a.clone().requires_grad_() for a in args]
    outputs = anabranch.mhc_pre_sinkhorn(*leaves, num_iters=ITERS, save="all")
    want = torch.autograd.grad(outputs, leaves, grads)
    for have, right in zip(cached, want, strict=True):
        assert torch.equal(have, right)


def test_caches_of_any_layout():
    """Strided caches give the gradients of dense ones."""
    args, grads = inputs((2, 3)), gradients((2, 3))
    kept = forward(*args)[3:]
    want = anabranch.mhc_pre_sinkhorn_backward(*grads, *args, *kept)
    *first, sums, norms = kept

    def permuted(t: torch.Tensor) -> torch.Tensor:
        order = tuple(reversed(range(t.ndim)))
        return t.permute(order).contiguous().permute(order)

    def padded(t: torch.Tensor) -> torch.Tensor:
        wide = torch.full((*t.shape[:-1], 2 * t.shape[-1] + 1), torch.nan)
        view = wide[..., 1::2]
        view.copy_(t)
        return view

    for change in (permuted, padded):
        have = anabranch.mhc_pre_sinkhorn_backward(
            *grads, *args, *first, change(sums), change(norms)
        )
        for a, b in zip(have, want, strict=True):
            assert torch.equal(a, b)


def test_caches_with_all_tokens_in_one_dimension_are_refused():
    args, grads = inputs((2, 3)), gradients((2, 3))
    *first, sums, norms = forward(*args)[3:]
    op = "mhc_pre_sinkhorn_backward"
    with pytest.raises(
        ValueError, match=rf"^{op}: sum_out has shape \(6, 6, 4\), expected \(\S+ 2"
    ):
        anabranch.mhc_pre_sinkhorn_backward(
            *grads, *args, *first, sums.flatten(1, 2), norms.flatten(1, 2)
        )
    with pytest.raises(ValueError, match=rf"^{op}: norm_out has shape .*expected \(6, 2, 3, 4, 4"):
        anabranch.mhc_pre_sinkhorn_backward(*grads, *args, *first, sums, norms.flatten(1, 2))
    logits = torch.zeros(2, 3, 4, 4)
    _, sums, norms = torch.ops.anabranch.mhc_sinkhorn(logits, 3, 1e-6, 0.0, 0.0, True)
    assert (sums.shape, norms.shape) == ((6, 2, 3, 4), (6, 2, 3, 4, 4))
    with pytest.raises(
        RuntimeError, match=r"sum_out has shape \(6, 6, 4\), expected \(6, 2, 3, 4\)"
    ):
        torch.ops.anabranch.mhc_sinkhorn_backward(
            logits, None, sums.flatten(1, 2), norms.flatten(1, 2), 3, 1e-6, 0.0, 0.0
        )


def test_vmap_maps_the_tokens_of_the_caches():
    x, *parameters = inputs((2, 3))
    many = torch.stack([x, 2 * x, -x], 1)
    mapped = torch.vmap(lambda x: forward(x, *parameters), in_dims=1)(many)
    for k in range(3):
        for a, b in zip(mapped, forward(many[:, k], *parameters), strict=True):
            assert torch.equal(a[k], b)


def test_compiled_with_dynamic_shapes():
    compiled = torch.compile(forward, fullgraph=True, dynamic=True, backend="eager")
    for tokens in ((2, 3), (4, 5)):
        args = inputs(tokens)
        for a, b in zip(compiled(*args), forward(*args), strict=True):
            assert torch.equal(a, b)
    torch._dynamo.reset()


@pytest.mark.parametrize("n", range(1, 17))
def test_number_of_streams_is_that_of_x(n):
    args = inputs((2,), n)
    plain = forward(*args)
    assert [tuple(t.shape) for t in plain] == shapes((2,), n)
    given = anabranch.mhc_pre_sinkhorn(*args, n, ITERS, 1e-6, 1e-6)
    layer = npu.mhc_pre_sinkhorn(*args, num_iters=ITERS)
    positional = npu.mhc_pre_sinkhorn(*args, n, ITERS, 1e-6, 1e-6)
    for a, b in zip(given, plain[:3], strict=True):
        assert torch.equal(a, b)
    for other in (layer, positional):  # that layer's h_res is flat
        for a, b in zip(other, plain[:3], strict=True):
            assert torch.equal(a.reshape(b.shape), b)
    for exact in (eager.mhc_pre_sinkhorn(*args, num_iters=ITERS),
                  eager.mhc_pre_sinkhorn(*args, n, ITERS, 1e-6, 1e-6)):  # fmt: skip
        for a, b in zip(exact, plain[:3], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    for call in (anabranch.mhc_pre_sinkhorn, npu.mhc_pre_sinkhorn, eager.mhc_pre_sinkhorn):
        for wrong in (n + 1, n - 1, 0, -1):
            with pytest.raises(ValueError, match=f"hc_mult is {wrong}, expected {n} "):
                call(*args, wrong)


def public(module: Any) -> list[Callable[..., Any]]:
    functions = inspect.getmembers(module, inspect.isfunction)
    return [f for name, f in functions if not name.startswith("_")]


def test_no_default_is_a_size():
    """A whole number as a default counts iterations or picks a mode; sizes come from tensors."""
    seen = 0
    for module in (functional, eager, npu):
        for function in public(module):
            for name, parameter in inspect.signature(function).parameters.items():
                default = parameter.default
                if isinstance(default, int) and not isinstance(default, bool):
                    assert name in ("num_iters", "op_impl_mode", "out_flag", "inner_precise"), (
                        function.__name__,
                        name,
                    )
                    seen += 1
    assert seen >= 8


@pytest.mark.parametrize("eps", [0.0, 0.125])
def test_hc_eps_is_both_epsilons(eps):
    """Fused: added to h_pre, and Sinkhorn's."""
    args = inputs((2, 3))
    h_in, h_post, h_res = anabranch.mhc_pre_sinkhorn(*args, num_iters=ITERS, hc_eps=eps)
    want_in, want_post, logits = anabranch.mhc_pre(*args, hc_eps=eps)
    assert torch.equal(h_in, want_in) and torch.equal(h_post, want_post)
    assert torch.equal(h_res, anabranch.mhc_sinkhorn(logits, num_iters=ITERS, eps=eps))
    other = anabranch.mhc_pre_sinkhorn(*args, num_iters=ITERS, hc_eps=0.25)
    assert not torch.equal(other[0], h_in) and not torch.equal(other[2], h_res)


def test_iterations_have_one_limit():
    args, grads = inputs((2,)), gradients((2,))
    kept = forward(*args)[3:6]
    logits, grad = torch.zeros(2, 4, 4), torch.ones(2, 4, 4)
    calls: dict[str, Callable[[int], Any]] = {
        "mhc_pre_sinkhorn": lambda k: anabranch.mhc_pre_sinkhorn(*args, num_iters=k),
        "mhc_pre_sinkhorn_backward": lambda k: anabranch.mhc_pre_sinkhorn_backward(
            *grads, *args, *kept, num_iters=k
        ),
        "mhc_sinkhorn": lambda k: anabranch.mhc_sinkhorn(logits, num_iters=k),
        "mhc_sinkhorn_backward": lambda k: anabranch.mhc_sinkhorn_backward(
            grad, logits, num_iters=k
        ),
    }
    for op, call in calls.items():
        for wrong in (0, -1, 1_000_001, 2**40):
            with pytest.raises(
                ValueError, match=rf"^{op}: num_iters is {wrong}, expected 1\.\.1000000$"
            ):
                call(wrong)
        call(1)


def test_outputs_of_nine_dimensions_are_refused():
    tokens = (1, 1, 1, 1, 1, 2)
    args = inputs(tokens)
    text = r"^mhc_pre_sinkhorn: norm_out has 9 dimensions, expected at most 8: x has shape \(1,"
    with pytest.raises(ValueError, match=text):
        forward(*args)
    with pytest.raises(ValueError, match=text), torch.device("meta"):
        forward(*(torch.empty(a.shape) for a in args))
    assert len(anabranch.mhc_pre_sinkhorn(*args)) == 3
    blocks = [torch.zeros(1, 1, 1, 1, 1, 1, 1, 8, requires_grad=True)]
    with pytest.raises(
        ValueError, match=r"^attn_res_prepare: o has 9 dimensions, expected at most"
    ):
        anabranch.attn_res_prepare(blocks, torch.zeros(2, 8))
    h = anabranch.block_attn_res(blocks, torch.zeros(8), enable_rmsnorm=False)
    assert h.shape == blocks[0].shape
