"""Every argument of every function, spoiled: the error names operator, argument, got and wanted."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

import anabranch
from anabranch.compat import ai_infra
from conftest import flatten, map_tensors

T, N, D, F = 5, 4, 24, 24
Arguments = dict[str, Any]


def _t(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _pre() -> Arguments:
    return {"x": _t(T, N, D), "phi": _t(F, N * D), "alpha": _t(3), "bias": _t(F)}


def _pre_backward() -> Arguments:
    a = {k: v for k, v in _pre().items() if k != "bias"}
    _, h_post, _, inv_rms, h_mix, h_pre = anabranch.mhc_pre(**_pre(), return_caches=True)
    a |= {"grad_h_in": _t(T, D), "grad_h_post": _t(T, N), "grad_h_res": _t(T, N, N)}
    a |= {"inv_rms": inv_rms, "h_mix": h_mix, "h_pre": h_pre, "h_post": h_post}
    return a | {"gamma": _t(N, D), "grad_x_post": _t(T, N, D)}


def _pre_sinkhorn_backward() -> Arguments:
    caches = anabranch.mhc_pre_sinkhorn(**_pre(), return_caches=True)[3:]
    names = ("h_pre", "hc_before_norm", "inv_rms", "sum_out", "norm_out")
    grads = {"grad_h_in": _t(T, D), "grad_h_post": _t(T, N), "grad_h_res": _t(T, N, N)}
    return grads | _pre() | dict(zip(names, caches, strict=True))


def _post() -> Arguments:
    return {"x": _t(T, N, D), "h_res": _t(T, N, N), "h_out": _t(T, D), "h_post": _t(T, N)}


def _head() -> Arguments:
    return {"x": _t(T, N, D), "fn": _t(N, N * D), "base": _t(N), "scale": _t(1)}


def _blocks() -> Arguments:
    blocks = [_t(T, D), _t(T, D) + 1]
    more = {"partial_block": _t(T, D), "rmsnorm_gamma": _t(D)}
    return {"blocks": blocks, "proj_weight": _t(D)} | more


def _blocks_backward() -> Arguments:
    a = _blocks()
    _, rms, alpha = ai_infra.ai_infra_block_attn_res(**a, rms_out_flag=True, alpha_out_flag=True)
    return {"grad_h": _t(T, D)} | a | {"alpha_cache": alpha, "rms_cache": rms}


def _prepare() -> Arguments:
    return {"blocks": [_t(T, D), _t(T, D) + 1], "queries": _t(2, D), "rmsnorm_gamma": _t(2, D)}


def _merge() -> Arguments:
    a = {"o": _t(T, D), "m": _t(T), "l": _t(T).abs() + 1, "v": _t(T, D), "query": _t(D)}
    return a | {"rmsnorm_gamma": _t(D)}


@dataclass
class Call:
    function: Callable[..., Any]
    make: Callable[[], Arguments]
    options: Arguments
    # Attributes and what is wrong with them; the message has the attribute's name.
    attributes: list[tuple[str, Any]]
    optional: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def op(self) -> str:
        """How errors call the operator: the function's own name or the operator's behind it."""
        return rf"({self.name}|{self.name.removeprefix('ai_infra_')})"

    def __call__(self, arguments: Arguments, **changed: Any) -> Any:
        return self.function(**{**arguments, **self.options, **changed})

    def __repr__(self) -> str:
        return self.name


NAN, INF = float("nan"), float("inf")
HC = [("hc_eps", -1.0), ("hc_eps", NAN), ("hc_eps", "a")]
NORM = [("norm_eps", -1.0), ("norm_eps", INF)]
ITERS = [("num_iters", 0), ("num_iters", -3), ("num_iters", "2")]
SINKHORN = [*ITERS, ("eps", NAN), ("eps", -1.0), ("clamp", (1.0, -1.0)), ("clamp", (NAN, 1.0))]
SINKHORN += [("clamp", (1.0,)), ("clamp", 3.0)]
MODE = [("op_impl_mode", 2), ("op_impl_mode", -1), ("op_impl_mode", "fast")]
SCORES = [("scale", NAN), ("scale", INF), ("rmsnorm_eps", -1.0), ("rmsnorm_eps", NAN)]
SAVE = [("save", "some"), ("save", None)]

CALLS = [
    Call(anabranch.mhc_pre, lambda: {**_pre(), "gamma": _t(N, D)}, {},
         [*HC, *NORM, *MODE, ("residual", "rows"), ("residual", None)], ("gamma",)),
    Call(anabranch.mhc_pre_backward, _pre_backward, {}, [*HC, *MODE],
         ("gamma", "grad_x_post", "grad_h_res")),
    Call(anabranch.mhc_sinkhorn, lambda: {"logits": _t(T, N, N)}, {}, [*SINKHORN, *SAVE]),
    Call(anabranch.mhc_sinkhorn_backward,
         lambda: {"grad_h_res": _t(T, N, N), "logits": _t(T, N, N)}, {}, SINKHORN),
    Call(anabranch.mhc_permutation, lambda: {"logits": _t(T, 6)}, {"n": 3},
         [("n", 0), ("n", 6), ("n", "3"), ("n", 2)]),
    Call(anabranch.mhc_pre_sinkhorn, _pre, {}, [*HC, *NORM, *ITERS, *SAVE, ("hc_mult", 3)]),
    Call(anabranch.mhc_pre_sinkhorn_backward, _pre_sinkhorn_backward, {}, HC,
         ("sum_out", "norm_out")),
    Call(anabranch.mhc_post, _post, {}, [], ("h_res",)),
    Call(anabranch.mhc_post_backward, lambda: {"grad_output": _t(T, N, D), **_post()}, {}, [],
         ("h_res",)),
    Call(anabranch.mhc_head, _head, {}, [*HC, *NORM]),
    Call(anabranch.block_attn_res, _blocks, {}, SCORES, ("partial_block", "rmsnorm_gamma")),
    Call(ai_infra.ai_infra_block_attn_res, _blocks, {}, SCORES, ("partial_block",)),
    Call(ai_infra.ai_infra_block_attn_res_backward, _blocks_backward, {},
         [("scale", NAN), ("scale", "1")], ("partial_block",)),
    Call(anabranch.attn_res_prepare, _prepare, {}, SCORES, ("rmsnorm_gamma",)),
    Call(anabranch.attn_res_merge, _merge, {}, SCORES, ("rmsnorm_gamma",)),
]  # fmt: skip


def slots(call: Call) -> list[str]:
    """Names of all tensor arguments; blocks one by one."""
    names = []
    for name, value in call.make().items():
        names += [f"{name}[{i}]" for i in range(len(value))] if name == "blocks" else [name]
    return names


def spoil(arguments: Arguments, slot: str, how: Callable[[torch.Tensor], Any]) -> Arguments:
    name, _, index = slot.partition("[")
    if not index:
        return {**arguments, name: how(arguments[name])}
    blocks = list(arguments[name])
    blocks[int(index[:-1])] = how(blocks[int(index[:-1])])
    return {**arguments, name: blocks}


FLOATS = "expected (one of )?(float|bfloat)"
SPOILED: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "int64": (lambda t: t.long(), f"has dtype int64, {FLOATS}"),
    "int8": (lambda t: t.char(), f"has dtype int8, {FLOATS}"),
    "bool": (lambda t: t > 0, f"has dtype bool, {FLOATS}"),
    "float8": (lambda t: t.to(torch.float8_e4m3fn), f"has dtype float8_e4m3fn, {FLOATS}"),
    "complex": (lambda t: t + 0j, f"has dtype complex64, {FLOATS}"),
    "conjugate": (lambda t: torch.conj(t + 1j), f"has dtype complex64, {FLOATS}"),
    "quantised": (
        lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8),
        f"has dtype qint8, {FLOATS}",
    ),
    "sparse": (lambda t: t.to_sparse(), "has layout sparse_coo, expected a dense"),
    "meta": (lambda t: t.to("meta"), "is on device (cpu|meta), expected (cpu|meta)"),
    "0-dim": (lambda t: t.flatten()[0], r"has shape \(\), expected"),
    "longer": (lambda t: torch.cat([t, t], dim=-1), r"has shape \(.*\), expected|is .*, expected"),
    "deeper": (lambda t: t.expand(*[2] * 9, *t.shape), r"has shape \(.*\), expected|has rank"),
    "nothing wide": (lambda t: t[..., :0], r"(has shape \(.*\), |is 0, )expected"),
    "a string": (lambda t: "t", "is a str, expected a tensor"),
    "a number": (lambda t: 3, "is a int, expected a tensor"),
}


def message(pattern: str, call: Call) -> str:
    # hc_before_norm is the published name of h_mix.
    names = "|".join(re.escape(n) for n in [*slots(call), "blocks", "h_mix"])
    return rf"^{call.op}: ({names})[^\n]* ({pattern})"


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("call", CALLS, ids=repr)
def test_every_argument(call, how):
    change, pattern = SPOILED[how]
    if call.name == "mhc_permutation":
        pattern = rf"({pattern})|expected 6 last"
    if how == "meta" and len(slots(call)) == 1:
        assert call(spoil(call.make(), "logits", change)).is_meta
        return
    for slot in slots(call):
        bad = spoil(call.make(), slot, change)
        with pytest.raises((ValueError, TypeError)) as plain:
            call(bad)
        assert re.search(message(pattern, call), str(plain.value)), (slot, str(plain.value))
        # With gradients wanted the words are the same.
        with pytest.raises(type(plain.value)) as recorded:
            call(map_trainable(bad))
        assert str(recorded.value) == str(plain.value)


CACHES = ("inv_rms", "h_mix", "h_pre", "hc_before_norm", "sum_out", "norm_out", "alpha_cache",
          "rms_cache")  # fmt: skip


@pytest.mark.parametrize("call", [c for c in CALLS if set(CACHES) & set(c.make())], ids=repr)
def test_caches_of_the_wrong_size(call):
    """One longer or shorter in any dimension: refused by name."""
    arguments = call.make()
    for slot in set(CACHES) & set(arguments):
        right = arguments[slot]
        for dim, more in itertools.product(range(right.ndim), (1, -1)):
            shape = [size + more * (k == dim) for k, size in enumerate(right.shape)]
            with pytest.raises(ValueError, match=rf"^{call.op}: .*expected") as error:
                call({**arguments, slot: right.new_zeros(shape)})
            assert "cache" in str(error.value) or "has shape" in str(error.value)


def map_trainable(arguments: Arguments) -> Arguments:
    def trainable(t: torch.Tensor) -> torch.Tensor:
        floating = t.is_floating_point() and not t.is_sparse
        return t.detach().requires_grad_() if floating else t

    return {k: map_tensors(trainable, v) for k, v in arguments.items()}


FAKE = ("int64", "int8", "bool", "float8", "complex", "0-dim", "longer", "nothing wide")


@pytest.mark.parametrize("call", CALLS, ids=repr)
def test_fake_kernels_use_the_same_words(call):
    for slot, how in itertools.product(slots(call), FAKE):
        bad = spoil(call.make(), slot, SPOILED[how][0])
        with pytest.raises(ValueError) as plain:
            call(bad)
        with FakeTensorMode() as mode:
            fake = {k: map_tensors(mode.from_tensor, v) for k, v in bad.items()}
            with pytest.raises((ValueError, RuntimeError)) as traced:
                call(fake)
        assert str(plain.value) in str(traced.value), (slot, how)


@pytest.mark.parametrize("call", CALLS, ids=repr)
def test_compilers_use_the_same_words(call):
    for slot in slots(call)[:2]:
        bad = spoil(call.make(), slot, SPOILED["longer"][0])
        with pytest.raises(ValueError) as plain:
            call(bad)
        compiled = torch.compile(lambda a: call(a), fullgraph=True, backend="eager")
        with pytest.raises(Exception, match=re.escape(str(plain.value))):
            compiled(bad)
        torch._dynamo.reset()


@pytest.mark.parametrize("call", CALLS, ids=repr)
def test_absent(call):
    for slot in slots(call):
        bad = spoil(call.make(), slot, lambda t: None)
        if slot not in call.optional:
            name = re.escape(slot)
            with pytest.raises(ValueError, match=rf"^{call.op}: {name} is absent, expected"):
                call(bad)
        elif slot not in ("grad_h_res", "sum_out", "norm_out", "partial_block"):
            call(bad)  # those left out need other changes as well


@pytest.mark.parametrize("call", CALLS, ids=repr)
def test_other_devices(call):
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        arguments = {
            k: map_tensors(lambda t: mode.from_tensor(t).to("cuda"), v)
            for k, v in call.make().items()
        }
        with pytest.raises((ValueError, RuntimeError), match=r"is on device cuda:0, expected cpu"):
            call(arguments)


ATTRIBUTES = [(call, *item) for call in CALLS for item in call.attributes]


@pytest.mark.parametrize(("call", "attribute", "value"), ATTRIBUTES, ids=str)
def test_attributes(call, attribute, value):
    # A value of another type is refused by the dispatcher, which names operator and argument.
    match = rf"(^|anabranch::){call.op}(\(\))?[: ].*(clamp|{attribute})"
    if isinstance(value, str):
        match = rf"{match}|^{call.op}: logits has shape"
    with pytest.raises((ValueError, RuntimeError), match=match):
        call(call.make(), **{attribute: value})


@pytest.mark.parametrize("call", [c for c in CALLS if "blocks" in c.make()], ids=repr)
def test_blocks(call):
    arguments = call.make()
    for bad, words in (
        (None, "blocks is absent, expected a list of tensors"),
        (3, "blocks is a int, expected a list of tensors"),
        ({}, "blocks is a dict, expected a list of tensors"),
        (_t(), r"blocks is a Tensor, expected a list of tensors|blocks has shape \(\)"),
    ):
        with pytest.raises((ValueError, TypeError), match=rf"^{call.op}: ({words})"):
            call({**arguments, "blocks": bad})
    if call.name != "attn_res_prepare":
        with pytest.raises(ValueError, match=rf"^{call.op}: .*blocks"):
            call({**arguments, "blocks": []})
    with pytest.raises(ValueError, match=rf"^{call.op}: .*blocks"):
        call({**arguments, "blocks": [_t(T, D)] * 128})


class Tagged(torch.Tensor):
    """A subclass that adds nothing."""


@pytest.mark.parametrize("call", CALLS, ids=repr)
def test_subclasses_compute_the_same(call):
    arguments = call.make()
    want = flatten(list(results(call, arguments)))
    tagged = {k: map_tensors(lambda t: t.as_subclass(Tagged), v) for k, v in arguments.items()}
    for have, expected in zip(flatten(list(results(call, tagged))), want, strict=True):
        assert torch.equal(have.as_subclass(torch.Tensor), expected)
    pairs = {k: map_tensors(lambda t: TwoTensor(t, t.clone()), v) for k, v in arguments.items()}
    for have, expected in zip(flatten(list(results(call, pairs))), want, strict=True):
        assert isinstance(have, TwoTensor)
        assert torch.equal(have.a, expected) and torch.equal(have.b, expected)


def results(call: Call, arguments: Arguments) -> tuple[Any, ...]:
    result = call(arguments)
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("call", CALLS, ids=repr)
def test_negated_views_are_read_as_their_values(call):
    arguments = call.make()
    negated = {k: map_tensors(lambda t: torch._neg_view(-t), v) for k, v in arguments.items()}
    for have, want in zip(
        flatten(list(results(call, negated))), flatten(list(results(call, arguments))), strict=True
    ):
        assert torch.equal(have, want)


def test_every_function_is_here():
    functions = {*anabranch.functional.__all__, *ai_infra.__all__}
    assert functions == {call.name for call in CALLS}
    for call in CALLS:
        named = inspect.signature(call.function).parameters
        assert set(call.make()) | set(call.options) <= set(named)
        tensors = {n for n, p in named.items() if "Tensor" in str(p.annotation)}
        assert tensors == set(call.make()), "a tensor argument that no test spoils"
