"""anabranch.nn beside DeepSeek-V4 of Hugging Face."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from anabranch import nn
from nn_cases import DIM, Mlp, N, relative


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(20240607)


# A fresh network


def deepseek(kind: str) -> Any:
    pytest.importorskip("transformers")
    from transformers.models.deepseek_v4 import modeling_deepseek_v4 as hf
    from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config

    config = DeepseekV4Config(hidden_size=DIM, hc_mult=N)
    module = getattr(hf, kind)
    if kind == "DeepseekV4DecoderLayer":
        return module
    theirs = module(config)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(noise / parameter.shape[-1] ** 0.5 if "fn" in name else noise)
    return theirs


def gradients(module: torch.nn.Module) -> list[Tensor]:
    return [p.grad for _, p in sorted(module.named_parameters())]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_coefficients_are_those_of_deepseek_v4(dtype):
    theirs = deepseek("DeepseekV4HyperConnection")
    ours = nn.HyperConnection(DIM, N, preset="deepseek_v4")
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 9, N, DIM).to(dtype)
    x_ours, x_theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    post, comb, collapsed = theirs(x_theirs)
    h_in, state = ours.pre(x_ours)
    torch.testing.assert_close(state.h_post, post, rtol=2e-5, atol=1e-6)
    torch.testing.assert_close(state.h_res, comb, rtol=2e-5, atol=1e-6)
    # Both round once, so that a value between two bfloat16 may go either way.
    ulp = 1e-6 if dtype == torch.float32 else 2**-7
    torch.testing.assert_close(h_in, collapsed, rtol=ulp, atol=1e-5)
    weights = [torch.randn(t.shape).to(t.dtype) for t in (h_in, post, comb)]
    torch.autograd.backward([h_in, *state], weights)
    torch.autograd.backward([collapsed, post, comb], weights)
    for a, b in zip(gradients(ours), gradients(theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(x_ours.grad, x_theirs.grad, rtol=2 * ulp + 1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_is_that_of_deepseek_v4(dtype):
    """Their decoder layer's own forward, with two other sublayers, against ours."""
    sublayers = [Mlp(DIM, norm=False).to(dtype) for _ in range(2)]
    theirs = [deepseek("DeepseekV4HyperConnection") for _ in range(2)]
    layer = SimpleNamespace(
        attn_hc=theirs[0],
        ffn_hc=theirs[1],
        self_attn=lambda h: (sublayers[0](h), None),
        mlp=lambda h, input_ids: sublayers[1](h),
        input_layernorm=lambda h: h,
        post_attention_layernorm=lambda h: h,
    )
    x = torch.randn(2, 9, N, DIM).to(dtype)
    y = x
    for part, sublayer in zip(theirs, sublayers, strict=True):
        ours = nn.HyperConnection(DIM, N, sublayer)
        state = {f"coefficients.{k}": v for k, v in part.state_dict().items()}
        ours.load_state_dict(state, strict=False)
        if dtype == torch.bfloat16:  # the only difference: they round post and comb
            h_in, (h_post, h_res) = ours.pre(y)
            rounded = nn.MixState(h_post.to(dtype).float(), h_res.to(dtype).float())
            y = ours.post(y, sublayer(h_in), rounded)
        else:
            y = ours(y)
    want = inspect.unwrap(deepseek("DeepseekV4DecoderLayer").forward)(layer, x)
    # Beside post and comb they round every product and sum to bfloat16: 2**-8 each, two sublayers.
    tolerance = 2e-5 if dtype == torch.float32 else 8 * 2**-8
    torch.testing.assert_close(y, want, rtol=tolerance, atol=tolerance)
    assert relative(y.float(), want.float()) < (1e-5 if dtype == torch.float32 else 2**-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_head_is_that_of_deepseek_v4(dtype):
    theirs = deepseek("DeepseekV4HyperHead")
    ours = nn.HyperConnectionHead(DIM, N)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 9, N, DIM).to(dtype)
    have, want = ours(x), theirs(x)
    ulp = 1e-5 if dtype == torch.float32 else 2**-7
    torch.testing.assert_close(have, want, rtol=ulp, atol=1e-5)
    weight = torch.randn(want.shape).to(dtype)
    have.backward(weight)
    want.backward(weight)
    for a, b in zip(gradients(ours), gradients(theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
