"""Switching the layer on and off."""

from __future__ import annotations

import builtins
import sys
import threading
import warnings
from collections.abc import Callable

from torch import overrides

from anabranch.compat import ai_infra
from anabranch.compat.npu import _dispatch
from anabranch.compat.npu._devices import DeviceMode
from anabranch.compat.npu._entries import patch_entries
from anabranch.compat.npu._modules import BLOCK_ATTN_RES, TOP_LEVEL, Modules, real_origin
from anabranch.compat.npu._patches import Patches


class _Layer:
    """What an installed layer must undo."""

    def __init__(self) -> None:
        self.patches = Patches()
        self.modules = Modules()
        self.mode: DeviceMode | None = None
        self.thread = threading.get_ident()

    def uninstall(self) -> None:
        if self.mode is not None:
            _remove_mode(self.mode)
        sys.meta_path.remove(self.modules)
        self.modules.forget()
        self.patches.undo()


# Untyped in torch.
_mode_stack: Callable[[], list[overrides.TorchFunctionMode]] = (
    overrides._get_current_function_mode_stack
)
_pop_mode: Callable[[], overrides.TorchFunctionMode] = overrides._pop_mode
_push_mode: Callable[[overrides.TorchFunctionMode], None] = overrides._push_mode

_layers: list[_Layer] = []


def is_installed() -> bool:
    """Whether the layer is on."""
    return bool(_layers)


def install() -> None:
    """Makes the NPU modules importable and the device ``npu`` the CPU; does nothing twice.

    Real modules go first: those that are found keep their names. Where torch_npu is a real one,
    devices and torch.npu are its own and untouched. Both are said in a warning.
    """
    note = switch_on(define_builtins=False)
    if note:
        warnings.warn(note, stacklevel=2)


def switch_on(define_builtins: bool) -> str:
    """install(); returns what there is to say about real packages.

    Args:
        define_builtins: also define ai_infra_block_attn_res and its backward as builtins, for
            programs that use the names without importing them.
    """
    if _layers:
        return ""
    real = {name: origin for name in TOP_LEVEL if (origin := real_origin(name)) is not None}
    layer = _Layer()
    if define_builtins:
        for name in BLOCK_ATTN_RES:
            layer.patches.set(builtins, name, getattr(ai_infra, name))
    layer.modules.with_torch_npu = "torch_npu" not in real
    layer.patches.on_undo(
        _dispatch.register("torch_npu" not in real, "cann_ops_transformer" not in real)
    )
    if layer.modules.with_torch_npu:
        patch_entries(layer.patches, layer.modules.get("torch.npu"))
        layer.mode = DeviceMode()
        _push_mode(layer.mode)
    sys.meta_path.append(layer.modules)
    _layers.append(layer)
    if not real:
        return ""
    found = ", ".join(f"{name} ({origin})" for name, origin in real.items())
    devices = "; devices are left to torch_npu" if "torch_npu" in real else ""
    return f"anabranch.compat.npu: installed packages go first: {found}{devices}"


def uninstall() -> None:
    """Takes back everything that install changed; does nothing when the layer is off.

    RuntimeError in another thread than install's: the function mode belongs to that thread.
    """
    if not _layers:
        return
    if _layers[-1].thread != threading.get_ident():
        raise RuntimeError("uninstall: called in another thread, expected the one that installed")
    _layers.pop().uninstall()


def _remove_mode(mode: DeviceMode) -> None:
    """Takes the mode out of this thread's stack, wherever it is; others keep their order."""
    above: list[overrides.TorchFunctionMode] = []
    if not any(other is mode for other in _mode_stack()):
        return
    while (top := _pop_mode()) is not mode:
        above.append(top)
    for other in reversed(above):
        _push_mode(other)
