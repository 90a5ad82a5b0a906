"""torch.func: gradients, per-sample gradients, Jacobians; what is refused, and how."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import anabranch
from anabranch._ops import _library
from conftest import Case, flatten, leaves, map_tensors


def scalar(case: Case, args: list[Any]) -> Any:
    """A loss of a case's tensors, flattened, and those tensors."""
    tensors = flatten(args)

    def loss(*flat: torch.Tensor) -> torch.Tensor:
        rest = iter(flat)
        outputs = case.function(*map_tensors(lambda _: next(rest), args), **case.kwargs)
        return sum((i + 1) * o.square().sum() for i, o in enumerate(flatten(outputs)))

    return loss, tensors


def backward(case: Case, args: list[Any]) -> list[torch.Tensor]:
    inputs = leaves(args)
    loss, tensors = scalar(case, inputs)
    loss(*tensors).backward()
    return [t.grad for t in tensors]


def test_func_grad(case, generator):
    args = case.make((2, 3), torch.float32, generator)
    loss, tensors = scalar(case, args)
    have = torch.func.grad(loss, argnums=tuple(range(len(tensors))))(*tensors)
    for h, w in zip(have, backward(case, args), strict=True):
        assert torch.equal(h, w)


def test_gradients_of_samples(case, generator):
    """vmap of grad: each sample's own gradients, parameters shared."""
    samples = [case.make((3,), torch.float32, generator) for _ in range(4)]
    for sample in samples[1:]:  # one set of parameters
        for i, t in enumerate(flatten(samples[0])):
            if t.shape[:1] != (3,):
                flatten(sample)[i].copy_(t)
    loss, first = scalar(case, samples[0])
    columns = list(zip(*(flatten(s) for s in samples), strict=True))
    shared = [t.shape[:1] != (3,) for t in first]
    inputs = [c[0] if s else torch.stack(c) for c, s in zip(columns, shared, strict=True)]
    grad = torch.func.grad(loss, argnums=tuple(range(len(first))))
    have = torch.func.vmap(grad, in_dims=tuple(None if s else 0 for s in shared))(*inputs)
    for index, sample in enumerate(samples):
        for h, w in zip(have, backward(case, sample), strict=True):
            torch.testing.assert_close(h[index], w, rtol=1e-5, atol=1e-5)


def test_grad_of_vmap(case, generator):
    """Both ways of differentiating what is mapped: torch.func.grad, and autograd around it."""
    args = case.make((4, 3), torch.float32, generator)
    loss, tensors = scalar(case, args)
    dims = tuple(0 if tuple(t.shape[:2]) == (4, 3) else None for t in tensors)

    def mapped(*flat: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(loss, in_dims=dims)(*flat).sum()

    want = backward(case, args)
    have = torch.func.grad(mapped, argnums=tuple(range(len(tensors))))(*tensors)
    own = [t.clone().requires_grad_() for t in tensors]
    mapped(*own).backward()
    for h, o, w in zip(have, own, want, strict=True):
        torch.testing.assert_close(h, w, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(o.grad, w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [1, 3])
def test_jacobian(n):
    logits = torch.randn(n, n, dtype=torch.float64)
    have = torch.func.jacrev(anabranch.mhc_sinkhorn)(logits)
    want = torch.autograd.functional.jacobian(anabranch.eager.mhc_sinkhorn, logits)
    torch.testing.assert_close(have, want)


def test_functional_call_is_differentiable(generator):
    class Mix(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(24, generator=generator))

        def forward(self, blocks: list[torch.Tensor]) -> torch.Tensor:
            return anabranch.block_attn_res(blocks, self.weight)

    module = Mix()
    blocks = [torch.randn(3, 24, generator=generator) for _ in range(2)]

    def loss(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.func.functional_call(module, weights, (blocks,)).square().sum()

    have = torch.func.grad(loss)(dict(module.named_parameters()))["weight"]
    module(blocks).square().sum().backward()
    assert torch.equal(have, module.weight.grad)


def test_second_derivatives_are_refused(case, generator):
    args = case.make((2,), torch.float64, generator)
    loss, tensors = scalar(case, args)

    def once(*flat: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(loss)(*flat).square().sum()

    with pytest.raises(RuntimeError, match="second derivatives are not supported"):
        torch.func.grad(once)(*tensors)
    own = [t.clone().requires_grad_() for t in tensors]
    with pytest.raises(RuntimeError, match="second derivatives are not supported"):
        torch.autograd.gradgradcheck(loss, own)


def test_forward_mode_is_refused(case, generator):
    args = case.make((2,), torch.float64, generator)
    loss, tensors = scalar(case, args)
    with pytest.raises(RuntimeError, match="forward-mode derivatives are not supported"):
        torch.func.jvp(loss, tuple(tensors), tuple(tensors))


def test_gradients_that_nothing_asked_for(case, generator):
    """Each output alone: the others' gradients are absent, not zeros that someone allocated."""
    args = case.make((2,), torch.float64, generator)
    inputs = leaves(args)
    outputs = flatten(case.function(*inputs, **case.kwargs))
    reference = map_tensors(lambda t: t.detach().clone().requires_grad_(), args)
    expected = flatten(case.reference(*reference, **case.kwargs))
    for have, want in zip(outputs, expected, strict=True):
        for x, y in zip(gradients(have, inputs), gradients(want, reference), strict=True):
            torch.testing.assert_close(x, y)


def gradients(output: torch.Tensor, inputs: list[Any]) -> list[torch.Tensor]:
    tensors = flatten(inputs)
    loss = output.square().sum()
    grads = torch.autograd.grad(loss, tensors, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for t, g in zip(tensors, grads, strict=True)]


def test_every_operator_has_a_derivative_and_a_vmap_rule():
    operators = {anabranch.ops.get(name) for name in anabranch.ops.NAMES}
    assert set(_library._derivatives) == set(_library._vmap_rules) == operators
