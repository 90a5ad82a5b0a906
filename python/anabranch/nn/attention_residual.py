"""Block Attention Residuals as a module."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from anabranch import functional
from anabranch.nn._fp32 import Fp32Module, check_norm_eps, check_positive, check_streams


class AttentionResidual(Fp32Module):
    """A sublayer's input as attention over the outputs of earlier blocks.

    ``h = sum_l softmax_l(scale * query . (norm_weight * rms_norm(v_l))) v_l`` over the blocks and
    the partial block; see :func:`anabranch.block_attn_res`. New, its query is zero and h the mean
    of the sources: their sum but for a factor, which a sublayer that starts with a norm does not
    see.

    Args:
        dim: hidden size D.
        norm: whether the sources are normalised for the scores, with a weight.
        scale, norm_eps: of the scores; the norm's.

    Parameters: query ``[D]``, with norm norm_weight ``[D]``, float32.
    Source: Attention Residuals (Kimi).
    """

    query: Tensor
    norm_weight: Tensor | None

    def __init__(
        self,
        dim: int,
        *,
        norm: bool = True,
        scale: float = 1.0,
        norm_eps: float = 1e-6,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        check_positive("AttentionResidual", dim=dim)
        check_norm_eps("AttentionResidual", norm_eps)
        self.dim, self.norm, self.scale, self.norm_eps = dim, norm, scale, norm_eps

        def parameter() -> nn.Parameter:
            return nn.Parameter(torch.empty(dim, dtype=torch.float32, device=device))

        self.query = parameter()
        self.register_parameter("norm_weight", parameter() if norm else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """A zero query: equal weights for all sources."""
        nn.init.zeros_(self.query)
        if self.norm_weight is not None:
            nn.init.ones_(self.norm_weight)

    def forward(self, blocks: Sequence[Tensor], partial: Tensor | None = None) -> Tensor:
        """h ``[*, D]`` of the sources' dtype.

        Args:
            blocks: 1 to 127 tensors ``[*, D]`` of one dtype.
            partial: the block that is being computed, so far; None is no source.
        """
        owner = "AttentionResidual"
        if isinstance(blocks, Tensor) or not isinstance(blocks, Sequence):
            raise TypeError(
                f"{owner}: blocks is a {type(blocks).__name__}, expected a list of tensors"
            )
        if not blocks:
            raise ValueError(f"{owner}: blocks has 0 tensors, expected 1 to 127")
        for index, block in enumerate(blocks):
            check_streams(owner, f"blocks[{index}]", block, self.dim)
        if partial is not None:
            check_streams(owner, "partial", partial, self.dim)
        self._check_dtype(owner)
        return functional.block_attn_res(
            blocks,
            self.query,
            partial,
            self.scale,
            self.norm_eps,
            self.norm_weight,
            self.norm,
        )

    def extra_repr(self) -> str:
        return f"dim={self.dim}, norm={self.norm}, scale={self.scale:g}, norm_eps={self.norm_eps:g}"
