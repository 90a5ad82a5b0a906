"""Level 1: ``torch.ops.anabranch.*``.

Functional schemas, every argument positional and required, a fixed number of outputs: an output
that is absent is a tensor of no elements, gradients of a list of blocks come back as one stacked
tensor. Each operator has a fake kernel (which refuses what the kernel refuses, in the same words),
a derivative and a vmap rule. Importing this module registers them; ``torch.ops.anabranch.mhc_post``
and so on are then complete. Most programs want :mod:`anabranch.functional` instead.
"""

from __future__ import annotations

import torch

# A module that needs libtorch: torch must be loaded first.
from anabranch import _C  # noqa: F401
from anabranch._ops import (  # noqa: F401
    _flops,
    attn_res,
    block_attn_res,
    mhc_head,
    mhc_post,
    mhc_pre,
    mhc_pre_sinkhorn,
    mhc_sinkhorn,
)
from anabranch._ops._description import PASSES

#: Every operator of this build, by name.
NAMES: tuple[str, ...] = tuple(PASSES)


_flops.register()


def get(name: str) -> torch._ops.OpOverload:
    """The operator ``torch.ops.anabranch.<name>``, ValueError with the names there are."""
    if name not in NAMES:
        raise ValueError(f"get: name is {name!r}, expected one of {', '.join(NAMES)}")
    operator: torch._ops.OpOverload = getattr(torch.ops.anabranch, name).default
    return operator
