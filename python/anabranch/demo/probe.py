"""What the trained streams learned, as means over held-out text."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from anabranch.compat.ai_infra import ai_infra_block_attn_res
from anabranch.demo.data import Text
from anabranch.demo.model import Transformer
from anabranch.demo.streams import AttentionStream, HyperStream
from anabranch.nn import AttentionResidual, HyperConnection


def _forward(model: Transformer, text: Text, sequences: int, context: int) -> None:
    with torch.no_grad():
        model(text.held_out_batch(sequences, context)[0])


def mixing_matrices(model: Transformer, text: Text, sequences: int, context: int) -> Tensor:
    """h_res ``[sublayers, n, n]`` of an mHC model, mean over tokens: ``[i, from, to]``."""
    found: list[Tensor] = []

    def note(_: Any, __: Any, outputs: tuple[Tensor, Tensor, Tensor]) -> None:
        found.append(outputs[2].flatten(0, -3).mean(0))

    stream = cast(HyperStream, model.stream)
    connections = [cast(HyperConnection, c) for c in stream.connections]
    hooks = [c.coefficients.register_forward_hook(note) for c in connections]
    try:
        _forward(model, text, sequences, context)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(found)


def block_attention(
    model: Transformer, text: Text, sequences: int, context: int
) -> list[tuple[list[float], float | None]]:
    """For every sublayer, and the output last: the mean weights of the finished blocks (first the
    embedding) and of the unfinished one, if there was one."""
    found: list[tuple[list[float], float | None]] = []

    def note(module: torch.nn.Module, inputs: tuple[list[Tensor], Tensor | None], _: Any) -> None:
        residual, (blocks, partial) = cast(AttentionResidual, module), inputs
        _, alpha = ai_infra_block_attn_res(
            blocks,
            residual.query,
            partial,
            residual.scale,
            residual.norm_eps,
            residual.norm_weight,
            residual.norm,
            alpha_out_flag=True,
        )
        weights = alpha.flatten(0, -2).mean(0).tolist()
        current = None if partial is None else weights.pop()
        found.append((weights, current))

    stream = cast(AttentionStream, model.stream)
    hooks = [r.register_forward_hook(note) for r in stream.residuals]
    try:
        _forward(model, text, sequences, context)
    finally:
        for hook in hooks:
            hook.remove()
    return found
