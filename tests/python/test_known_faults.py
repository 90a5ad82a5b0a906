"""Kinds of faults that implementations of such operators have had; see docs/differential.md."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import Case, flatten, leaves, map_tensors
from test_functions import run


def gradients(case: Case, args: list[Any], grads: list[Tensor]) -> list[Tensor]:
    inputs = leaves(args)
    torch.autograd.backward(flatten(case.function(*inputs, **case.kwargs)), grads)
    return [t.grad for t in flatten(inputs)]


def outputs_of(case: Case, args: list[Any]) -> list[Tensor]:
    return flatten(case.function(*args, **case.kwargs))


@pytest.mark.parametrize("tokens", [21, 112, 129])
def test_token_counts_that_fill_no_tile(case, tokens, generator):
    args = case.make((tokens,), torch.float32, generator)
    have = run(case.function, case, args)
    want = run(case.reference, case, map_tensors(lambda t: t.double(), args))
    for h, w in zip(have, want, strict=True):
        assert (h.double() - w).abs().max() <= 1e-4 * (1 + w.abs().max())


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


def test_a_row_of_nan_stays_in_its_token(case, generator):
    args = case.make((6,), torch.float32, generator)
    before = outputs_of(case, args)
    first = next(t for t in flatten(args) if 6 in t.shape)
    first.select(first.shape.index(6), 2).fill_(torch.nan)
    for a, b in zip(before, outputs_of(case, args), strict=True):
        keep = [t for t in range(6) if t != 2]
        index = torch.tensor(keep)
        dim = a.shape.index(6)
        assert torch.equal(a.index_select(dim, index), b.index_select(dim, index))


def test_a_token_alone_is_the_token_in_its_batch(case, generator):
    args = case.make((7,), torch.bfloat16, generator)
    batch = outputs_of(case, args)

    def fifth(t: Tensor) -> Tensor:
        return t.narrow(t.shape.index(7), 4, 1) if 7 in t.shape else t

    for a, b in zip(batch, outputs_of(case, map_tensors(fifth, args)), strict=True):
        assert torch.equal(fifth(a), b)
