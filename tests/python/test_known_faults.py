"""Kinds of faults that implementations of such operators have had; see docs/differential.md."""

from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import anabranch
import conftest
from conftest import Case, flatten, leaves, map_tensors
from test_functions import run


def gradients(case: Case, args: list[Any], grads: list[Tensor]) -> list[Tensor]:
    inputs = leaves(args)
    torch.autograd.backward(flatten(case.function(*inputs, **case.kwargs)), grads)
    return [t.grad for t in flatten(inputs)]


def outputs_of(case: Case, args: list[Any]) -> list[Tensor]:
    return flatten(case.function(*args, **case.kwargs))


def expect_right(case: Case, args: list[Any], have: list[Tensor]) -> None:
    """Outputs and gradients against the eager composition in double precision."""
    want = run(case.reference, case, map_tensors(lambda t: t.double(), args))
    for h, w in zip(have, want, strict=True):
        assert (h.double() - w).abs().max() <= 1e-4 * (1 + w.abs().max())


@pytest.mark.parametrize("tokens", [21, 112, 129])
def test_token_counts_that_fill_no_tile(case, tokens, generator):
    args = case.make((tokens,), torch.float32, generator)
    expect_right(case, args, run(case.function, case, args))


def test_many_tokens_that_fill_no_tile(case, generator):
    """8191 tokens have the values and gradients that they have in two calls."""
    args = case.make((8191,), torch.bfloat16, generator)

    def part(start: int, length: int) -> Callable[[Tensor], Tensor]:
        return lambda t: t.narrow(t.shape.index(8191), start, length) if 8191 in t.shape else t

    whole = outputs_of(case, args)
    parts = [outputs_of(case, map_tensors(part(*p), args)) for p in ((0, 8000), (8000, 191))]
    for k, have in enumerate(whole):
        assert torch.equal(have, torch.cat([p[k] for p in parts], have.shape.index(8191)))
    grads = [torch.randn(o.shape, generator=generator).to(o.dtype) for o in whole]
    want = gradients(case, args, grads)
    last = part(8000, 191)
    have = gradients(case, map_tensors(last, args), map_tensors(last, grads))
    compared = 0
    for h, w in zip(have, want, strict=True):
        if 8191 in w.shape:
            assert torch.equal(h, last(w))
            compared += 1
    assert compared > 0


