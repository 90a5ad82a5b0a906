"""Level 2: differentiable functions.

Everywhere ``*`` stands for any leading dimensions (tokens: ``[B, S]``, ``[T]`` or none), n for the
residual streams, D for the hidden size, F for the rows of phi. Activations (x, h_out, blocks, ...)
are all bfloat16, all float16 or all float32; coefficients and statistics are float32. Everything
float64 runs the double-precision reference, made for ``torch.autograd.gradcheck``. Tensors may have
any strides; none is copied. Wrong shapes, dtypes and attributes raise ValueError, which names the
argument, what it got and what it wants. First derivatives are exact; second derivatives and
forward-mode derivatives are refused with RuntimeError. Where no gradient is wanted nothing is
computed or kept for one.
"""

from __future__ import annotations

import warnings

import torch

from anabranch.functional.attn_res import (
    attn_res_merge,
    attn_res_prepare,
    block_attn_res,
)
from anabranch.functional.post import mhc_post, mhc_post_backward
from anabranch.functional.pre import mhc_head, mhc_pre, mhc_pre_backward
from anabranch.functional.pre_sinkhorn import mhc_pre_sinkhorn, mhc_pre_sinkhorn_backward
from anabranch.functional.residual import (
    mhc_permutation,
    mhc_sinkhorn,
    mhc_sinkhorn_backward,
)

__all__ = [
    "attn_res_merge",
    "attn_res_prepare",
    "block_attn_res",
    "mhc_head",
    "mhc_permutation",
    "mhc_post",
    "mhc_post_backward",
    "mhc_pre",
    "mhc_pre_backward",
    "mhc_pre_sinkhorn",
    "mhc_pre_sinkhorn_backward",
    "mhc_sinkhorn",
    "mhc_sinkhorn_backward",
]

# torch.fx.symbolic_trace keeps each of these as one call.
for _name in __all__:
    torch.fx.wrap(_name)


def __getattr__(name: str) -> object:
    """Names that have moved, for one version."""
    if name in ("ai_infra_block_attn_res", "ai_infra_block_attn_res_backward"):
        warnings.warn(
            f"anabranch.{name} has moved to anabranch.compat.ai_infra.{name} and will go",
            DeprecationWarning,
            stacklevel=2,
        )
        from anabranch.compat import ai_infra

        function: object = getattr(ai_infra, name)
        return function
    raise AttributeError(f"module 'anabranch.functional' has no attribute {name!r}")
