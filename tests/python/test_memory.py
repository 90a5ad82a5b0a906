"""What is allocated and kept: outputs, documented caches and workspace, nothing else."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import anabranch
from conftest import CASES, flatten, leaves

TOKENS, N, F, L = 16, 4, 24, 3
# Bytes a token beside the inputs, as the docstrings say.
SAVED = {
    "mhc_post": 0,
    "mhc_post_flat": 0,
    "mhc_post_unmixed": 0,
    "mhc_pre": 4 * (1 + F + 2 * N),
    "mhc_pre_gamma": 4 * (1 + F + 2 * N),
    "mhc_pre_none": 4 * (1 + 8 + 2 * N),
    "mhc_pre_permutation": 4 * (1 + 12 + 2 * 3),
    "mhc_pre_sinkhorn": 4 * (1 + F + N),
    "mhc_sinkhorn": 0,
    "mhc_sinkhorn_clamp": 0,
    "mhc_permutation": 0,
    "mhc_head": 4 * (1 + 2 * N),
    "block_attn_res": 8 * L,
    "block_attn_res_partial": 8 * (L + 1),
    "block_attn_res_raw": 4 * (L + 1),
    "block_attn_res_gamma": 8 * (L + 1),
    "attn_res_prepare": 0,
    "attn_res_prepare_gamma": 0,
    "attn_res_merge": 0,
}


def saved_bytes(case, inputs, **kwargs) -> int:
    known = {t.data_ptr() for t in flatten(inputs)}
    saved: dict[int, int] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        if t.data_ptr() not in known:
            saved[t.data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        case.function(*inputs, **case.kwargs, **kwargs)
    return sum(saved.values())


def test_saved_for_the_backward(case, generator):
    inputs = leaves(case.make((TOKENS,), torch.bfloat16, generator))
    assert saved_bytes(case, inputs) == SAVED[case.name] * TOKENS


def test_save_all_keeps_the_iterates(generator):
    case = next(c for c in CASES if c.name == "mhc_pre_sinkhorn")
    inputs = leaves(case.make((TOKENS,), torch.bfloat16, generator))
    more = 8 * case.kwargs["num_iters"] * (N + N * N)
    assert saved_bytes(case, inputs, save="all") == (SAVED[case.name] + more) * TOKENS
    results = []
    for save in ("recompute", "all"):
        inputs = leaves(inputs)
        outputs = case.function(*inputs, **case.kwargs, save=save)
        torch.autograd.backward(outputs, [torch.ones_like(o) for o in outputs])
        results.append([*outputs, *(t.grad for t in inputs)])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_nothing_is_computed_for_a_backward_without_gradients(case, mode, generator):
    inputs = leaves(case.make((TOKENS,), torch.bfloat16, generator))
    produced: list[torch.Tensor] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if func.namespace == "anabranch":
                produced.extend(flatten(result))
            return result

    with mode(), Watch():
        outputs = flatten(case.function(*inputs, **case.kwargs))
    assert not any(o.requires_grad for o in outputs)
    assert sum(t.numel() for t in produced) == sum(o.numel() for o in outputs)


def test_allocations(case, generator):
    """The profiler sees outputs, and at most one workspace that does not grow with the tokens."""
    extra = []
    for tokens in (256, 1024):
        inputs = case.make((tokens,), torch.bfloat16, generator)
        with torch.no_grad():
            outputs = flatten(case.function(*inputs, **case.kwargs))
            with torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
            ) as profile:
                kept = case.function(*inputs, **case.kwargs)
            del kept
        allocated = sum(e.nbytes() for e in memory_events(profile) if e.nbytes() > 0)
        wanted = sum(o.untyped_storage().nbytes() for o in outputs)
        extra.append(allocated - wanted)
    threads = torch.get_num_threads()
    assert 0 <= extra[1] <= max(extra[0], 1 << 16) * max(threads, 1)


def memory_events(profile: torch.profiler.profile) -> list:
    events = profile.profiler.kineto_results.events()
    return [e for e in events if e.name() == "[memory]"]


def test_activation_checkpointing(case, generator):
    args = case.make((TOKENS,), torch.float32, generator)
    plain, checkpointed = leaves(args), leaves(args)

    def run(*inputs):
        return sum(o.square().sum() for o in flatten(case.function(*inputs, **case.kwargs)))

    run(*plain).backward()
    checkpoint(run, *checkpointed, use_reentrant=False).backward()
    for a, b in zip(flatten(plain), flatten(checkpointed), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_caches_of_the_explicit_backward(generator):
    case = next(c for c in CASES if c.name == "mhc_pre")
    inputs = leaves(case.make((TOKENS,), torch.float32, generator))
    h_in, h_post, h_res, *caches = anabranch.mhc_pre(*inputs, return_caches=True)
    grads = [torch.randn(o.shape, generator=generator) for o in (h_in, h_post, h_res)]
    torch.autograd.backward([h_in, h_post, h_res], grads)
    x, phi, alpha, _ = inputs
    explicit = anabranch.mhc_pre_backward(x, phi, alpha, *grads, *caches, h_post)
    for have, tensor in zip(explicit, inputs, strict=False):
        assert torch.equal(have, tensor.grad)
    assert explicit[4] is None
