"""The device ``npu`` as another name of the CPU: a TorchFunctionMode.

A mode sees every call of a torch function, tensor method and ``torch.device``, in eager mode and
while torch.compile traces (which inlines it: the graph then says ``cpu``). What it does not see is
in ``_entries.py``.

On the machine a program was written for, NPU and CPU have separate memories, and programs count on
it: ``.cpu()`` is a snapshot that later steps do not change. So a move copies here too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


def is_npu_name(value: object) -> bool:
    """Whether value is "npu" or "npu:N"."""
    return type(value) is str and value[:3] == "npu" and (len(value) == 3 or value[3] == ":")


def check_index(index: int) -> None:
    """RuntimeError unless index is that of the one device there is."""
    if index != 0:
        raise RuntimeError(f"npu: device index is {index}, expected 0 (one device: the CPU)")


def place(value: Any) -> Any:
    """What stands for a device argument: "cpu" for NPU names and indices, the rest as it is."""
    if is_npu_name(value):
        if len(value) > 3 and value != "npu:0":
            raise RuntimeError(f"npu: device is {value!r}, expected 'npu' or 'npu:0' (the CPU)")
        return "cpu"
    if type(value) is int:
        check_index(value)
        return "cpu"
    return value


def require_npu(op: str, wanted: Any) -> None:
    """RuntimeError unless wanted names the one device there is, or is None."""
    if wanted is not None and not _is_cpu(place(wanted)):
        raise RuntimeError(f"{op}: device is {wanted!r}, expected 0, 'npu' or 'npu:0' (the CPU)")


def device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of torch.device, mapped; ``torch.device("npu", 0)`` is the CPU too."""
    values = {**dict(zip(("type", "index"), args, strict=False)), **kwargs}
    if values.get("type") == "npu":
        check_index(values.get("index") or 0)
        return ("cpu",), {}
    if len(args) == 1:
        return (place(args[0]),), kwargs
    return args, {key: place(value) if key != "index" else value for key, value in kwargs.items()}


def _is_cpu(value: Any) -> bool:
    if type(value) is str:
        return value == "cpu"
    return isinstance(value, torch.device) and value.type == "cpu"


def stays(x: Tensor) -> bool:
    """Whether a move to the NPU returns x itself: a leaf that requires grad, with gradients on.

    Where it came from is unknown, and were it there already, a program may hand it to an optimizer.
    """
    return x.requires_grad and x.is_leaf and torch.is_grad_enabled()


def _move(x: Tensor, wanted: Any, rest: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
    """``x.to(wanted, *rest, **options)`` as between two memories: a copy (but see stays)."""
    target = place(wanted)
    if _is_cpu(target) and x.device.type == "cpu":
        to_cpu = type(wanted) is str and wanted == "cpu"
        if to_cpu or not stays(x):
            rest, options = rest[:2], {**options, "copy": True}
    return x.to(target, *rest, **options)


def _to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Tensor.to in each of its forms; only those that name a device are moves."""
    if len(args) > 1:
        wanted = args[1]
        if type(wanted) in (str, int) or isinstance(wanted, torch.device):
            return _move(args[0], wanted, args[2:], kwargs)
    elif kwargs.get("device") is not None:
        options = {key: value for key, value in kwargs.items() if key != "device"}
        return _move(args[0], kwargs["device"], (), options)
    return Tensor.to(*args, **kwargs)


class DeviceMode(TorchFunctionMode):
    """Rewrites the device arguments of torch calls. Written so that torch.compile can trace it."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if kwargs is None:
            kwargs = {}
        if func is Tensor.to:
            return _to(args, kwargs)
        if func is Tensor.cpu:
            return _move(args[0], "cpu", (), kwargs)
        if func is Tensor.pin_memory:  # there is no device to pin it for
            return args[0].clone()
        if kwargs:
            if kwargs.get("device") is not None and func is not torch.device:
                kwargs = {**kwargs, "device": place(kwargs["device"])}
                if func is torch.as_tensor or func is torch.asarray:
                    return func(*args, **kwargs).clone()
            if kwargs.get("pin_memory"):
                kwargs = {**kwargs, "pin_memory": False}
        if func is torch.device:
            args, kwargs = device(args, kwargs)
            return func(*args, **kwargs)
        for value in args:
            if is_npu_name(value):
                # einsum's string is an equation; autocast's own mapping chooses a dtype, too.
                if func is torch.einsum or func is torch.amp.autocast_mode._enter_autocast:
                    break
                return func(*[place(a) if is_npu_name(a) else a for a in args], **kwargs)
        return func(*args, **kwargs)
