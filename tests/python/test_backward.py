"""The explicit backwards against autograd over the eager composition in double precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import anabranch
from anabranch import eager
from anabranch.compat import ai_infra
from conftest import flatten, map_tensors, wide

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-11}
TOKENS, N, D = (2, 3), 4, 24


class Maker:
    """Random tensors: activations of a dtype, coefficients of its wide one."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype, self.wide = dtype, wide(dtype)
        self.generator = torch.Generator().manual_seed(5)

    def activation(self, *shape: int) -> torch.Tensor:
        return self._normal(shape).to(self.dtype)

    def coefficient(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        return (self._normal(shape) * scale).to(self.wide)

    def _normal(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=self.generator)


def exact(function: Any, inputs: list[Any], grads: list[Any], **kwargs: Any) -> list[torch.Tensor]:
    """Gradients of all tensors of `inputs`, in double precision, by autograd."""
    double = map_tensors(lambda t: t.detach().double().requires_grad_(), inputs)
    outputs = flatten(function(*double, **kwargs))
    shaped = [g.double().reshape(o.shape) for g, o in zip(grads, outputs, strict=True)]
    torch.autograd.backward(outputs, shaped)
    return [t.grad for t in flatten(double)]


def close(have: list[Any], want: list[torch.Tensor], inputs: list[Any], dtype: torch.dtype) -> None:
    """Each gradient has its input's dtype and shape, and the value of the exact one."""
    for h, w, t in zip(have, want, flatten(inputs), strict=True):
        assert h.dtype == t.dtype and h.shape == t.shape
        error = (h.double() - w).abs().max()
        assert error <= TOLERANCE[dtype] * (1 + w.abs().max()), (h.shape, float(error))


@pytest.fixture(params=DTYPES, ids=str)
def make(request: pytest.FixtureRequest) -> Maker:
    return Maker(request.param)


@pytest.mark.parametrize("clamp", [None, (-0.5, 1.0)])
@pytest.mark.parametrize("iters", [1, 2, 20])
@pytest.mark.parametrize("n", [1, 3, 4, 16])
def test_sinkhorn(n, iters, clamp):
    for dtype in (torch.float64, torch.float32):
        make = Maker(dtype)
        logits, grad = make.coefficient(*TOKENS, n, n), make.coefficient(*TOKENS, n, n)
        options = {"num_iters": iters, "eps": 1e-6, "clamp": clamp}
        have = anabranch.mhc_sinkhorn_backward(grad, logits, **options)
        want = exact(eager.mhc_sinkhorn, [logits], [grad], **options)
        close([have], want, [logits], dtype)


def pre_inputs(make: Maker, rows: int, alphas: int = 3) -> list[torch.Tensor]:
    return [
        make.activation(*TOKENS, N, D),
        make.coefficient(rows, N * D, scale=(N * D) ** -0.5),
        make.coefficient(alphas),
        make.coefficient(rows),
    ]


@pytest.mark.parametrize("cached", [False, True], ids=["recomputed", "cached"])
@pytest.mark.parametrize("iters", [1, 5])
def test_pre_sinkhorn(make, iters, cached):
    inputs = pre_inputs(make, N * N + 2 * N)
    outputs = anabranch.mhc_pre_sinkhorn(*inputs, num_iters=iters, return_caches=True)
    _, _, _, h_pre, h_mix, inv_rms, sums, norms = outputs
    grads = [make.activation(*TOKENS, D), make.coefficient(*TOKENS, N)]
    grads.append(make.coefficient(*TOKENS, N, N))
    saved = (h_pre, h_mix, inv_rms)
    if cached:
        # The number of iterations is that of the caches.
        have = anabranch.mhc_pre_sinkhorn_backward(*grads, *inputs, *saved, sums, norms)
    else:
        have = anabranch.mhc_pre_sinkhorn_backward(*grads, *inputs, *saved, num_iters=iters)
    want = exact(eager.mhc_pre_sinkhorn, inputs, grads, num_iters=iters)
    close(have, want, inputs, make.dtype)
    flat = [*grads[:2], grads[2].flatten(-2)]
    again = anabranch.mhc_pre_sinkhorn_backward(*flat, *inputs, *saved, num_iters=iters)
    for a, b in zip(have, again, strict=True):
        assert torch.equal(a, b), "cached and recomputed iterates, or a flat h_res, differ"


def test_pre_sinkhorn_trusts_its_caches(make):
    """Another call's iterates give another gradient of the logits, not an error."""
    inputs = pre_inputs(make, N * N + 2 * N)
    *_, h_pre, h_mix, inv_rms, sums, norms = anabranch.mhc_pre_sinkhorn(*inputs, return_caches=True)
    grads = [make.activation(*TOKENS, D), make.coefficient(*TOKENS, N)]
    grads.append(make.coefficient(*TOKENS, N, N))
    saved = (h_pre, h_mix, inv_rms)
    right = anabranch.mhc_pre_sinkhorn_backward(*grads, *inputs, *saved, sums, norms)
    other = anabranch.mhc_pre_sinkhorn_backward(*grads, *inputs, *saved, sums, norms.flip(1))
    assert not torch.equal(right[3], other[3])
    absent = r"mhc_pre_sinkhorn_backward: (norm_out|sum_out) is absent"
    with pytest.raises(ValueError, match=absent):
        anabranch.mhc_pre_sinkhorn_backward(*grads, *inputs, *saved, sums, None)


RESIDUALS = {"matrix": (24, 3, (N, N)), "permutation": (32, 3, (24,)), "none": (8, 2, None)}


@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("with_gamma", [False, True], ids=["plain", "gamma"])
@pytest.mark.parametrize("mode", [0, 1])
def test_pre(make, residual, with_gamma, mode):
    rows, alphas, shape = RESIDUALS[residual]
    inputs = pre_inputs(make, rows, alphas)
    gamma = make.coefficient(N, D) if with_gamma else None
    options = {"residual": residual, "gamma": gamma}
    outputs = anabranch.mhc_pre(*inputs, **options, op_impl_mode=mode, return_caches=True)
    _, h_post, _, inv_rms, h_mix, h_pre = outputs
    grads = [make.activation(*TOKENS, D), make.coefficient(*TOKENS, N)]
    if shape is not None:
        grads.append(make.coefficient(*TOKENS, *shape))
    more = make.activation(*TOKENS, N, D)
    x, phi, alpha, _ = inputs

    def backward(grad_h_res: Any, grad_x_post: Any) -> Any:
        return anabranch.mhc_pre_backward(
            x, phi, alpha, *grads[:2], grad_h_res, inv_rms, h_mix, h_pre, h_post, gamma,
            grad_x_post, op_impl_mode=mode,
        )  # fmt: skip

    h_res = grads[2] if shape is not None else None
    *have, grad_gamma = backward(h_res, None)

    def reference(*args: torch.Tensor) -> Any:
        *first, last = args
        full = args if gamma is None else first
        return eager.mhc_pre(*full, gamma=None if gamma is None else last, residual=residual)

    everything = inputs if gamma is None else [*inputs, gamma]
    want = exact(reference, everything, grads)
    assert (grad_gamma is None) == (gamma is None)
    close(have if gamma is None else [*have, grad_gamma], want, everything, make.dtype)
    # The gradient of mhc_post's x is added before the one rounding.
    summed = backward(h_res, more)
    close([summed[0]], [want[0] + more.double()], [x], make.dtype)
    assert all(torch.equal(a, b) for a, b in zip(summed[1:4], have[1:4], strict=True))
    if residual == "matrix":
        flat = backward(h_res.flatten(-2), None)
        assert torch.equal(flat[0], have[0])


@pytest.mark.parametrize("h_res", ["matrix", "flat", "none"])
def test_post(make, h_res):
    mixed = None if h_res == "none" else make.coefficient(*TOKENS, N, N)
    if h_res == "flat":
        mixed = mixed.flatten(-2)
    x, h_out = make.activation(*TOKENS, N, D), make.activation(*TOKENS, D)
    h_post, grad = make.coefficient(*TOKENS, N), make.activation(*TOKENS, N, D)
    have = anabranch.mhc_post_backward(grad, x, mixed, h_out, h_post)
    assert (have[1] is None) == (mixed is None)
    want = exact(eager.mhc_post, [x, mixed, h_out, h_post], [grad])
    close([h for h in have if h is not None], want, [x, mixed, h_out, h_post], make.dtype)


@pytest.mark.parametrize("rms_out", [False, True])
@pytest.mark.parametrize("alpha_out", [False, True])
def test_block_attention_returns_by_flags(make, rms_out, alpha_out):
    blocks = [make.activation(*TOKENS, D) for _ in range(3)]
    w, gamma = make.coefficient(D), make.coefficient(D)
    result = ai_infra.ai_infra_block_attn_res(
        blocks, w, rmsnorm_gamma=gamma, rms_out_flag=rms_out, alpha_out_flag=alpha_out
    )
    h = anabranch.block_attn_res(blocks, w, rmsnorm_gamma=gamma)
    if not (rms_out or alpha_out):
        assert torch.equal(result, h)
        return
    assert torch.equal(result[0], h)
    shapes = ([(*TOKENS, 3, 1)] if rms_out else []) + ([(*TOKENS, 3)] if alpha_out else [])
    assert [tuple(c.shape) for c in result[1:]] == shapes
    assert all(c.dtype == make.wide for c in result[1:])
    if rms_out:
        v = torch.stack(blocks, -2).double()
        rms = torch.sqrt(v.square().mean(-1, keepdim=True) + 1e-6)
        torch.testing.assert_close(result[1].double(), rms, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm", [True, False], ids=["norm", "raw"])
@pytest.mark.parametrize("partial", [True, False], ids=["partial", "blocks"])
@pytest.mark.parametrize("narrow", [True, False], ids=["narrow", "wide"])
@pytest.mark.parametrize("rank", [1, 2])
def test_block_attention(make, norm, partial, narrow, rank):
    blocks = [make.activation(*TOKENS, D) for _ in range(3)]
    last = make.activation(*TOKENS, D) if partial else None
    shape = (D,) if rank == 1 else (1, D)
    w, gamma = make.coefficient(*shape, scale=0.3), make.coefficient(*shape)
    if narrow:
        w, gamma = w.to(make.dtype), gamma.to(make.dtype)
    grad = make.activation(*TOKENS, D)
    h, *caches = ai_infra.ai_infra_block_attn_res(
        blocks, w, last, 0.7, rmsnorm_gamma=gamma if norm else None, enable_rmsnorm=norm,
        rms_out_flag=norm, alpha_out_flag=True,
    )  # fmt: skip
    assert h.dtype == make.dtype
    have = ai_infra.ai_infra_block_attn_res_backward(
        grad, blocks, w, caches[-1], last, gamma if norm else None, caches[0] if norm else None,
        0.7, norm,
    )  # fmt: skip
    assert len(have) == (4 if norm else 3)
    assert isinstance(have[0], list) and len(have[0]) == 3
    assert (have[1] is None) == (last is None)

    def reference(*args: Any) -> Any:
        g = args[3] if norm else None
        return eager.block_attn_res(args[0], args[2], args[1], 0.7, 1e-6, g, norm)

    inputs = [blocks, last, w, *([gamma] if norm else [])]
    close(flatten(list(have)), exact(reference, inputs, [grad]), inputs, make.dtype)


@pytest.mark.parametrize("gamma_shape", [None, (D,), (2, D)], ids=str)
@pytest.mark.parametrize("norm", [True, False], ids=["norm", "raw"])
def test_prepare(make, gamma_shape, norm):
    blocks = [make.activation(*TOKENS, D) for _ in range(3)]
    queries = make.coefficient(2, D, scale=0.3)
    gamma = None if gamma_shape is None else make.coefficient(*gamma_shape)
    grads = [make.coefficient(2, *TOKENS, D), make.coefficient(2, *TOKENS)]
    grads.append(make.coefficient(2, *TOKENS))
    backward = torch.ops.anabranch.attn_res_prepare_backward
    grad_q, grad_gamma, stacked = backward(*grads, blocks, queries, gamma, 0.7, 1e-6, norm)

    def reference(blocks: Any, queries: Any, gamma: Any) -> Any:
        return eager.attn_res_prepare(blocks, queries, 0.7, 1e-6, gamma, norm)

    used = gamma is not None and norm
    inputs = [blocks, queries, gamma if used else None]
    want = exact(reference, inputs, grads)
    have = [*stacked.unbind(0), grad_q, *([grad_gamma] if used else [])]
    close(have, want, inputs, make.dtype)
    if gamma is not None and not norm:
        assert not grad_gamma.any()


@pytest.mark.parametrize("with_gamma", [False, True], ids=["plain", "gamma"])
@pytest.mark.parametrize("norm", [True, False], ids=["norm", "raw"])
def test_merge(make, with_gamma, norm):
    o, m, l = (make.coefficient(*TOKENS, *s) for s in ((D,), (), ()))  # noqa: E741
    l = l.abs() + 0.5  # noqa: E741
    v, query = make.activation(*TOKENS, D), make.coefficient(D, scale=0.3)
    gamma = make.coefficient(D) if with_gamma else None
    grad = make.activation(*TOKENS, D)
    backward = torch.ops.anabranch.attn_res_merge_backward
    *have, grad_gamma = backward(grad, o, m, l, v, query, gamma, 0.7, 1e-6, norm)

    def reference(*args: Any) -> Any:
        return eager.attn_res_merge(*args[:5], 0.7, 1e-6, args[5], norm)

    inputs = [o, m, l, v, query, gamma if norm else None]
    want = exact(reference, inputs, [grad])
    close([*have, *([grad_gamma] if with_gamma and norm else [])], want, inputs, make.dtype)


def test_head(make):
    x = make.activation(*TOKENS, N, D)
    fn, base = make.coefficient(N, N * D, scale=(N * D) ** -0.5), make.coefficient(N)
    scale, grad = make.coefficient(1), make.activation(*TOKENS, D)
    y, *saved = torch.ops.anabranch.mhc_head(x, fn, base, scale, 1e-6, 1e-6, True)
    have = torch.ops.anabranch.mhc_head_backward(grad, x, fn, scale, *saved, 1e-6)
    assert torch.equal(y, anabranch.mhc_head(x, fn, base, scale))
    inputs = [x, fn, base, scale]
    close(have, exact(eager.mhc_head, inputs, [grad]), inputs, make.dtype)


def test_permutation():
    for dtype in (torch.float64, torch.float32):
        make = Maker(dtype)
        for n, rows in ((1, 1), (2, 2), (3, 6), (4, 24), (5, 120)):
            logits, grad = make.coefficient(*TOKENS, rows), make.coefficient(*TOKENS, n, n)
            have = torch.ops.anabranch.mhc_permutation_backward(grad, logits)
            want = exact(lambda t, n=n: eager.mhc_permutation(t, n), [logits], [grad])
            close([have], want, [logits], dtype)


def test_no_blocks(make):
    """Legal: m is the lowest number, l and o are zero, and a merge gives its source."""
    queries = make.coefficient(2, D).requires_grad_()
    for blocks, tokens in (([], ()), (make.activation(0, *TOKENS, D), TOKENS)):
        o, m, l = anabranch.attn_res_prepare(blocks, queries)  # noqa: E741
        assert o.shape == (2, *tokens, D) and m.shape == l.shape == (2, *tokens)
        assert o.dtype == m.dtype == l.dtype == make.wide
        assert not o.any() and not l.any()
        assert bool((m == torch.finfo(torch.float32).min).all())
        (o.sum() + l.sum()).backward()
        assert not queries.grad.any()
        v = make.activation(*TOKENS, D)
        parts = (o[0].expand(*TOKENS, D), m[0].expand(TOKENS), l[0].expand(TOKENS))
        h = anabranch.attn_res_merge(*(p.detach() for p in parts), v, queries[0].detach())
        assert torch.equal(h, v)
        meta = map_tensors(lambda t: t.to("meta"), blocks)
        fake = anabranch.attn_res_prepare(meta, queries.to("meta"))
        assert [t.shape for t in fake] == [o.shape, m.shape, l.shape]


def test_stacked_blocks_are_a_list_of_blocks(make):
    stacked = make.activation(3, *TOKENS, D)
    w = make.coefficient(D)
    blocks = list(stacked.unbind(0))
    assert torch.equal(anabranch.block_attn_res(stacked, w), anabranch.block_attn_res(blocks, w))
