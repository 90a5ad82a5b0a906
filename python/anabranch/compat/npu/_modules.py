"""The importable modules, and the finder that offers them when nothing else does."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, NoReturn

import torch

import anabranch
from anabranch import functional
from anabranch.compat import ai_infra
from anabranch.compat.npu import (
    _attention,
    _graph,
    _memory,
    _operators,
    _runtime,
    _streams,
    _torchair,
)

#: Top-level modules that the layer offers where the real ones are absent.
TOP_LEVEL = ("cann_ops_transformer", "pypto", "torch_npu", "torchair")

BLOCK_ATTN_RES = ("ai_infra_block_attn_res", "ai_infra_block_attn_res_backward")
_TRANSFORMER_OPS = (
    "mhc_pre",
    "mhc_pre_backward",
    "mhc_sinkhorn",
    "mhc_sinkhorn_backward",
    "mhc_pre_sinkhorn_backward",
    "mhc_post",
    "mhc_post_backward",
)
_ATTENTION_OPS = (
    "block_attention_residuals",
    "block_attn_res_prepare",
    "block_attn_res_update",
)
_TORCH_NPU = (
    "npu_mhc_pre",
    "npu_mhc_pre_backward",
    "npu_mhc_sinkhorn",
    "npu_mhc_sinkhorn_backward",
    "npu_mhc_post",
    "npu_mhc_post_backward",
)


def _take(source: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def _npu_contents() -> dict[str, Any]:
    return {
        **_take(_runtime, _runtime.NAMES),
        **_take(_memory, _memory.FUNCTIONS),
        **_take(_streams, _streams.NAMES),
        **_take(_graph, _graph.NAMES),
        **_runtime.options(),
    }


def _transformer_contents() -> dict[str, Any]:
    return {
        **_take(functional, _TRANSFORMER_OPS),
        **_take(_attention, _ATTENTION_OPS),
        "mhc_pre_sinkhorn": _operators.mhc_pre_sinkhorn,
    }


def _amp_contents() -> dict[str, Any]:
    from anabranch.compat.npu._amp import GradScaler, autocast

    return {"GradScaler": GradScaler, "autocast": autocast}


# What each module holds, and the submodules that it has as attributes at once.
_CONTENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "cann_ops_transformer": lambda: _transformer_contents(),
    "cann_ops_transformer.ops": lambda: _transformer_contents(),
    "pypto": lambda: _take(ai_infra, BLOCK_ATTN_RES),
    "torch.npu": _npu_contents,
    "torch.npu.amp": _amp_contents,
    "torch_npu": lambda: {
        **_take(_operators, _TORCH_NPU),
        "__version__": f"{torch.__version__.split('+')[0]}+anabranch{anabranch.__version__}",
    },
    "torchair": lambda: _take(_torchair, ("CompilerConfig", "get_npu_backend")),
    "torchair.configs": dict,
    "torchair.core": dict,
    "torchair.core.utils": lambda: {"logger": logging.getLogger("torchair")},
    "torchair.configs.compiler_config": lambda: _take(_torchair, ("CompilerConfig",)),
    "torch_npu.dynamo": dict,
}
# Second names of the same module objects.
_ALIASES = {
    "torch_npu.npu": "torch.npu",
    "torch_npu.npu.amp": "torch.npu.amp",
    "torch_npu.dynamo.torchair": "torchair",
}


def _children(name: str) -> list[str]:
    names = (*_CONTENTS, *_ALIASES)
    return [n for n in names if n.rpartition(".")[0] == name]


def _refuse(module: ModuleType) -> Callable[[str], NoReturn]:
    """``__getattr__`` of an offered module: says what there is."""

    def missing(name: str) -> NoReturn:
        offered = ", ".join(sorted(n for n in vars(module) if not n.startswith("_")))
        raise AttributeError(
            f"module {module.__name__!r} has no attribute {name!r}: anabranch.compat.npu stands in "
            f"for it and offers {offered} (docs/npu.md)",
            name=name,
            obj=module,
        )

    return missing


class Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last in sys.meta_path, so that real modules are found first. Keeps one object a module."""

    def __init__(self) -> None:
        self._made: dict[str, ModuleType] = {}
        #: Whether torch.npu is offered: not where a real torch_npu brings its own.
        self.with_torch_npu = True

    def get(self, name: str) -> ModuleType:
        """The module of this name, made on first use with its submodules."""
        name = _ALIASES.get(name, name)
        if name not in self._made:
            module = ModuleType(name, f"{name}, stood in for by anabranch.compat.npu.")
            self._made[name] = module
            module.__dict__.update(_CONTENTS[name]())
            module.__file__ = __file__
            module.__package__ = name if _children(name) else name.rpartition(".")[0]
            if _children(name):
                module.__path__ = []
            for child in _children(name):
                setattr(module, child.rpartition(".")[2], self.get(child))
            module.__dict__["__getattr__"] = _refuse(module)
        return self._made[name]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for what is offered; ImportError that says what is, for other submodules."""
        parent = fullname.rpartition(".")[0]
        if parent and parent != "torch" and sys.modules.get(parent) not in self._made.values():
            return None  # a submodule of a real package
        if fullname == "torch.npu" and not self.with_torch_npu:
            return None
        if fullname in _CONTENTS or fullname in _ALIASES:
            package = bool(_children(_ALIASES.get(fullname, fullname)))
            spec = importlib.machinery.ModuleSpec(
                fullname, self, origin=__file__, is_package=package
            )
            spec.has_location = True
            return spec
        if not parent or parent == "torch":
            return None
        offered = ", ".join(sorted((*_CONTENTS, *_ALIASES)))
        raise ModuleNotFoundError(
            f"No module named {fullname!r}: anabranch.compat.npu offers {offered} (docs/npu.md)",
            name=fullname,
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self.get(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Filled when it was made."""

    def forget(self) -> None:
        """Takes the modules out of sys.modules again."""
        made = list(self._made.values())
        for name, module in list(sys.modules.items()):
            if any(module is own for own in made):
                del sys.modules[name]


def real_origin(name: str) -> str | None:
    """Where the real module of this name is, or None: it is absent."""
    module = sys.modules.get(name)
    if module is not None:
        return str(getattr(module, "__file__", None) or "already imported")
    spec = importlib.util.find_spec(name)
    return None if spec is None else str(spec.origin or "a namespace package")
