"""A changed parameter is what the next call uses, however it was changed: for one token, where a
copy of phi kept from an earlier call would pay most, and for many, where phi is packed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import anabranch
from anabranch import eager
from anabranch.nn import HyperConnection, HyperConnectionHead

N, D = 4, 160
K = N * D
COUNTS = [1, 3, 16, 70]


def randn(*shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(shape) * scale


def in_place(phi: Tensor) -> Tensor:
    with torch.no_grad():
        phi.mul_(-1.5)
    return phi


def one_element(phi: Tensor) -> Tensor:
    with torch.no_grad():
        phi[1, 7] += 3
    return phi


def data(phi: Tensor) -> Tensor:
    phi.data = randn(*phi.shape, scale=K**-0.5)
    return phi


def data_in_place(phi: Tensor) -> Tensor:
    phi.data.add_(0.1)  # autograd's version counter does not see it
    return phi


def behind_its_back(phi: Tensor) -> Tensor:
    phi.detach().numpy()[:] *= 2  # nor this
    return phi


def set_storage(phi: Tensor) -> Tensor:
    with torch.no_grad():
        phi.set_(randn(*phi.shape, scale=K**-0.5))
    return phi


def freed_and_made_again(phi: Tensor) -> Tensor:
    shape = phi.shape
    del phi
    return randn(*shape, scale=K**-0.5)  # most likely at the same address


CHANGES: list[Callable[[Tensor], Tensor]] = [
    in_place,
    one_element,
    data,
    data_in_place,
    behind_its_back,
    set_storage,
    freed_and_made_again,
]


def pre_sinkhorn(module: object, x: Tensor, phi: Tensor) -> tuple[Tensor, ...]:
    return module.mhc_pre_sinkhorn(x, phi, torch.ones(3), torch.zeros(24))


def pre(module: object, x: Tensor, phi: Tensor) -> tuple[Tensor, ...]:
    return module.mhc_pre(x, phi, torch.ones(3), torch.zeros(24))


def head(module: object, x: Tensor, phi: Tensor) -> tuple[Tensor, ...]:
    return (module.mhc_head(x, phi[:N], torch.zeros(N), torch.ones(1)),)


@pytest.mark.parametrize("tokens", COUNTS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("call", [pre_sinkhorn, pre, head], ids=lambda f: f.__name__)
def test_functions_see_the_change(call, change, tokens):
    torch.manual_seed(1)
    x, phi = randn(tokens, N, D), randn(24, K, scale=K**-0.5)
    for _ in range(3):
        before = call(anabranch, x, phi)
    phi = change(phi)
    after = call(anabranch, x, phi)
    wanted = call(eager, x, phi)
    for have, want in zip(after, wanted, strict=True):
        torch.testing.assert_close(have, want, rtol=2e-4, atol=2e-4)
    changed = [not torch.equal(a, b) for a, b in zip(before, after, strict=True)]
    assert any(changed), "the change made no difference: the test shows nothing"


@pytest.mark.parametrize("tokens", COUNTS)
def test_modules_see_optimiser_steps(tokens):
    torch.manual_seed(2)
    module = HyperConnection(D, N, nn.Identity())
    optimiser = torch.optim.AdamW(module.parameters(), lr=0.3)
    x = randn(1, tokens, N, D)
    for _ in range(4):
        c = module.coefficients
        with torch.no_grad():
            h_in, h_post, h_res = eager.mhc_pre_sinkhorn(x, c.fn, c.scale, c.base)
            wanted = eager.mhc_post(x, h_res, h_in, h_post)
            torch.testing.assert_close(module(x), wanted, rtol=2e-4, atol=2e-4)
        optimiser.zero_grad()
        module(x).square().mean().backward()
        optimiser.step()


def test_modules_see_what_is_loaded():
    torch.manual_seed(3)
    module, other = HyperConnectionHead(D, N), HyperConnectionHead(D, N)
    x = randn(1, 1, N, D)
    with torch.no_grad():
        other.fn.normal_()
        before = module(x)
        module.load_state_dict(other.state_dict())
        assert torch.equal(module(x), other(x))
        assert not torch.equal(module(x), before)
