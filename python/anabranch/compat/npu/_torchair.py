"""``torchair``: graph mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.fx import GraphModule


class CompilerConfig:
    """Options of the NPU's graph compiler: any name at any depth, kept, and of no effect here.

    ``config.debug.graph_dump.type = "pbtxt"`` works without ``debug`` having been set.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        group = CompilerConfig()
        setattr(self, name, group)
        return group

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"CompilerConfig({options})"


def get_npu_backend(
    *,
    compiler_config: CompilerConfig | None = None,
    custom_decompositions: Mapping[Any, Any] | None = None,
) -> Callable[[GraphModule, Sequence[Tensor]], Callable[..., Any]]:
    """A backend for torch.compile that runs the captured graph on the CPU.

    Each call in it is one operator call, the fused operators of anabranch as they are, forward and
    backward. Nothing is lowered, so neither argument changes anything.
    """
    if compiler_config is not None and not isinstance(compiler_config, CompilerConfig):
        kind = type(compiler_config).__name__
        raise TypeError(
            f"get_npu_backend: compiler_config is a {kind}, expected a torchair.CompilerConfig"
        )

    def npu_backend(graph: GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Any]:
        run: Callable[..., Any] = graph.forward
        return run

    return npu_backend
