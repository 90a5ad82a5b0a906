"""Entries of torch that a TorchFunctionMode does not see, patched one by one while installed."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from anabranch.compat import ai_infra
from anabranch.compat.npu._devices import (
    DeviceMode,
    device,
    is_npu_name,
    place,
    require_npu,
    stays,
)
from anabranch.compat.npu._patches import Patches

# Unlike every priority that torch uses: equal ones cannot be sorted.
_PACKAGE_PRIORITY = 7319


def npu(
    self: Tensor,
    device: Any = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> Tensor:
    """A copy of the tensor in the memory of the NPU: of the CPU."""
    require_npu("npu", device)
    if stays(self):
        return self
    return self.to("cpu", non_blocking=non_blocking, copy=True, memory_format=memory_format)


def _is_npu(self: Tensor) -> bool:
    """Whether the tensor is on the CPU, which is the NPU."""
    return self.device.type == "cpu"


def _module_npu(self: torch.nn.Module, device: Any = None) -> torch.nn.Module:
    """Moves parameters and buffers to the NPU: to the CPU."""
    require_npu("npu", device)
    return self.to("cpu")


def _packed_npu(self: Any, *args: Any, **kwargs: Any) -> Any:
    """The packed sequence in the memory of the NPU: of the CPU."""
    return self.to("cpu", *args, **kwargs)


def _patch_module_to(patches: Patches) -> None:
    """``module.to(0)``: a number is the NPU's index; torch would read one of an accelerator."""
    real = torch.nn.Module.to

    @functools.wraps(real)
    def to(self: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
        if args and type(args[0]) is int:
            args = (place(args[0]), *args[1:])
        if type(kwargs.get("device")) is int:
            kwargs = {**kwargs, "device": place(kwargs["device"])}
        return real(self, *args, **kwargs)

    patches.set(torch.nn.Module, "to", to)


def patch_methods(patches: Patches) -> None:
    _patch_module_to(patches)
    patches.set(Tensor, "npu", npu)
    patches.set(Tensor, "is_npu", property(_is_npu))
    patches.set(torch.nn.Module, "npu", _module_npu)
    patches.set(torch.nn.utils.rnn.PackedSequence, "npu", _packed_npu)


class _GeneratorType(type):
    """isinstance, equality and hash of the class that stands in for torch.Generator."""

    real: type = torch.Generator

    def __call__(cls, device: Any = "cpu") -> Any:
        return cls.real(device=place(device))

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.real)

    def __eq__(cls, other: object) -> bool:
        return other is cls.real or other is cls

    def __hash__(cls) -> int:
        return hash(cls.real)


class Generator(metaclass=_GeneratorType):
    """torch.Generator that takes ``device="npu"``; what it makes are ordinary generators."""

    __module__ = "torch"  # where pickle finds it, with or without this layer


def _patch_amp(patches: Patches) -> None:
    """autocast and GradScaler for "npu". The default dtype of an NPU's autocast is float16."""
    autocast = torch.amp.autocast_mode.autocast
    enter = autocast.__init__

    @functools.wraps(enter)
    def autocast_init(
        self: Any, device_type: Any, dtype: Any = None, *args: Any, **options: Any
    ) -> None:
        if is_npu_name(device_type):
            device_type, dtype = "cpu", dtype or torch.float16
        enter(self, device_type, dtype, *args, **options)

    patches.set(autocast, "__init__", autocast_init)
    scaler = torch.amp.GradScaler
    begin = scaler.__init__

    @functools.wraps(begin)
    def scaler_init(self: Any, device: Any = "cuda", *args: Any, **options: Any) -> None:
        begin(self, place(device), *args, **options)

    patches.set(scaler, "__init__", scaler_init)


def _patch_load(patches: Patches) -> None:
    """torch.load: storages tagged "npu:N" (map_location, or saved on an NPU) load to the CPU."""

    def restore(storage: Any, location: str) -> Any:
        return storage if location.startswith("npu") else None

    serialization = torch.serialization
    entry = (_PACKAGE_PRIORITY, lambda storage: None, restore)
    serialization.register_package(*entry)
    registry = serialization._package_registry

    def remove() -> None:
        registry[:] = [item for item in registry if item[2] is not restore]

    patches.on_undo(remove)


def _patch_threads(patches: Patches) -> None:
    """The mode belongs to a thread; threads started from here on get one, too."""
    start = threading.Thread.start

    @functools.wraps(start)
    def start_mapped(self: threading.Thread) -> None:
        run = self.run

        def run_mapped() -> None:
            with DeviceMode():
                run()

        self.run = run_mapped  # type: ignore[method-assign]
        start(self)

    patches.set(threading.Thread, "start", start_mapped)


def patch_dynamo(patches: Patches) -> None:
    """What dynamo gets wrong: torch.device("npu") is evaluated without any mode, and functions
    defined as builtins are taken for Python's own, which cannot be traced.

    Both are private to torch: a version without them gives dynamo's own error there, and the rest
    still works.
    """
    try:
        from torch._dynamo.trace_rules import _builtin_function_ids
        from torch._dynamo.variables.constant import ConstantVariable
        from torch._dynamo.variables.user_defined import UserDefinedClassVariable
    except ImportError:
        return
    for function in (
        ai_infra.ai_infra_block_attn_res,
        ai_infra.ai_infra_block_attn_res_backward,
    ):
        _builtin_function_ids.remove(id(function))
    real_call = UserDefinedClassVariable.call_function

    @functools.wraps(real_call)
    def call_function(self: Any, tx: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if self.value is torch.device and all(
            isinstance(v, ConstantVariable) for v in (*args, *kwargs.values())
        ):
            values = tuple(v.as_python_constant() for v in args)
            options = {key: v.as_python_constant() for key, v in kwargs.items()}
            if any(is_npu_name(v) for v in (*values, *options.values())):
                values, options = device(values, options)
                args = [ConstantVariable.create(v) for v in values]
                kwargs = {key: ConstantVariable.create(v) for key, v in options.items()}
        return real_call(self, tx, args, kwargs)

    patches.set(UserDefinedClassVariable, "call_function", call_function)


def _patch_compile(patches: Patches) -> None:
    """Patches dynamo when it is first needed: importing it takes seconds."""
    if "torch._dynamo" in sys.modules:
        patch_dynamo(patches)
        return
    compile_ = torch.compile
    done: list[bool] = []

    @functools.wraps(compile_)
    def compile_mapped(*args: Any, **kwargs: Any) -> Any:
        if patches.active and not done:
            done.append(True)
            patch_dynamo(patches)
        return compile_(*args, **kwargs)

    patches.set(torch, "compile", compile_mapped)


def patch_entries(patches: Patches, npu_module: ModuleType) -> None:
    """All of them. `npu_module` is what ``torch.npu`` is."""
    patch_methods(patches)
    patches.set(torch, "npu", npu_module)
    patches.set(torch, "Generator", Generator)
    _patch_amp(patches)
    _patch_load(patches)
    _patch_threads(patches)
    _patch_compile(patches)
    get_device_module: Callable[..., Any] = torch.get_device_module

    @functools.wraps(get_device_module)
    def get_module(device: Any = None) -> Any:
        return npu_module if is_npu_name(device) else get_device_module(device)

    patches.set(torch, "get_device_module", get_module)
