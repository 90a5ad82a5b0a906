"""A decoder as is standard in the field: RMSNorm before each sublayer, RoPE, causal attention,
SwiGLU, tied embeddings. What carries its activations from sublayer to sublayer is a Stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anabranch.demo.streams import Stream, make_stream

VOCABULARY = 256  # bytes


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the Transformer, the same for all streams."""

    dim: int = 256
    layers: int = 4
    heads: int = 4
    hidden: int = 512  # of SwiGLU
    context: int = 256
    lanes: int = 4  # n of mHC
    block: int = 2  # sublayers of a block of Block Attention Residuals

    def __post_init__(self) -> None:
        if self.dim % self.heads or self.dim // self.heads % 2:
            raise ValueError(
                f"dim is {self.dim}, expected an even multiple of {self.heads} (the heads)"
            )


def _linear(rows: int, columns: int, std: float) -> nn.Linear:
    layer = nn.Linear(columns, rows, bias=False)
    nn.init.normal_(layer.weight, std=std)
    return layer


def rotation(context: int, head_dim: int) -> Tensor:
    """RoPE's angles ``[context, head_dim / 2]`` as unit complex numbers: base 10000."""
    frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)
    angles = torch.outer(torch.arange(context), frequencies)
    return torch.stack((angles.cos(), angles.sin()))


def rotate(x: Tensor, cos_sin: Tensor) -> Tensor:
    """RoPE of ``[B, heads, T, head_dim]``: the halves of a head's vector are the pairs."""
    cos, sin = cos_sin[:, : x.shape[-2]]
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class Attention(nn.Module):
    """Causal self-attention with its norm: ``[B, T, D] -> [B, T, D]``."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dim = config.dim
        self.heads = config.heads
        self.norm = nn.RMSNorm(dim, eps=1e-6)
        self.qkv = _linear(3 * dim, dim, dim**-0.5)
        self.out = _linear(dim, dim, (2 * config.layers * dim) ** -0.5)
        self.register_buffer(
            "rotation", rotation(config.context, dim // config.heads), persistent=False
        )

    def forward(self, x: Tensor) -> Tensor:
        rope = cast(Tensor, self.rotation)
        qkv = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [B, heads, T, head_dim]
        q, k = rotate(q, rope), rotate(k, rope)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return cast(Tensor, self.out(mixed.transpose(1, 2).flatten(2)))


class SwiGLU(nn.Module):
    """The gated MLP with its norm: ``[B, T, D] -> [B, T, D]``."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dim, hidden = config.dim, config.hidden
        self.norm = nn.RMSNorm(dim, eps=1e-6)
        self.gate_up = _linear(2 * hidden, dim, dim**-0.5)
        self.down = _linear(dim, hidden, (2 * config.layers * hidden) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(self.norm(x)).chunk(2, dim=-1)
        return cast(Tensor, self.down(F.silu(gate) * up))


class Transformer(nn.Module):
    """Bytes ``[B, T]`` int64 to the logits of the next byte ``[B, T, 256]``."""

    def __init__(self, config: ModelConfig, stream: Stream) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, config.dim)
        nn.init.normal_(self.embedding.weight, std=config.dim**-0.5)
        self.sublayers = nn.ModuleList()
        for _ in range(config.layers):
            self.sublayers += [Attention(config), SwiGLU(config)]
        self.norm = nn.RMSNorm(config.dim, eps=1e-6)
        self.stream = stream

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.stream(self.embedding(tokens), self.sublayers)
        return F.linear(self.norm(x), self.embedding.weight)

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy in nats a byte."""
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())


def make_model(kind: str, config: ModelConfig, seed: int, *, eager: bool = False) -> Transformer:
    """A new model; for one seed everything but the stream starts equal for every kind."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + 1)
        depth = 2 * config.layers
        stream = make_stream(
            kind, config.dim, depth, lanes=config.lanes, block=config.block, eager=eager
        )
        torch.manual_seed(seed)
        return Transformer(config, stream)
