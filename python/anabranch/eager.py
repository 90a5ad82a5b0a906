"""The same functions composed of plain PyTorch operators.

Written to be read: each function is the definition, line for line, in float32 (float64 inputs stay
float64), rounded once at the end. Autograd differentiates them. They are the baseline that the
fused operators are measured against and the reference of the Python tests; nothing here is fused,
and second derivatives work.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor


def _wide(t: Tensor) -> Tensor:
    return t if t.dtype == torch.float64 else t.float()


def _square(t: Tensor, n: int) -> Tensor:
    return t.reshape(*t.shape[:-1], n, n)


def mhc_pre(
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    *,
    gamma: Tensor | None = None,
    norm_eps: float = 1e-6,
    hc_eps: float = 1e-6,
    residual: Literal["matrix", "permutation", "none"] = "matrix",
) -> tuple[Tensor, Tensor, Tensor | None]:
    """``(h_in, h_post, h_res)`` of :func:`anabranch.mhc_pre`."""
    n = x.shape[-2]
    streams = _wide(x)
    flat = streams.flatten(-2)
    inv_rms = torch.rsqrt(flat.square().mean(-1, keepdim=True) + norm_eps)
    weighted = flat if gamma is None else (streams * gamma).flatten(-2)
    w = (weighted @ phi.T) * inv_rms
    pre, post, rest = w[..., :n], w[..., n : 2 * n], w[..., 2 * n :]
    h_pre = torch.sigmoid(pre * alpha[0] + bias[:n]) + hc_eps
    h_post = 2 * torch.sigmoid(post * alpha[1] + bias[n : 2 * n])
    h_in = (h_pre.unsqueeze(-1) * streams).sum(-2).to(x.dtype)
    if residual == "none":
        return h_in, h_post, None
    h_res = rest * alpha[2] + bias[2 * n :]
    return h_in, h_post, _square(h_res, n) if residual == "matrix" else h_res


def mhc_sinkhorn(
    logits: Tensor,
    *,
    num_iters: int = 20,
    eps: float = 1e-6,
    clamp: tuple[float, float] | None = None,
) -> Tensor:
    """The matrix of :func:`anabranch.mhc_sinkhorn`."""
    if clamp is not None:
        logits = logits.clamp(*clamp)
    matrix = torch.softmax(logits, dim=-1) + eps
    matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    for _ in range(num_iters - 1):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + eps)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    return matrix


def mhc_permutation(logits: Tensor, n: int) -> Tensor:
    """The matrix of :func:`anabranch.mhc_permutation`."""
    order = list(itertools.permutations(range(n)))
    permutations = torch.zeros(len(order), n, n, dtype=logits.dtype, device=logits.device)
    for r, permutation in enumerate(order):
        for i, j in enumerate(permutation):
            permutations[r, i, j] = 1
    return torch.einsum("...r,rij->...ij", torch.softmax(logits, dim=-1), permutations)


def mhc_pre_sinkhorn(
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    hc_mult: int | None = None,
    num_iters: int = 20,
    hc_eps: float = 1e-6,
    norm_eps: float = 1e-6,
) -> tuple[Tensor, Tensor, Tensor]:
    """``(h_in, h_post, h_res)`` of :func:`anabranch.mhc_pre_sinkhorn`."""
    if hc_mult is not None and x.shape[-2] != hc_mult:
        raise ValueError(f"mhc_pre_sinkhorn: hc_mult is {hc_mult}, expected {x.shape[-2]} like x")
    h_in, h_post, logits = mhc_pre(x, phi, alpha, bias, norm_eps=norm_eps, hc_eps=hc_eps)
    assert logits is not None
    return h_in, h_post, mhc_sinkhorn(logits, num_iters=num_iters, eps=hc_eps)


def mhc_post(x: Tensor, h_res: Tensor | None, h_out: Tensor, h_post: Tensor) -> Tensor:
    """y of :func:`anabranch.mhc_post`."""
    n = x.shape[-2]
    mixed = _wide(x)
    if h_res is not None:
        matrix = _square(h_res, n) if h_res.ndim < x.ndim else h_res
        mixed = matrix.transpose(-1, -2) @ mixed
    return (h_post.unsqueeze(-1) * _wide(h_out).unsqueeze(-2) + mixed).to(x.dtype)


def mhc_head(
    x: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    *,
    norm_eps: float = 1e-6,
    hc_eps: float = 1e-6,
) -> Tensor:
    """y of :func:`anabranch.mhc_head`."""
    streams = _wide(x)
    flat = streams.flatten(-2)
    inv_rms = torch.rsqrt(flat.square().mean(-1, keepdim=True) + norm_eps)
    weight = torch.sigmoid((flat @ fn.T) * inv_rms * scale + base) + hc_eps
    return (weight.unsqueeze(-1) * streams).sum(-2).to(x.dtype)


def _scores(v: Tensor, q: Tensor, rmsnorm_eps: float, enable_rmsnorm: bool) -> Tensor:
    """``q . v / rms(v)`` for q ``[D]``."""
    scores = v @ q
    if not enable_rmsnorm:
        return scores
    return scores / torch.sqrt(v.square().mean(-1) + rmsnorm_eps)


def _query(w: Tensor, gamma: Tensor | None, scale: float, enable_rmsnorm: bool) -> Tensor:
    q = scale * _wide(w)
    return q if gamma is None or not enable_rmsnorm else q * _wide(gamma)


def block_attn_res(
    blocks: Sequence[Tensor],
    proj_weight: Tensor,
    partial_block: Tensor | None = None,
    scale: float = 1.0,
    rmsnorm_eps: float = 1e-6,
    rmsnorm_gamma: Tensor | None = None,
    enable_rmsnorm: bool = True,
) -> Tensor:
    """h of :func:`anabranch.block_attn_res`; the sources are stacked, as eager code does."""
    sources = [*blocks, *([] if partial_block is None else [partial_block])]
    v = _wide(torch.stack(sources))
    q = _query(proj_weight, rmsnorm_gamma, scale, enable_rmsnorm).reshape(-1)
    alpha = torch.softmax(_scores(v, q, rmsnorm_eps, enable_rmsnorm), dim=0)
    return (alpha.unsqueeze(-1) * v).sum(0).to(blocks[0].dtype)


def attn_res_prepare(
    blocks: Sequence[Tensor],
    queries: Tensor,
    scale: float = 1.0,
    rmsnorm_eps: float = 1e-6,
    rmsnorm_gamma: Tensor | None = None,
    enable_rmsnorm: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """``(o, m, l)`` of :func:`anabranch.attn_res_prepare`."""
    v = _wide(torch.stack(list(blocks)))
    q = _query(queries, rmsnorm_gamma, scale, enable_rmsnorm)
    s = torch.stack([_scores(v, row, rmsnorm_eps, enable_rmsnorm) for row in q])  # [S, N, *]
    m = s.amax(1)
    weights = torch.exp(s - m.unsqueeze(1))
    return (weights.unsqueeze(-1) * v).sum(1), m, weights.sum(1)


def attn_res_merge(
    o: Tensor,
    m: Tensor,
    l: Tensor,  # noqa: E741
    v: Tensor,
    query: Tensor,
    scale: float = 1.0,
    rmsnorm_eps: float = 1e-6,
    rmsnorm_gamma: Tensor | None = None,
    enable_rmsnorm: bool = True,
) -> Tensor:
    """h of :func:`anabranch.attn_res_merge`."""
    wide = _wide(v)
    q = _query(query, rmsnorm_gamma, scale, enable_rmsnorm).reshape(-1)
    s = _scores(wide, q, rmsnorm_eps, enable_rmsnorm)
    top = torch.maximum(m, s)
    a, b = torch.exp(m - top), torch.exp(s - top)
    h = (o * a.unsqueeze(-1) + wide * b.unsqueeze(-1)) / (l * a + b).unsqueeze(-1)
    return h.to(v.dtype)
