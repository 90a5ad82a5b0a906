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

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from anabranch import ops
from anabranch._ops._description import PASSES, Argument, Pass

__all__: list[str] = []

Placements = list[Placement]
Call = Mapping[str, Any]


def _token_dims(description: Pass, call: Call) -> int:
    """How many leading dimensions of the call's tensors may be sharded."""
    leader = next(a for a in description.inputs if a.name == description.leader)
    value = call[leader.name]
    if leader.is_list and not value:
        return 0
    return int((value[0] if leader.is_list else value).ndim) - (len(leader.forms[0]) - 1)


def _expand(description: Pass, call: Call, place: Callable[[Argument], Placement]) -> Placements:
    """A placement for every tensor of the call, those of lists one by one."""
    placements: Placements = []
    for argument in description.inputs:
        value = call[argument.name]
        if value is not None:
            placements += [place(argument)] * (len(value) if argument.is_list else 1)
    return placements


def _shardings(description: Pass, call: Call) -> list[tuple[Placements, Placements]]:
    def both(
        place: Callable[[Argument], Placement], of_sums: Placement
    ) -> tuple[Placements, Placements]:
        def output(out: Argument) -> Placement:
            if description.is_absent(out, call):
                return Replicate()
            return of_sums if out.token_at is None else place(out)

        return [output(o) for o in description.outputs], _expand(description, call, place)

    def by_token(dim: int) -> Callable[[Argument], Placement]:
        def place(argument: Argument) -> Placement:
            if argument.token_at is None:
                return Replicate()
            stacked = argument.is_list and argument in description.outputs
            return Shard(dim + argument.token_at + stacked)

        return place

    result = [both(lambda _: Replicate(), Replicate())]
    result += [both(by_token(dim), Partial()) for dim in range(_token_dims(description, call))]
    if description.name in ("mhc_post", "mhc_post_backward"):
        result.append(_post_by_hidden(description, call))
    return result


def _post_by_hidden(description: Pass, call: Call) -> tuple[Placements, Placements]:
    tokens = _token_dims(description, call)

    def place(argument: Argument) -> Placement:
        form = argument.forms[0]
        return Shard(tokens + form.index("D") - 1) if "D" in form else Replicate()

    def output(out: Argument) -> Placement:
        if description.is_absent(out, call):
            return Replicate()
        return place(out) if "D" in out.forms[0] else Partial()

    return [output(o) for o in description.outputs], _expand(description, call, place)


def _register(op: torch._ops.OpOverload) -> None:
    description = PASSES[op._opname]

    def rule(*args: Any) -> list[tuple[Placements, Placements]]:
        return _shardings(description, description.bind(args))

    register_sharding(op)(rule)
    # Results are cached by tensors and integers; ours depend on the flags before those as well.
    info = DTensor._op_dispatcher.sharding_propagator.op_to_schema_info[op]
    info.static_argnum = min(info.static_argnum, len(description.inputs))


for _name in ops.NAMES:
    _register(ops.get(_name))