def hidden_size(case: Case, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases are made with another D from here on."""
    monkeypatch.setattr(conftest, "D", d)
    made = case.make((1,), torch.float32, torch.Generator())
    if not any(d in t.shape or t.shape[-1] % d == 0 for t in flatten(made)):
        pytest.skip("has no hidden size")


@pytest.mark.parametrize("d", [2048, 3072, 3584, 5120, 7168])
def test_hidden_sizes_of_real_models(case, d, generator, monkeypatch):
    hidden_size(case, d, monkeypatch)
    for tokens in (1, 33):
        args = case.make((tokens,), torch.float32, generator)
        expect_right(case, args, run(case.function, case, args))


def padded(t: Tensor) -> Tensor:
    """Equal values at an odd offset, NaN before and behind every row."""
    wide = torch.full((*t.shape[:-1], t.shape[-1] + 6), torch.nan, dtype=t.dtype)
    return wide[..., 3:-3].copy_(t) if t.ndim else t


def test_lanes_behind_the_row(case, generator, monkeypatch):
    """Rows of every length around the vectors, NaN behind them: values, gradients and bits."""
    hidden_size(case, 17, monkeypatch)
    for d in range(1, 35):
        monkeypatch.setattr(conftest, "D", d)
        args = case.make((3,), torch.float32, generator)
        have = run(case.function, case, args)
        expect_right(case, args, have)
        with torch.no_grad():
            outputs = flatten(case.function(*map_tensors(padded, args), **case.kwargs))
        for a, b in zip(outputs, have, strict=False):
            assert torch.equal(a, b), d


def test_gradients_through_padded_inputs(case, generator):
    """Inputs with longer rows at odd offsets, in the backward too."""
    args = case.make((5,), torch.float32, generator)
    grads = [torch.randn(o.shape, generator=generator) for o in outputs_of(case, args)]
    want = gradients(case, args, grads)
    whole = map_tensors(lambda t: padded(t)._base.detach().requires_grad_(), args)
    views = map_tensors(lambda t: t[..., 3:-3], whole)
    torch.autograd.backward(flatten(case.function(*views, **case.kwargs)), grads)
    for have, right in zip((t.grad for t in flatten(whole)), want, strict=True):
        assert torch.equal(have[..., 3:-3], right)
        assert not have[..., :3].any() and not have[..., -3:].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_expanded_gradients_of_a_sum(case, dtype, generator):
    args = case.make((5,), dtype, generator)
    dense = [torch.ones_like(o) for o in outputs_of(case, args)]
    expanded = [torch.ones((), dtype=g.dtype).expand(g.shape) for g in dense]
    for a, b in zip(gradients(case, args, dense), gradients(case, args, expanded), strict=True):
        assert torch.equal(a, b)


def test_transposed_and_padded_gradients(case, generator):
    args = case.make((5,), torch.float32, generator)
    dense = [torch.randn(o.shape, generator=generator) for o in outputs_of(case, args)]
    transposed = [
        g.permute(*reversed(range(g.dim()))).contiguous().permute(*reversed(range(g.dim())))
        for g in dense
    ]
    padded = []
    for g in dense:
        wide = torch.full((*g.shape[:-1], g.shape[-1] + 3), torch.nan)
        wide[..., 1 : g.shape[-1] + 1] = g
        padded.append(wide[..., 1 : g.shape[-1] + 1])
    want = gradients(case, args, dense)
    for other in (transposed, padded):
        for a, b in zip(want, gradients(case, args, other), strict=True):
            assert torch.equal(a, b)


def test_parameters_changed_between_forward_and_backward(case, generator):
    """Autograd says so, or the tensor is not needed and the gradients are the right ones."""
    args = case.make((5,), torch.float32, generator)
    grads = [torch.randn(o.shape, generator=generator) for o in outputs_of(case, args)]
    want = gradients(case, args, grads)
    refused = 0
    for k in range(len(flatten(args))):
        inputs = leaves(args)
        outputs = outputs_of(case, inputs)
        with torch.no_grad():
            flatten(inputs)[k].add_(1.0)
        try:
            torch.autograd.backward(outputs, grads)
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            refused += 1
            continue
        for have, right in zip((t.grad for t in flatten(inputs)), want, strict=True):
            assert torch.equal(have, right)
    assert refused > 0


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_row_of_nan_or_infinity_stays_in_its_token(case, value, generator):
    args = case.make((6,), torch.float32, generator)
    before = outputs_of(case, args)
    first = next(t for t in flatten(args) if 6 in t.shape)
    first.select(first.shape.index(6), 2).fill_(value)
    for a, b in zip(before, outputs_of(case, args), strict=True):
        keep = [t for t in range(6) if t != 2]
        index = torch.tensor(keep)
        dim = a.shape.index(6)
        assert torch.equal(a.index_select(dim, index), b.index_select(dim, index))


@pytest.mark.parametrize("value", [0.0, 1.5 * 2.0**-130])
def test_rows_of_zeros_and_subnormals(case, value, generator):
    args = case.make((6,), torch.float32, generator)
    tensors = [t for t in flatten(args) if 6 in t.shape]
    # Equal sources have equal scores, and the gradient of their largest is any of several.
    for t in tensors[:1] if case.op == "attn_res_prepare" else tensors:
        t.select(t.shape.index(6), 2).fill_(value)
    if case.op == "attn_res_merge":
        args[2].clamp_(min=0.5)  # a sum of exponentials, at least the largest, which is 1
    have = run(case.function, case, args)
    assert all(t.isfinite().all() for t in have)
    expect_right(case, args, have)


def test_coefficients_count_beyond_16_bits(case, generator):
    """FP32 values that BF16 and FP16 round to the same numbers give other results."""
    args = case.make((11,), torch.bfloat16, generator)
    tensors = flatten(args)
    counted = 0
    for k, tensor in enumerate(tensors):
        if tensor.dtype != torch.float32:
            continue

        def with_factor(factor: float, k: int = k) -> list[Tensor]:
            rest = iter(range(len(tensors)))
            changed = map_tensors(
                lambda t: t.bfloat16().float() * factor if next(rest) == k else t, args
            )
            return run(case.function, case, changed)

        rounded = with_factor(1.0)
        longer = with_factor(1 + 1.9 * 2.0**-13)
        assert not all(torch.equal(a, b) for a, b in zip(rounded, longer, strict=True)), k
        counted += 1
    assert counted > 0


def test_the_residual_matrix_is_not_transposed():
    """The first index is the stream that is read, the second the one that is written."""
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    h_res = torch.zeros(3, 3)
    h_res[0, 1] = 1
    h_res.requires_grad_()
    y = anabranch.mhc_post(x, h_res, torch.zeros(2), torch.zeros(3))
    assert y.tolist() == [[0, 0], [1, 2], [0, 0]]
    y.backward(torch.tensor([[1.0, 1.0], [10.0, 10.0], [100.0, 100.0]]))
    assert x.grad.tolist() == [[10, 10], [0, 0], [0, 0]]
    assert h_res.grad[0].tolist() == [3, 30, 300]
    flat = torch.arange(9.0)
    bias = torch.cat([torch.zeros(6), flat])
    _, _, logits = anabranch.mhc_pre(x.detach(), torch.zeros(15, 6), torch.zeros(3), bias)
    assert torch.equal(logits, flat.view(3, 3))
    z = torch.zeros(3, 3)
    z[0, 2] = 3
    once = anabranch.mhc_sinkhorn(z, num_iters=1)  # columns last
    torch.testing.assert_close(once.sum(0), torch.ones(3))
    assert abs(once[0].sum() - 1) > 0.1
    second = torch.full((6,), -100.0)
    second[3] = 100  # 1 2 0, in lexicographic order
    assert anabranch.mhc_permutation(second, 3).tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]


def test_one_gradient_asked_for_alone(case, generator):
    args = case.make((5,), torch.bfloat16, generator)
    grads = [torch.randn(o.shape, generator=generator) for o in outputs_of(case, args)]
    grads = [g.to(o.dtype) for g, o in zip(grads, outputs_of(case, args), strict=True)]
    want = gradients(case, args, grads)
    for k, right in enumerate(want):
        rest = iter(range(len(want)))
        alone = map_tensors(
            lambda t, k=k, rest=rest: t.clone().requires_grad_(next(rest) == k), args
        )
        torch.autograd.backward(flatten(case.function(*alone, **case.kwargs)), grads)
        for j, t in enumerate(flatten(alone)):
            assert (t.grad is None) == (j != k)
        assert torch.equal(flatten(alone)[k].grad, right), k


def test_one_output_used_alone(case, generator):
    """The gradients of the others are zeros that nobody has written."""
    args = case.make((5,), torch.float32, generator)
    outputs = outputs_of(case, args)
    for k, output in enumerate(outputs):
        grads = [torch.zeros_like(o) for o in outputs]
        grads[k] = torch.randn(output.shape, generator=generator)
        want = gradients(case, args, grads)
        inputs = leaves(args)
        outputs_of(case, inputs)[k].backward(grads[k])
        for t, right in zip(flatten(inputs), want, strict=True):
            have = torch.zeros_like(t) if t.grad is None else t.grad
            assert torch.equal(have, right), k


def test_a_token_alone_is_the_token_in_its_batch(case, generator):
    args = case.make((7,), torch.bfloat16, generator)
    batch = outputs_of(case, args)

    def fifth(t: Tensor) -> Tensor:
        return t.narrow(t.shape.index(7), 4, 1) if 7 in t.shape else t

    for a, b in zip(batch, outputs_of(case, map_tensors(fifth, args)), strict=True):
        assert torch.equal(fifth(a), b)


THREADS = """
import torch
from conftest import CASES
from test_functions import run

for case in CASES:
    args = case.make((3, 7001), torch.bfloat16, torch.Generator().manual_seed(3))
    torch.set_num_threads(1)
    one = run(case.function, case, args)
    for number in (2, 3, 7):
        torch.set_num_threads(number)
        for a, b in zip(one, run(case.function, case, args), strict=True):
            assert torch.equal(a, b), (case, number)
"""


def test_threads_do_not_change_bits():
    """The lines of ANABRANCH_VERBOSE say that several threads did take part."""
    paths = [str(Path(__file__).parent), str(Path(anabranch.__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "ANABRANCH_VERBOSE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", THREADS], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    most: dict[str, int] = {}
    for name, threads in re.findall(r"^anabranch: (\w+) .* threads=(\d+) ", done.stderr, re.M):
        most[name] = max(most.get(name, 0), int(threads))
    forwards = {c.op for c in conftest.CASES}
    assert set(most) == forwards | {f"{name}_backward" for name in forwards}
    assert min(most.values()) > 1, most


def test_offsets_beyond_32_bits(case, generator):
    """Two tokens more than 2^31 elements apart, in memory that is there where it is touched."""
    apart = 2**31 + 24
    args = case.make((2,), torch.float32, generator)
    want = run(case.function, case, args)

    def far(t: Tensor) -> Tensor:
        if 2 not in t.shape:
            return t
        file = os.memfd_create("far apart")
        os.truncate(file, 4 * (apart + t.numel()))
        flat = torch.frombuffer(mmap.mmap(file, 0), dtype=t.dtype)
        os.close(file)
        strides = list(t.stride())
        strides[t.shape.index(2)] = apart
        return flat.as_strided(t.shape, strides).copy_(t)

    inputs = map_tensors(lambda t: far(t).requires_grad_(), args)
    outputs = flatten(case.function(*inputs, **case.kwargs))
    g = torch.Generator().manual_seed(7)
    grads = [torch.randn(o.shape, generator=g, dtype=torch.float64).to(o.dtype) for o in outputs]
    back = torch.autograd.grad(outputs, flatten(inputs), grads)
    for a, b in zip([*outputs, *back], want, strict=True):
        assert torch.equal(a, b)


def many_tokens(args: list[Any], tokens: int) -> list[Any]:
    """The first of seven tokens over and over."""

    def expanded(t: Tensor) -> Tensor:
        if 7 not in t.shape:
            return t
        dim = t.shape.index(7)
        return t.narrow(dim, 0, 1).expand(
            *(tokens if k == dim else s for k, s in enumerate(t.shape))
        )

    return map_tensors(expanded, args)


@pytest.mark.parametrize("tokens", [2**48, 2**56])
def test_sizes_beyond_any_memory_are_refused(case, tokens, generator):
    args = many_tokens(case.make((7,), torch.float32, generator), tokens)
    with pytest.raises((RuntimeError, ValueError), match=r"memory|size|overflow|bytes|large"):
        case.function(*args, **case.kwargs)


def available_bytes() -> int:
    with open("/proc/meminfo", encoding="utf-8") as file:
        fields = dict(line.split(":") for line in file)
    return int(fields["MemAvailable"].split()[0]) * 1024


@pytest.mark.slow
def test_more_elements_than_31_bits(case, generator, monkeypatch):
    """The results of one token over and over are that token's, in the end too."""
    monkeypatch.setattr(conftest, "D", 1024)
    seven = case.make((7,), torch.bfloat16, generator)
    want = outputs_of(case, seven)
    row = max(t.numel() // 7 for t in [*flatten(seven), *want] if 7 in t.shape)
    tokens = 2**31 // row + 3
    needed = sum(o.numel() // 7 * tokens * o.element_size() for o in want)
    if 1.2 * needed + 2**31 > available_bytes():
        pytest.skip(f"outputs of {needed >> 30} GiB")
    with torch.no_grad():
        outputs = outputs_of(case, many_tokens(seven, tokens))
    for have, right in zip(outputs, want, strict=True):
        dim = right.shape.index(7)
        assert have.shape[dim] == tokens
        for token in (0, 1, tokens // 2, tokens - 2, tokens - 1):
            assert torch.equal(have.narrow(dim, token, 1), right.narrow(dim, 0, 1)), token
