"""Level 2: values and gradients against the eager composition, dtypes, strides, empty inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from conftest import Case, flatten, leaves, map_tensors, wide

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-11}


def run(function: Any, case: Case, args: list[Any], seed: int = 7) -> list[torch.Tensor]:
    """Outputs and gradients of all tensors for fixed random output gradients."""
    inputs = leaves(args)
    outputs = flatten(function(*inputs, **case.kwargs))
    g = torch.Generator().manual_seed(seed)
    grads = [torch.randn(o.shape, generator=g, dtype=torch.float64).to(o.dtype) for o in outputs]
    torch.autograd.backward(outputs, grads)
    return [*outputs, *(t.grad for t in flatten(inputs))]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("tokens", [(2, 3), (5,), ()], ids=str)
def test_matches_the_eager_composition(case, dtype, tokens, generator):
    args = case.make(tokens, dtype, generator)
    have = run(case.function, case, args)
    exact = map_tensors(lambda t: t.double(), args)
    want = run(case.reference, case, exact)
    plain = case.function(*args, **case.kwargs)
    for h, p in zip(have, flatten(plain), strict=False):
        assert torch.equal(h, p), "with and without autograd differ"
    for h, w in zip(have, want, strict=True):
        error = (h.double() - w).abs().max() if h.numel() else torch.tensor(0.0)
        assert error <= TOLERANCE[dtype] * (1 + w.abs().max()), (h.shape, error)
        assert h.shape == w.shape
    for grad, tensor in zip(have[-len(flatten(args)) :], flatten(args), strict=True):
        assert grad.dtype == tensor.dtype


def test_gradcheck(case, generator):
    args = case.make((2,), torch.float64, generator)
    structure = leaves(args)
    tensors = flatten(structure)

    def call(*flat: torch.Tensor) -> Any:
        rest = iter(flat)
        result = case.function(*map_tensors(lambda _: next(rest), structure), **case.kwargs)
        return tuple(flatten(result))

    assert torch.autograd.gradcheck(call, tensors)


def test_second_derivatives_are_refused(case, generator):
    inputs = leaves(case.make((2,), torch.float32, generator))
    outputs = flatten(case.function(*inputs, **case.kwargs))
    first = torch.autograd.grad(
        sum(o.square().sum() for o in outputs), flatten(inputs), create_graph=True
    )
    with pytest.raises(RuntimeError, match="second derivatives are not supported"):
        sum(g.square().sum() for g in first).backward()


def test_forward_mode_is_refused(case, generator):
    args = case.make((2,), torch.float32, generator)
    with torch.autograd.forward_ad.dual_level():
        dual = map_tensors(lambda t: torch.autograd.forward_ad.make_dual(t, t), args)
        with pytest.raises(RuntimeError, match="forward-mode derivatives are not supported"):
            case.function(*dual, **case.kwargs)


def scattered(t: torch.Tensor) -> torch.Tensor:
    """Equal values with awkward strides and an offset."""
    base = torch.full((*(2 * s + 1 for s in t.shape),), float("nan"), dtype=t.dtype)
    view = base[tuple(slice(1, None, 2) for _ in t.shape)]
    return view.copy_(t) if t.ndim else t


def test_any_strides(case, generator):
    args = case.make((2, 3), torch.float32, generator)
    want = run(case.function, case, args)
    strided = map_tensors(scattered, args)
    with torch.no_grad():
        result = case.function(*strided, **case.kwargs)
    for h, w in zip(flatten(result), want, strict=False):
        assert torch.equal(h, w)
    expanded = map_tensors(lambda t: t[:1].expand(t.shape) if t.ndim > 1 else t, args)
    dense = map_tensors(lambda t: t.contiguous(), expanded)
    for h, w in zip(
        flatten(case.function(*expanded, **case.kwargs)),
        flatten(case.function(*dense, **case.kwargs)),
        strict=True,
    ):
        assert torch.equal(h, w)


def test_no_tokens(case, generator):
    args = case.make((0,), torch.bfloat16, generator)
    for grad, tensor in zip(
        run(case.function, case, args)[-len(flatten(args)) :], flatten(args), strict=True
    ):
        assert grad.shape == tensor.shape
        assert not grad.any()


def test_negative_views_are_read_as_their_values(case, generator):
    args = case.make((3,), torch.float32, generator)
    negative = map_tensors(torch._neg_view, map_tensors(lambda t: -t, args))
    for h, w in zip(
        flatten(case.function(*negative, **case.kwargs)),
        flatten(case.function(*args, **case.kwargs)),
        strict=True,
    ):
        assert torch.equal(h, w)


def test_statistics_and_coefficients_are_float32(generator, case):
    args = case.make((3,), torch.bfloat16, generator)
    for output in flatten(case.function(*args, **case.kwargs)):
        assert output.dtype in (torch.bfloat16, wide(torch.bfloat16))
        assert output.is_contiguous()
