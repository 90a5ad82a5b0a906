"""The compiled extension: registers torch.ops.anabranch, and infers shapes."""

from typing import Any

version: str

def infer(
    op: str,
    tensors: tuple[tuple[str, tuple[int, ...]] | None, ...],
    blocks: tuple[tuple[str, tuple[int, ...]] | None, ...],
    attributes: tuple[float, ...],
    /,
) -> tuple[tuple[str, tuple[int, ...]] | None, ...]: ...
def describe() -> list[tuple[Any, ...]]: ...
