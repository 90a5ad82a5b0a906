"""Formulas for ``torch.utils.flop_counter.FlopCounterMode``.

Counted as PyTorch counts: a multiplication and an addition are 2, and only sums of products count:
the projection, the weighted sums of streams and sources, their scores, and what comes back through
them. Sigmoids, softmaxes, norms and Sinkhorn's divisions count 0, as they do in PyTorch.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

_COUNTER = "torch.utils.flop_counter"


def _product(shape: Sequence[int]) -> int:
    result = 1
    for size in shape:
        result *= size
    return result


def _tokens(shape: Sequence[int], inner: int) -> int:
    return _product(shape[: len(shape) - inner])


def _pre(x: Sequence[int], phi: Sequence[int]) -> int:
    """The projection and h_in: both have one multiply-add an element of x, and a row of phi."""
    return 2 * _product(x) * (phi[0] + 1)


def _pre_backward(x: Sequence[int], phi: Sequence[int]) -> int:
    """grad_phi, what comes back through phi, d_hpre, and h_in's share of grad_x."""
    return 2 * _product(x) * (2 * phi[0] + 2)


def _post(x: Sequence[int], h_res: Sequence[int] | None) -> int:
    n, d = x[-2:]
    return 2 * _tokens(x, 2) * d * n * ((0 if h_res is None else n) + 1)


def _attention(sources: int, shape: Sequence[int], queries: int = 1) -> int:
    """Scores and weighted sum over the sources."""
    return 2 * queries * sources * _product(shape) * 2


def _formulas() -> dict[str, Callable[..., int]]:
    """One an operator; arguments are those of the schema, tensors as shapes."""

    def count(blocks: Any, partial: Any) -> int:
        return len(blocks) + (partial is not None)

    return {
        "mhc_pre": lambda x, phi, *_: _pre(x, phi),
        "mhc_pre_backward": lambda x, phi, *_: _pre_backward(x, phi),
        "mhc_pre_sinkhorn": lambda x, phi, *_: _pre(x, phi),
        "mhc_pre_sinkhorn_backward": lambda g, p, r, x, phi, *_: _pre_backward(x, phi),
        "mhc_head": lambda x, fn, *_: _pre(x, fn),
        "mhc_head_backward": lambda g, x, fn, *_: _pre_backward(x, fn),
        "mhc_post": lambda x, h_res, *_: _post(x, h_res),
        "mhc_post_backward": lambda g, x, h_res, *_: 2 * _post(x, h_res),
        "mhc_sinkhorn": lambda *_: 0,
        "mhc_sinkhorn_backward": lambda *_: 0,
        "mhc_permutation": lambda z: 2 * _product(z) * _STREAMS[z[-1]],
        "mhc_permutation_backward": lambda g, z: 2 * _product(z) * (_STREAMS[z[-1]] + 1),
        "block_attn_res": lambda b, p, *_: _attention(count(b, p), b[0]),
        "block_attn_res_backward": lambda g, b, p, *_: 2 * _attention(count(b, p), b[0]),
        "attn_res_prepare": lambda b, q, *_: _attention(len(b), b[0] if b else (0,), q[0]),
        "attn_res_prepare_backward": lambda o, m, s, b, q, *_: (
            2 * _attention(len(b), b[0] if b else (0,), q[0])
        ),
        "attn_res_merge": lambda o, m, s, v, *_: _attention(1, v) + 2 * _product(v),
        "attn_res_merge_backward": lambda g, o, m, s, v, *_: (
            2 * (_attention(1, v) + 2 * _product(v))
        ),
    }


_STREAMS = {1: 1, 2: 2, 6: 3, 24: 4, 120: 5}


def _register(counter: ModuleType) -> None:
    for name, formula in _formulas().items():
        packet = getattr(torch.ops.anabranch, name)

        def count(
            *args: Any, formula: Callable[..., int] = formula, out_shape: Any = None, **kwargs: Any
        ) -> int:
            return formula(*args)

        counter.register_flop_formula(packet)(count)


class _WhenImported(importlib.abc.MetaPathFinder):
    """Registers once the counter is imported: importing it takes longer than anabranch does."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _COUNTER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _register(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def register() -> None:
    """Registers the formulas, now or when the counter is imported."""
    if _COUNTER in sys.modules:
        _register(sys.modules[_COUNTER])
    else:
        sys.meta_path.insert(0, _WhenImported())
