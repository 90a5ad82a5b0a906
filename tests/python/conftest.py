"""Shared by the Python tests: example calls of every function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

import anabranch
from anabranch import eager


@dataclass
class Case:
    """One differentiable function and how to make inputs for it."""

    name: str
    function: Callable[..., Any]
    reference: Callable[..., Any]
    make: Callable[..., list[Any]]  # (tokens, dtype, generator) -> positional arguments
    op: str = ""  # the dispatcher operator behind it
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.name


def _random(shape: tuple[int, ...], dtype: torch.dtype, g: torch.Generator) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=g).to(dtype)


def wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


N, D = 4, 24  # tests may set another D


def _post(h_res: str) -> Callable[..., list[Any]]:
    def make(tokens: tuple[int, ...], dtype: torch.dtype, g: torch.Generator) -> list[Any]:
        shape = {"matrix": (*tokens, N, N), "flat": (*tokens, N * N)}.get(h_res)
        return [
            _random((*tokens, N, D), dtype, g),
            None if shape is None else _random(shape, wide(dtype), g),
            _random((*tokens, D), dtype, g),
            _random((*tokens, N), wide(dtype), g),
        ]

    return make


def _pre(rows: int, n: int, alphas: int = 3) -> Callable[..., list[Any]]:
    def make(tokens: tuple[int, ...], dtype: torch.dtype, g: torch.Generator) -> list[Any]:
        w = wide(dtype)
        return [
            _random((*tokens, n, D), dtype, g),
            _random((rows, n * D), w, g) / (n * D) ** 0.5,
            _random((alphas,), w, g),
            _random((rows,), w, g),
        ]

    return make


def _blocks(partial: bool) -> Callable[..., list[Any]]:
    def make(tokens: tuple[int, ...], dtype: torch.dtype, g: torch.Generator) -> list[Any]:
        blocks = [_random((*tokens, D), dtype, g) for _ in range(3)]
        weight = _random((D,), wide(dtype), g) / D**0.5
        return [blocks, weight, _random((*tokens, D), dtype, g) if partial else None]

    return make


def _prepare(tokens: tuple[int, ...], dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    blocks = [_random((*tokens, D), dtype, g) for _ in range(3)]
    return [blocks, _random((2, D), wide(dtype), g) / D**0.5]


def _merge(tokens: tuple[int, ...], dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    blocks, queries = _prepare(tokens, dtype, g)
    o, m, l = eager.attn_res_prepare(blocks, queries)  # noqa: E741
    return [o[0], m[0], l[0], _random((*tokens, D), dtype, g), queries[0]]


def _logits(*shape: int) -> Callable[..., list[Any]]:
    def make(tokens: tuple[int, ...], dtype: torch.dtype, g: torch.Generator) -> list[Any]:
        return [_random((*tokens, *shape), wide(dtype), g)]

    return make


def _permutation(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda logits: function(logits, 3)


def _head(tokens: tuple[int, ...], dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    w = wide(dtype)
    return [
        _random((*tokens, N, D), dtype, g),
        _random((N, N * D), w, g) / (N * D) ** 0.5,
        _random((N,), w, g),
        _random((1,), w, g),
    ]


def _with_gamma(make: Callable[..., list[Any]], shape: tuple[int, ...]) -> Callable[..., list[Any]]:
    def gamma_last(tokens: tuple[int, ...], dtype: torch.dtype, g: torch.Generator) -> list[Any]:
        return [*make(tokens, dtype, g), _random((*shape, D), wide(dtype), g)]

    return gamma_last


def _gamma_as_keyword(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args[:-1], **{name: args[-1]}, **kwargs)

    return call


def _case(name: str, function: str, make: Callable[..., list[Any]], **kwargs: Any) -> Case:
    return Case(
        name, getattr(anabranch, function), getattr(eager, function), make, function, kwargs
    )


def _gamma_case(
    name: str, function: str, make: Callable[..., list[Any]], keyword: str, shape: tuple[int, ...]
) -> Case:
    return Case(
        name,
        _gamma_as_keyword(getattr(anabranch, function), keyword),
        _gamma_as_keyword(getattr(eager, function), keyword),
        _with_gamma(make, shape),
        function,
    )


CASES = [
    _case("mhc_post", "mhc_post", _post("matrix")),
    _case("mhc_post_flat", "mhc_post", _post("flat")),
    _case("mhc_post_unmixed", "mhc_post", _post("none")),
    _case("mhc_pre", "mhc_pre", _pre(24, 4)),
    _case("mhc_pre_permutation", "mhc_pre", _pre(12, 3), residual="permutation"),
    _case("mhc_pre_none", "mhc_pre", _pre(8, 4, 2), residual="none"),
    _gamma_case("mhc_pre_gamma", "mhc_pre", _pre(24, 4), "gamma", (4,)),
    _case("mhc_pre_sinkhorn", "mhc_pre_sinkhorn", _pre(24, 4), num_iters=5),
    _case("mhc_sinkhorn", "mhc_sinkhorn", _logits(4, 4), num_iters=5),
    _case("mhc_sinkhorn_clamp", "mhc_sinkhorn", _logits(3, 3), clamp=(-1.0, 0.5)),
    Case(
        "mhc_permutation",
        _permutation(anabranch.mhc_permutation),
        _permutation(eager.mhc_permutation),
        _logits(6),
        "mhc_permutation",
    ),
    _case("mhc_head", "mhc_head", _head),
    _case("block_attn_res", "block_attn_res", _blocks(False)),
    _case("block_attn_res_partial", "block_attn_res", _blocks(True), scale=0.7),
    _case("block_attn_res_raw", "block_attn_res", _blocks(True), enable_rmsnorm=False),
    _gamma_case("block_attn_res_gamma", "block_attn_res", _blocks(True), "rmsnorm_gamma", ()),
    _case("attn_res_prepare", "attn_res_prepare", _prepare),
    _gamma_case("attn_res_prepare_gamma", "attn_res_prepare", _prepare, "rmsnorm_gamma", (2,)),
    _case("attn_res_merge", "attn_res_merge", _merge),
]


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20240607)


@pytest.fixture(params=CASES, ids=repr)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def flatten(value: Any) -> list[Tensor]:
    """All tensors of a call's arguments or result, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in flatten(item)]
    return []


def map_tensors(function: Callable[[Tensor], Any], value: Any) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(function, item) for item in value)
    return value


def leaves(args: list[Any]) -> list[Any]:
    return map_tensors(lambda t: t.detach().clone().requires_grad_(), args)
