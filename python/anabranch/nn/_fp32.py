"""Parameters that stay float32 whatever the rest of the model is cast to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy

_WIDE = (torch.float32, torch.float64)


def _narrow(t: Tensor) -> bool:
    return t.is_floating_point() and t.dtype not in _WIDE


class Fp32Module(nn.Module):
    """A module whose own parameters are float32, or float64 after ``double()``, never narrower.

    ``bfloat16()``, ``half()``, ``to(dtype)`` and ``load_state_dict`` of a narrow checkpoint, with
    ``assign=True`` too, leave them float32; moves to another device are followed. FSDP2 casts what
    it gathers by its policy, so there these modules are sharded on their own, without a
    ``param_dtype`` (:func:`fp32_modules` finds them).
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        def keep(t: Tensor) -> Tensor:
            result = fn(t)
            # From t itself: a round trip through 16 bits would lose what is to be kept.
            return t.to(result.device, torch.float32) if _narrow(result) else result

        return super()._apply(keep, recurse)  # type: ignore[no-untyped-call]

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        for name in self._parameters:
            value = state_dict.get(prefix + name)
            if isinstance(value, Tensor) and _narrow(value):
                state_dict[prefix + name] = value.float()
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _check_dtype(self, owner: str, prefix: str = "") -> None:
        for name, parameter in self._parameters.items():
            if isinstance(getattr(self, name), Proxy):  # torch.fx traces: there are no values
                return
            if parameter is not None and parameter.dtype not in _WIDE:
                dtype = str(parameter.dtype).removeprefix("torch.")
                raise ValueError(
                    f"{owner}: {prefix}{name} has dtype {dtype}, expected float32 (under FSDP2 "
                    "shard each of anabranch.nn.fp32_modules(model) on its own, without "
                    "param_dtype)"
                )


def fp32_modules(module: nn.Module) -> Iterator[nn.Module]:
    """The modules in `module` that own float32 parameters, itself included, in order.

    Under FSDP2 mixed precision each is sharded on its own, before what holds it::

        for part in anabranch.nn.fp32_modules(block):
            fully_shard(part)
        fully_shard(block, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    """
    return (m for m in module.modules() if isinstance(m, Fp32Module))


def check_positive(owner: str, **values: int) -> None:
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{owner}: {name} is {value!r}, expected an integer >= 1")


def check_norm_eps(owner: str, norm_eps: float) -> None:
    if not 0 <= norm_eps < math.inf:
        raise ValueError(f"{owner}: norm_eps is {norm_eps}, expected a finite number >= 0")


def check_streams(owner: str, name: str, t: Any, *last: int) -> None:
    """ValueError unless t is a tensor whose last dimensions are `last`."""
    if isinstance(t, Proxy):  # torch.fx traces: the function that gets it will look
        return
    if not isinstance(t, Tensor):
        raise TypeError(f"{owner}: {name} is a {type(t).__name__}, expected a tensor")
    if t.ndim < len(last) or tuple(t.shape[t.ndim - len(last) :]) != last:
        have = tuple(int(size) for size in t.shape)
        want = ", ".join(map(str, last))
        raise ValueError(f"{owner}: {name} has shape {have}, expected (*, {want})")
