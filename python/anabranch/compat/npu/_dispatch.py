"""``torch.ops.npu`` and ``torch.ops.cann_ops_transformer``: operators of the dispatcher.

Every operator is a composition of those of ``torch.ops.anabranch``, so that eager calls, autograd,
torch.compile and torch.export see what they know. An output that is absent has no elements, for the
dispatcher knows no other absence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from anabranch import functional
from anabranch.compat.npu import _attention, _operators

_Library: Callable[..., Any] = torch.library.Library  # untyped in torch
_PRE = "Tensor x, Tensor phi, Tensor alpha"
_CACHES = "Tensor inv_rms, Tensor h_mix, Tensor h_pre, Tensor h_post"
_POST = "Tensor x, Tensor? h_res, Tensor h_out, Tensor h_post"

_SINKHORN_BACKWARD = (
    "(Tensor grad_h_in, Tensor grad_h_post, Tensor grad_h_res, Tensor x, Tensor phi, Tensor alpha, "
    "Tensor bias, Tensor h_pre, Tensor hc_before_norm, Tensor inv_rms, Tensor sum_out, "
    "Tensor norm_out, float hc_eps=1e-6) -> (Tensor, Tensor, Tensor, Tensor)"
)


def _transformer_pre_sinkhorn(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    result = _operators.mhc_pre_sinkhorn(*args, **kwargs)
    return (*result, *(result[1].new_empty((0,)) for _ in range(8 - len(result))))


# Namespace -> name -> (the rest of the schema, what computes it).
_OPERATORS: dict[str, dict[str, tuple[str, Callable[..., Any]]]] = {
    "npu": {
        "npu_mhc_pre": (
            f"({_PRE}, Tensor bias, *, Tensor? gamma=None, float norm_eps=1e-6, "
            "float hc_eps=1e-6, int out_flag=0, int inner_precise=0) -> "
            "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
            _operators.npu_mhc_pre,
        ),
        "npu_mhc_pre_backward": (
            f"({_PRE}, Tensor grad_h_in, Tensor grad_h_post, Tensor? grad_h_res, {_CACHES}, "
            "Tensor? gamma=None, float hc_eps=1e-6, Tensor? grad_x_post=None) -> "
            "(Tensor, Tensor, Tensor, Tensor, Tensor)",
            _operators.npu_mhc_pre_backward,
        ),
        "npu_mhc_sinkhorn": (
            "(Tensor x, *, float eps=1e-6, int num_iters=20, int out_flag=0) -> "
            "(Tensor, Tensor, Tensor)",
            _operators.npu_mhc_sinkhorn,
        ),
        "npu_mhc_sinkhorn_backward": (
            "(Tensor grad_y, Tensor norm, Tensor sum) -> Tensor",
            _operators.npu_mhc_sinkhorn_backward,
        ),
        "npu_mhc_post": (f"({_POST}) -> Tensor", _operators.npu_mhc_post),
        "npu_mhc_post_backward": (
            f"(Tensor grad_output, {_POST}) -> (Tensor, Tensor, Tensor, Tensor)",
            _operators.npu_mhc_post_backward,
        ),
    },
    "cann_ops_transformer": {
        "mhc_pre_sinkhorn": (
            "(Tensor x, Tensor phi, Tensor alpha, Tensor bias, int hc_mult=4, int num_iters=20, "
            "float hc_eps=1e-6, float norm_eps=1e-6, bool need_backward=False) -> "
            "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
            _transformer_pre_sinkhorn,
        ),
        "mhc_pre_sinkhorn_backward": (_SINKHORN_BACKWARD, functional.mhc_pre_sinkhorn_backward),
        "mhc_sinkhorn": (
            "(Tensor x, *, int num_iters=20, float eps=1e-6) -> Tensor",
            functional.mhc_sinkhorn,
        ),
        "mhc_post": (f"({_POST}) -> Tensor", functional.mhc_post),
        "mhc_post_backward": (
            f"(Tensor grad_output, {_POST}) -> (Tensor, Tensor, Tensor, Tensor)",
            functional.mhc_post_backward,
        ),
        "block_attn_res_prepare": (
            "(Tensor block_residual, Tensor? valid_blocks, Tensor queries, float eps=1e-6) -> "
            "(Tensor, Tensor, Tensor)",
            _attention.block_attn_res_prepare,
        ),
    },
}


def _present(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Without None among the results."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = compute(*args, **kwargs)
        if isinstance(result, Tensor):
            return result
        like = next(r for r in result if r is not None)
        return tuple(like.new_empty((0,)) if r is None else r for r in result)

    return call


def register(with_npu: bool, with_transformer: bool) -> Callable[[], None]:
    """Defines the operators of the packages that are stood in for; returns what takes them back."""
    wanted = {"npu": with_npu, "cann_ops_transformer": with_transformer}
    libraries: list[Any] = []
    for namespace, operators in _OPERATORS.items():
        if not wanted[namespace]:
            continue
        library = _Library(namespace, "FRAGMENT")
        for name, (schema, compute) in operators.items():
            library.define(name + schema)
            library.impl(name, _present(compute), "CompositeImplicitAutograd")
        libraries.append(library)

    def remove() -> None:
        for library in libraries:
            library._destroy()
        for namespace in _OPERATORS:
            vars(torch.ops).pop(namespace, None)  # it remembers operators

    return remove
