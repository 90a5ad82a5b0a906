"""Modules: a fresh network, DeepSeek-V4's numbers, state dicts, options, errors."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

import anabranch
from anabranch import nn
from nn_cases import DIM, NAMES, Attend, Mlp, N, hyper, modules, relative, spread


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(20240607)


# A fresh network


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("depth", [1, 24])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n": 1},
        {"n": 2},
        {"n": 7},
        {"n": 16},
        {"norm_weight": True},
        {"residual": "identity"},
        {"preset": "mhc_lite"},
        {"preset": "mhc_lite", "n": 5},
    ],
    ids=str,
)
def test_fresh_hyper_connections_are_a_plain_residual_network(options, depth, norm):
    n = options.get("n", N)
    layers = [
        nn.HyperConnection(DIM, sublayer=Mlp(DIM, norm), **{"n": N, **options})
        for _ in range(depth)
    ]
    head = nn.HyperConnectionHead(DIM, n)
    plain = torch.randn(3, 16, DIM)
    streams = nn.expand_streams(plain, n)
    with torch.no_grad():
        for layer in layers:
            streams = layer(streams)
            plain = plain + layer.sublayer(plain)
        for i in range(n):
            assert relative(streams[..., i, :], plain) < 0.01
        assert relative(head(streams), plain) < 0.01


def test_a_fresh_hyper_connection_is_near_the_identity():
    h_in, state = hyper().pre(nn.expand_streams(torch.randn(64, DIM), N))
    assert h_in.shape == (64, DIM)
    torch.testing.assert_close(state.h_post, torch.ones(64, N), rtol=0.03, atol=0)
    torch.testing.assert_close(state.h_res, torch.eye(N).expand(64, N, N), rtol=0, atol=0.012)


@pytest.mark.parametrize("depth", [1, 24])
@pytest.mark.parametrize("norm", [True, False])
def test_fresh_attention_residuals_are_a_plain_residual_network(depth, norm):
    """Of sublayers that start with a norm: a mean of the sources, not their sum, reaches them."""
    sublayers = [Mlp(DIM) for _ in range(depth)]
    mixers = [nn.AttentionResidual(DIM, norm=norm) for _ in range(depth + 1)]
    plain = torch.randn(3, 16, DIM)
    blocks, partial = [plain], None
    with torch.no_grad():
        for i, (sublayer, mixer) in enumerate(zip(sublayers, mixers, strict=False)):
            plain = plain + sublayer(plain)
            out = sublayer(mixer(blocks, partial))
            partial = out if partial is None else partial + out
            if i % 4 == 3:
                blocks, partial = [*blocks, partial], None
        h = mixers[-1](blocks, partial)
        sources = len(blocks) + (partial is not None)
    assert relative(h * sources, plain) < 0.01


def test_streams_part_and_everything_learns():
    """The start is near the plain network but no point of symmetry that training cannot leave."""
    layers = torch.nn.ModuleList([hyper() for _ in range(3)])
    head = nn.HyperConnectionHead(DIM, N)
    model = torch.nn.ModuleList([layers, head])
    x, target = torch.randn(32, DIM), torch.randn(32, DIM)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        streams = nn.expand_streams(x, N)
        for layer in layers:
            streams = layer(streams)
        loss = (head(streams) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        losses.append(loss.item())
        optimiser.step()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name
    assert losses[-1] < losses[0]
    assert relative(streams[:, 0], streams[:, 1]) > 0.02
    attend = nn.AttentionResidual(DIM)
    attend(list(torch.randn(3, 8, DIM))).square().sum().backward()
    assert attend.query.grad.abs().max() > 0


# State


def test_state_dict_names_and_shapes():
    def shapes(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
        return {k: tuple(v.shape) for k, v in module.state_dict().items()}

    k = N * DIM
    assert shapes(nn.HyperConnection(DIM, N)) == {
        "coefficients.fn": (24, k),
        "coefficients.base": (24,),
        "coefficients.scale": (3,),
    }
    identity = nn.HyperConnection(DIM, N, residual="identity", norm_weight=True)
    assert shapes(identity) == {
        "coefficients.fn": (8, k),
        "coefficients.base": (8,),
        "coefficients.scale": (2,),
        "coefficients.norm_weight": (N, DIM),
    }
    lite = shapes(nn.HyperConnection(DIM, 3, preset="mhc_lite"))
    assert lite["coefficients.fn"] == (12, 3 * DIM)
    assert shapes(nn.HyperConnectionHead(DIM, N)) == {"fn": (N, k), "base": (N,), "scale": (1,)}
    assert shapes(nn.AttentionResidual(DIM)) == {"query": (DIM,), "norm_weight": (DIM,)}
    assert shapes(nn.AttentionResidual(DIM, norm=False)) == {"query": (DIM,)}
    assert "sublayer.up.weight" in hyper().state_dict()


def test_strict_loading_still_notices_what_is_wrong():
    hc = nn.HyperConnection(DIM, N)
    state = hc.state_dict()
    with pytest.raises(RuntimeError, match=r"Missing key.*coefficients\.base"):
        hc.load_state_dict({k: v for k, v in state.items() if k != "coefficients.base"})
    with pytest.raises(RuntimeError, match=r"Unexpected key.*fn"):
        hc.load_state_dict({**state, "fn": state["coefficients.fn"]})
    with pytest.raises(RuntimeError, match=r"size mismatch for coefficients\.fn"):
        hc.load_state_dict(nn.HyperConnection(DIM, 2).state_dict())


@pytest.mark.parametrize("name", NAMES)
def test_deep_copy_and_pickle(name):
    module, x = modules()[name]
    want = module(x)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin(x), want)
        assert twin.extra_repr() == module.extra_repr()


def test_extra_repr_names_the_options():
    text = repr(hyper(norm_weight=True, clamp=(-1.0, 1.0), num_iters=3))
    for part in ("dim=48, n=4, preset='deepseek_v4'", "num_iters=3", "clamp=(-1.0, 1.0)"):
        assert part in text
    assert "norm_weight=True, norm_eps=1e-06, hc_eps=1e-06" in text
    assert "residual='permutation', norm_eps" in repr(hyper(preset="mhc_lite"))
    assert repr(nn.HyperConnectionHead(8, 2)).startswith("HyperConnectionHead(dim=8, n=2, norm_eps")
    assert repr(nn.AttentionResidual(8, norm=False)).startswith("AttentionResidual(dim=8, norm=F")


def test_presets_and_what_goes_before_them():
    assert nn.HyperConnection(DIM, N, preset="mhc_lite").coefficients.hc_eps == 0
    assert nn.HyperConnection(DIM, N, preset="mhc_lite", hc_eps=1e-3).coefficients.hc_eps == 1e-3
    plain = nn.HyperConnection(DIM, N).coefficients
    assert (plain.residual, plain.num_iters, plain.norm_eps) == ("sinkhorn", 20, 1e-6)


# The call


def test_arguments_reach_the_sublayer():
    seen = []

    def sublayer(h: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        seen.append((args, kwargs))
        return h

    nn.HyperConnection(DIM, N, sublayer)(torch.randn(3, N, DIM), 1, mask=None)
    assert seen == [((1,), {"mask": None})]


def test_pre_and_post_are_the_forward():
    hc, x = hyper(), torch.randn(3, N, DIM)
    spread(hc)
    h_in, state = hc.pre(x)
    assert torch.equal(hc.post(x, hc.sublayer(h_in), state), hc(x))


def test_options_are_those_of_the_functions():
    x = torch.randn(6, N, DIM)
    hc = hyper(norm_weight=True, clamp=(-0.5, 0.5), num_iters=3, norm_eps=1e-3, hc_eps=1e-4)
    spread(hc)
    c = hc.coefficients
    h_in, h_post, logits = anabranch.mhc_pre(
        x, c.fn, c.scale, c.base, gamma=c.norm_weight, norm_eps=1e-3, hc_eps=1e-4
    )
    h_res = anabranch.mhc_sinkhorn(logits, num_iters=3, eps=1e-4, clamp=(-0.5, 0.5))
    have, state = hc.pre(x)
    assert all(map(torch.equal, (have, *state), (h_in, h_post, h_res)))
    heads = nn.HyperConnectionHead(DIM, N, norm_eps=1e-2, hc_eps=1e-3)
    want = anabranch.mhc_head(x, heads.fn, heads.base, heads.scale, norm_eps=1e-2, hc_eps=1e-3)
    assert torch.equal(heads(x), want)
    attend = nn.AttentionResidual(DIM, scale=0.3, norm_eps=1e-2)
    spread(attend)
    blocks = list(torch.randn(3, 2, DIM))
    want = anabranch.block_attn_res(
        blocks[:2], attend.query, blocks[2], 0.3, 1e-2, attend.norm_weight
    )
    assert torch.equal(attend(blocks[:2], blocks[2]), want)
    assert not torch.equal(attend(blocks), anabranch.block_attn_res(blocks, attend.query))


# Errors

ERRORS = {
    "dim is 0, expected an integer >= 1": lambda: nn.HyperConnection(0),
    "n is 17, expected 1..16": lambda: nn.HyperConnection(8, 17),
    "n is True, expected an integer": lambda: nn.HyperConnection(8, True),
    "num_iters is 0, expected an": lambda: nn.HyperConnection(8, num_iters=0),
    "preset is 'v9', expected one of 'deepseek_v4', 'mhc_lite'": lambda: nn.HyperConnection(
        8, preset="v9"
    ),
    "residual is 'raw', expected one of 'sink": lambda: nn.HyperConnection(8, residual="raw"),
    "save is 'no', expected one of 'recom": lambda: nn.HyperConnection(8, save="no"),
    "n is 6, expected 1..5 for residual 'perm": lambda: nn.HyperConnection(8, 6, preset="mhc_lite"),
    "hc_eps is 0.25, expected 0 <= hc_eps < 1/4": lambda: nn.HyperConnection(8, hc_eps=0.25),
    "HyperConnection: norm_eps is -1, expected": lambda: nn.HyperConnection(8, norm_eps=-1),
    "HyperConnection: clamp is (1, -1), expected (low, high)": lambda: nn.HyperConnection(
        8, clamp=(1, -1)
    ),
    "clamp is set for residual 'permutation', expected None": lambda: nn.HyperConnection(
        8, preset="mhc_lite", clamp=(-1, 1)
    ),
    "HyperConnection: sublayer is a int, expected a callable": lambda: nn.HyperConnection(8, 4, 3),
    "HyperConnection: sublayer is None, expected a module": lambda: nn.HyperConnection(8)(
        torch.zeros(4, 8)
    ),
    "x has shape (2, 3, 8), expected (*, 4, 8)": lambda: nn.HyperConnection(8).pre(
        torch.zeros(2, 3, 8)
    ),
    "x has shape (8,), expected (*, 4, 8)": lambda: nn.HyperConnection(8).pre(torch.zeros(8)),
    "HyperConnection: x is a int, expected a tensor": lambda: nn.HyperConnection(8).pre(3),
    "HyperConnection: out is a tuple, expected a tensor": lambda: nn.HyperConnection(
        8, 4, lambda h: (h, None)
    )(torch.zeros(4, 8)),
    "out has shape (2, 7), expected (*, 8)": lambda: nn.HyperConnection(8, 4, lambda h: h[..., 1:])(
        torch.zeros(2, 4, 8)
    ),
    "HyperConnectionHead: n is 0": lambda: nn.HyperConnectionHead(8, 0),
    "HyperConnectionHead: n is 17": lambda: nn.HyperConnectionHead(8, 17),
    "HyperConnectionHead: hc_eps is 1": lambda: nn.HyperConnectionHead(8, hc_eps=1.0),
    "HyperConnectionHead: x has shape (4, 9)": lambda: nn.HyperConnectionHead(8)(torch.zeros(4, 9)),
    "AttentionResidual: dim is 0": lambda: nn.AttentionResidual(0),
    "AttentionResidual: blocks has 0 tensors": lambda: nn.AttentionResidual(8)([]),
    "AttentionResidual: blocks is a Tensor": lambda: nn.AttentionResidual(8)(torch.zeros(2, 8)),
    "AttentionResidual: blocks[1] has shape (2, 9)": lambda: nn.AttentionResidual(8)(
        [torch.zeros(2, 8), torch.zeros(2, 9)]
    ),
    "AttentionResidual: partial has shape (9,)": lambda: nn.AttentionResidual(8)(
        [torch.zeros(8)], torch.zeros(9)
    ),
    "AttentionResidual: norm_eps is nan": lambda: nn.AttentionResidual(8, norm_eps=float("nan")),
    "expand_streams: n is 0": lambda: nn.expand_streams(torch.zeros(8), 0),
    "expand_streams: x has shape ()": lambda: nn.expand_streams(torch.zeros(()), 2),
    # The functions' own words.
    "mhc_pre_sinkhorn: x has dtype int64": lambda: nn.HyperConnection(8).pre(
        torch.zeros(4, 8, dtype=torch.int64)
    ),
    "blocks[1] has shape (3, 8)": lambda: nn.AttentionResidual(8)(
        [torch.zeros(2, 8), torch.zeros(3, 8)]
    ),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors(text):
    with pytest.raises((ValueError, TypeError)) as error:
        ERRORS[text]()
    assert text in str(error.value)
    kind = TypeError if " is a " in text else ValueError
    assert type(error.value) is kind


def test_narrow_parameters_are_refused():
    """As FSDP2 makes them when a module is not sharded on its own."""
    hc, head, attend = nn.HyperConnection(DIM, N), nn.HyperConnectionHead(DIM), Attend(DIM)
    x = torch.randn(3, N, DIM).bfloat16()
    for module, owner, name, call in (
        (hc, hc.coefficients, "coefficients.fn", lambda: hc.pre(x)),
        (head, head, "fn", lambda: head(x)),
        (attend, attend, "query", lambda: attend(x)),
    ):
        first = next(iter(owner._parameters))
        setattr(owner, first, torch.nn.Parameter(getattr(owner, first).bfloat16()))
        with pytest.raises(ValueError, match=rf"{name} has dtype bfloat16, expected float32"):
            call()
        assert list(nn.fp32_modules(module)) == [owner]
