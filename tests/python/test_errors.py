"""Bad input: the error names the operator, the argument, what it got and what it wants."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import anabranch
from anabranch.compat import ai_infra
from conftest import CASES, Case, flatten, map_tensors


def spoil(args: list[Any], index: int, how: Any) -> list[Any]:
    """The call with its index-th tensor (lists flattened) changed."""
    count = iter(range(1000))
    return map_tensors(lambda t: how(t) if next(count) == index else t, args)


def tensors_of(case: Case) -> list[tuple[list[Any], int]]:
    args = case.make((5,), torch.float32, torch.Generator().manual_seed(3))
    return [(args, index) for index in range(len(flatten(args)))]


SPOILED = {
    "int64": (lambda t: t.long(), r"has dtype int64, expected float"),
    "complex64": (lambda t: t + 0j, r"has dtype complex64, expected float"),
    "float64": (lambda t: t.double(), r"has dtype float(32|64), expected"),
    "sparse": (lambda t: t.to_sparse(), r"has layout sparse_coo, expected a dense"),
    "conjugate": (lambda t: torch.conj(t + 1j), r"has dtype complex64, expected float"),
    "0-dim": (lambda t: t.flatten()[0], r"has shape \(\), expected"),
    "longer": (lambda t: torch.cat([t, t], dim=-1), r"has shape \(.*\), expected"),
    "deeper": (lambda t: t.expand(*[2] * 9, *t.shape), r"has shape \(.*\), expected"),
}


@pytest.mark.parametrize("how", SPOILED)
def test_every_tensor_of_every_function(case, how):
    change, pattern = SPOILED[how]
    calls = tensors_of(case)
    if how == "float64" and len(calls) == 1:
        return  # all float64: the double reference
    for args, index in calls:
        bad = spoil(args, index, change)
        with pytest.raises(ValueError, match=rf"^{case.op}: \S+.* {pattern}") as eager_error:
            case.function(*bad, **case.kwargs)
        if how in ("sparse", "conjugate", "deeper"):
            continue  # no such thing as a fake tensor of these, or refused by torch before
        with (
            torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode,
            pytest.raises((ValueError, RuntimeError)) as fake_error,
        ):
            fake = map_tensors(mode.from_tensor, bad)
            case.function(*fake, **case.kwargs)
        assert str(eager_error.value) in str(fake_error.value)


@pytest.mark.parametrize("name", ["mhc_post", "mhc_pre", "block_attn_res"])
def test_compile_gives_the_same_words(name):
    case = next(c for c in CASES if c.name == name)
    args, _ = tensors_of(case)[0]
    bad = spoil(args, len(flatten(args)) - 1, lambda t: torch.cat([t, t], dim=-1))
    with pytest.raises(ValueError) as eager_error:
        case.function(*bad, **case.kwargs)
    compiled = torch.compile(
        lambda *a: case.function(*a, **case.kwargs), fullgraph=True, backend="eager"
    )
    with pytest.raises(Exception, match=re.escape(str(eager_error.value))):
        compiled(*bad)


def test_absent_and_foreign_arguments():
    x, h_res, h_out, h_post = CASES[0].make((5,), torch.float32, torch.Generator().manual_seed(3))
    with pytest.raises(ValueError, match="mhc_post: h_out is absent, expected a tensor"):
        anabranch.mhc_post(x, h_res, None, h_post)
    with pytest.raises(TypeError, match="mhc_post: h_post is a int, expected a tensor"):
        anabranch.mhc_post(x, h_res, h_out, 3)
    with pytest.raises(ValueError, match=r"mhc_post: \S+ is on device (cpu|meta), expected"):
        anabranch.mhc_post(x.to("meta"), h_res, h_out, h_post)
    with pytest.raises(TypeError, match=r"block_attn_res: blocks\[1\] is a str, expected a tensor"):
        anabranch.block_attn_res([h_out, "h"], h_out[0])


def test_attributes():
    g = torch.Generator().manual_seed(3)
    pre = next(c for c in CASES if c.name == "mhc_pre").make((5,), torch.float32, g)
    with pytest.raises(ValueError, match="mhc_pre: residual is 'rows', expected one of 'matrix'"):
        anabranch.mhc_pre(*pre, residual="rows")
    with pytest.raises(ValueError, match=r"mhc_pre: norm_eps is -1, expected a finite"):
        anabranch.mhc_pre(*pre, norm_eps=-1.0)
    with pytest.raises(ValueError, match=r"mhc_pre: .*op_impl_mode"):
        anabranch.mhc_pre(*pre, op_impl_mode=2)
    with pytest.raises(ValueError, match="mhc_pre_sinkhorn: hc_mult is 3, expected 4"):
        anabranch.mhc_pre_sinkhorn(*pre, hc_mult=3)
    with pytest.raises(ValueError, match=r"mhc_pre_sinkhorn: .*num_iters"):
        anabranch.mhc_pre_sinkhorn(*pre, num_iters=0)
    with pytest.raises(ValueError, match="mhc_pre_sinkhorn: save is 'some', expected one of"):
        anabranch.mhc_pre_sinkhorn(*pre, save="some")


def test_block_attention_flags():
    blocks = [torch.randn(5, 24) for _ in range(2)]
    w = torch.randn(24)
    call = ai_infra.ai_infra_block_attn_res
    with pytest.raises(ValueError, match="ai_infra_block_attn_res: rmsnorm_gamma is absent"):
        call(blocks, w)
    with pytest.raises(ValueError, match="rms_out_flag is True, expected False without"):
        call(blocks, w, enable_rmsnorm=False, rms_out_flag=True)
    with pytest.raises(ValueError, match=r"ai_infra_block_attn_res_backward: rms_cache is absent"):
        ai_infra.ai_infra_block_attn_res_backward(
            blocks[0], blocks, w, torch.zeros(5, 2), rmsnorm_gamma=w
        )
