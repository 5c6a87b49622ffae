"""Section 3.1: sub-layers, each with a residual connection and layer normalization; a stack of N layers."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.cache import BlockCache, StackCache
from glassformer.layers.feed_forward import FeedForward, GatedFeedForward
from glassformer.layers.mask import Mask
from glassformer.taps import tap


class AddNorm(nn.Module):
    """LayerNorm(x + Sublayer(x)), with dropout on the sub-layer's output (section 5.4).

    ``pre``: x + Sublayer(LayerNorm(x)) instead (Xiong et al. 2020, arXiv:2002.04745). Only this class applies it.
    Differs from the paper: ``norm`` may be another normalization than LayerNorm.
    """

    def __init__(self, norm: nn.Module, dropout: nn.Module, pre: bool):
        super().__init__()
        self.norm = norm
        self.dropout = dropout
        self.pre = pre

    def forward(
        self, x: Float[Tensor, "batch length d_model"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "batch length d_model"]:
        if self.pre:
            return tap(self, "sum", x + self.dropout(sublayer(tap(self, "normed", self.norm(x)))))
        return tap(self, "normed", self.norm(tap(self, "sum", x + self.dropout(sublayer(x)))))


class Block(nn.Module):
    """One layer: self-attention, optionally attention to the encoder's output, feed-forward."""

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        feed_forward: FeedForward | GatedFeedForward,
        wrap: Callable[[], AddNorm],
        cross_attention: MultiHeadAttention | None = None,
    ):
        super().__init__()
        self.self_attention = self_attention
        self.self_attention_norm = wrap()
        self.cross_attention = cross_attention
        self.cross_attention_norm = None if cross_attention is None else wrap()
        self.feed_forward = feed_forward
        self.feed_forward_norm = wrap()

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        mask: Mask | None = None,
        memory: Float[Tensor, "sentences source d_model"] | None = None,
        memory_mask: Mask | None = None,
        cache: BlockCache | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        self_cache, memory_cache = (None, None) if cache is None else (cache.self_attention, cache.cross_attention)
        x = self.self_attention_norm(x, lambda x: self.self_attention(x, mask=mask, cache=self_cache))
        if self.cross_attention is not None and self.cross_attention_norm is not None:
            attend = self.cross_attention
            x = self.cross_attention_norm(x, lambda x: attend(x, memory, memory_mask, memory_cache))
        return self.feed_forward_norm(x, self.feed_forward)


class Stack(nn.Module):
    """N blocks; with pre-norm also a final normalization, because the residual stream has none."""

    def __init__(self, blocks: list[Block], final_norm: nn.Module | None):
        super().__init__()
        self.layers = nn.ModuleList(blocks)
        self.final_norm = final_norm

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights and the computation; in training it may be lower than that of the embeddings."""
        return next(self.parameters()).dtype

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        mask: Mask | None = None,
        memory: Float[Tensor, "sentences source d_model"] | None = None,
        memory_mask: Mask | None = None,
        cache: StackCache | None = None,
        selected: Int[Tensor, " selected"] | None = None,
    ) -> Float[Tensor, "*tokens d_model"]:
        """The output for all tokens, or for those at the flat indices ``selected``: row · length + position."""
        x = x.to(self.dtype)
        for index, block in enumerate(self.layers):
            x = block(x, mask, memory, memory_mask, None if cache is None else cache[index])
        x = x if self.final_norm is None else tap(self, "normed", self.final_norm(x))
        return select_tokens(x, selected)


def select_tokens(
    x: Float[Tensor, "batch length d_model"], selected: Int[Tensor, " selected"] | None
) -> Float[Tensor, "*tokens d_model"]:
    """The rows of ``x`` at the flat indices ``selected``; all of ``x`` for None."""
    return x if selected is None else x.flatten(0, 1).index_select(0, selected)
