"""Sharding of the operators for DTensor.

Importing this module registers, for every operator of ``torch.ops.anabranch``, forward and
backward, the placements it computes with:

* everything replicated;
* any one token dimension (batch, sequence) sharded, parameters replicated; a parameter's gradient
  is then ``Partial("sum")``;
* mhc_post also by D (x, h_out, y and their gradients), with h_res and h_post replicated.

Other placements are redistributed to the cheapest of these, as for PyTorch's own operators. The
functions of :mod:`anabranch` import this module on their own once ``torch.distributed.tensor`` is
loaded; import it yourself before calling ``torch.ops.anabranch`` with DTensors or compiling.
A token's outputs have the bits of a run on one process; gradients of parameters are sums in another
order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from anabranch import ops

__all__: list[str] = []

Placements = list[Placement]
Call = Mapping[str, Any]

# Tensors without token dimensions; a gradient of one is a sum over tokens.
_MHC_PARAMETERS = ("phi", "alpha", "bias", "gamma", "fn", "base", "scale")
_PARAMETERS = frozenset((*_MHC_PARAMETERS, "proj_weight", "rmsnorm_gamma", "query", "queries"))
# Trailing dimensions of the argument that tells an operator's token dimensions.
_LEADERS = (
    ("grad_h_in", 1),
    ("x", 2),
    ("blocks", 1),
    ("v", 1),
    ("grad_h_res", 2),
)
# Tensors whose token dimensions come after one of queries, blocks or Sinkhorn steps.
_STACKED = {
    "mhc_sinkhorn": ("sum_out", "norm_out"),
    "mhc_sinkhorn_backward": ("sum_out", "norm_out"),
    "mhc_pre_sinkhorn": ("sum_out", "norm_out"),
    "mhc_pre_sinkhorn_backward": ("sum_out", "norm_out"),
    "attn_res_prepare": ("o", "m", "l"),
    "attn_res_prepare_backward": ("grad_o", "grad_m", "grad_l", "grad_blocks"),
    "block_attn_res_backward": ("grad_blocks",),
}


def _absent(op: str, call: Call) -> set[str]:
    """The outputs that have no elements in this call."""
    absent = {f"grad_{name}" for name, value in call.items() if value is None}
    if op == "mhc_pre" and call["residual"] == 2:  # no residual part
        absent.add("h_res")
    if op == "mhc_pre_sinkhorn" and call["iterates"]:
        return absent
    if not call.get("caches", True):
        absent |= {"inv_rms", "h_mix", "h_pre", "w", "hc_before_norm"}
    if not call.get("iterates", True):
        absent |= {"sum_out", "norm_out"}
    if not call.get("rms_out", True):
        absent.add("rms_cache")
    if not call.get("alpha_out", True):
        absent.add("alpha_cache")
    return absent


def _token_dims(op: str, call: Call) -> int:
    """How many leading dimensions of the call's tensors may be sharded."""
    if op.startswith("mhc_permutation") or op == "mhc_sinkhorn":
        return int(call["logits"].ndim) - (1 if op.startswith("mhc_permutation") else 2)
    present = ((n, t) for n, t in _LEADERS if call.get(n) is not None)
    name, trailing = next(present)
    if name == "blocks" and not call[name]:
        return 0
    leader = call[name][0] if name == "blocks" else call[name]
    tokens = int(leader.ndim) - trailing
    flattened = call.get("sum_out") is not None or call.get("iterates", False)
    if op.startswith("mhc_pre_sinkhorn") and flattened and tokens > 1:
        # The iterates have all tokens in one dimension: equal shards of the first dimension are
        # equal shards of that one, others are not.
        return int(leader.shape[0] % leader.mesh.size() == 0)
    return tokens


def _names(items: Sequence[Any], default: str) -> list[str]:
    return [item.name or default for item in items]


def _expand(call: Call, place: Callable[[str], Placement], tensors: Sequence[str]) -> Placements:
    """A placement for every tensor of the call, those of lists one by one."""
    placements: Placements = []
    for name in tensors:
        value = call[name]
        if value is not None:
            count = len(value) if isinstance(value, (list, tuple)) else 1
            placements += [place(name)] * count
    return placements


def _shardings(op: torch._ops.OpOverload, call: Call) -> list[tuple[Placements, Placements]]:
    name = op._opname
    tensors = [a.name for a in op._schema.arguments if "Tensor" in str(a.type)]
    outputs = _names(op._schema.returns, "y")
    stacked = _STACKED.get(name, ())
    absent = _absent(name, call)

    def both(
        place: Callable[[str], Placement], of_sums: Placement
    ) -> tuple[Placements, Placements]:
        def output(out: str) -> Placement:
            if out in absent:
                return Replicate()
            return of_sums if out.removeprefix("grad_") in _PARAMETERS else place(out)

        return [output(out) for out in outputs], _expand(call, place, tensors)

    def by_token(dim: int) -> Callable[[str], Placement]:
        def place(tensor: str) -> Placement:
            if tensor in _PARAMETERS:
                return Replicate()
            return Shard(dim + (tensor in stacked))

        return place

    result = [both(lambda _: Replicate(), Replicate())]
    result += [both(by_token(dim), Partial()) for dim in range(_token_dims(name, call))]
    if name.startswith("mhc_post"):
        result.append(_post_by_hidden(outputs, absent, call, tensors))
    return result


def _post_by_hidden(
    outputs: Sequence[str], absent: set[str], call: Call, tensors: Sequence[str]
) -> tuple[Placements, Placements]:
    def place(tensor: str) -> Placement:
        activation = tensor.removeprefix("grad_") in ("x", "y", "h_out", "output")
        streams = call["x"].ndim - (tensor.removeprefix("grad_") == "h_out")
        return Shard(streams - 1) if activation else Replicate()

    def output(out: str) -> Placement:
        if out in absent:
            return Replicate()
        return Partial() if out in ("grad_h_res", "grad_h_post") else place(out)

    return [output(out) for out in outputs], _expand(call, place, tensors)


def _register(op: torch._ops.OpOverload) -> None:
    names = [a.name for a in op._schema.arguments]

    def rule(*args: Any) -> list[tuple[Placements, Placements]]:
        return _shardings(op, dict(zip(names, args, strict=True)))

    register_sharding(op)(rule)
    # Results are cached by tensors and integers; ours depend on the flags before those as well.
    info = DTensor._op_dispatcher.sharding_propagator.op_to_schema_info[op]
    plain = next(
        (i for i, a in enumerate(op._schema.arguments) if "Tensor" not in str(a.type)), len(names)
    )
    info.static_argnum = min(info.static_argnum, plain)


for _name in ops.NAMES:
    _register(ops.get(_name))
