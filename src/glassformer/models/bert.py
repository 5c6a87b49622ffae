"""BERT: an encoder stack that reads in both directions (Devlin et al. 2019, arXiv:1810.04805).

It learns to tell masked tokens from what stands around them; heads on top of it classify texts and tag tokens.
"""

from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from glassformer.config import Config, FormerKeys
from glassformer.errors import ConfigError
from glassformer.layers.attention import MultiHeadAttention, head_size
from glassformer.layers.block import AddNorm, Block, Stack
from glassformer.layers.dropout import Dropout, attention_rate
from glassformer.layers.embedding import OutputProjection, SegmentEmbedding, TokenEmbedding
from glassformer.layers.feed_forward import ACTIVATIONS, Activation, FeedForward
from glassformer.layers.init import initialize_normal
from glassformer.layers.mask import Mask, Sentences
from glassformer.layers.norm import LayerNorm
from glassformer.layers.position import Learned
from glassformer.taps import tap

Pooling = Literal["mean", "cls", "max"]


class BERTConfig(Config):
    """BERT base by default. ``vocab_size`` is the tokenizer's when not given; it has the heads that are asked for."""

    former_keys: ClassVar[FormerKeys] = {"norm_epsilon": "norm_eps"}
    kind: Literal["bert"] = "bert"
    vocab_size: int | None = Field(None, gt=0, description="entries of the vocabulary")
    d_model: int = Field(768, gt=0, description="width of the residual stream")
    n_heads: int = Field(12, gt=0, description="attention heads")
    d_ff: int = Field(3072, gt=0, description="inner width of the feed-forward layers")
    n_layers: int = Field(12, gt=0, description="encoder layers")
    dropout: float = Field(0.1, ge=0, lt=0.99, description="dropout of embeddings and sub-layer outputs")
    attention_dropout: float | None = Field(None, ge=0, lt=0.99)
    """Dropout of the attention weights; ``dropout`` if not set."""
    activation: Activation = Field("gelu", description="activation of the feed-forward layers")
    norm_eps: float = Field(1e-12, gt=0, description="added to the variance")
    n_segments: int = Field(2, gt=0, description="texts that a row may hold")
    max_length: int = Field(512, gt=0, description="learned positions")
    masked_tokens: bool = Field(True, description="the head that predicts masked tokens")
    n_classes: int = Field(0, ge=0, description="classes of a text; 0 is no such head")
    n_tags: int = Field(0, ge=0, description="tags of a token; 0 is no such head")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        head_size(self.d_model, self.n_heads)
        return self


class MaskedTokenTransform(nn.Module):
    """Transformation between the encoder and the output projection: linear, activation, LayerNorm."""

    def __init__(self, config: BERTConfig):
        super().__init__()
        self.dense = nn.Linear(config.d_model, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = LayerNorm(config.d_model, config.norm_eps)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        return tap(self, "normed", self.norm(tap(self, "activated", self.activation(self.dense(x)))))


class Pooler(nn.Module):
    """tanh(W x + b) of the first token, which stands for the text."""

    def __init__(self, d_model: int):
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)

    def forward(self, hidden: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch d_model"]:
        return tap(self, "pooled", self.dense(hidden[:, 0]).tanh())


class ClassHead(nn.Module):
    """Logits of the classes of each text, from its pooled first token."""

    def __init__(self, config: BERTConfig):
        super().__init__()
        self.pooler = Pooler(config.d_model)
        self.dropout = Dropout(config.dropout)
        self.projection = OutputProjection(config.n_classes, config.d_model, bias=True)

    def forward(self, hidden: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch classes"]:
        return self.projection(self.dropout(self.pooler(hidden)))


class TagHead(nn.Module):
    """Logits of the tags of each token."""

    def __init__(self, config: BERTConfig):
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.projection = OutputProjection(config.n_tags, config.d_model, bias=True)

    def forward(self, hidden: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch length tags"]:
        return self.projection(self.dropout(hidden))


class BERT(nn.Module):
    """``hidden`` is the encoder's output; ``forward`` the logits of every token, as for masked ones.

    ``classes`` and ``tags`` are heads to be applied to ``hidden``, and None when the configuration has none.
    """

    def __init__(self, config: BERTConfig):
        super().__init__()
        if config.vocab_size is None:
            raise ValueError("vocab_size is not known yet; it comes from the tokenizer")
        self.config = config
        self.embedding = TokenEmbedding(
            config.vocab_size,
            config.d_model,
            Learned(config.max_length, config.d_model),
            Dropout(config.dropout),
            scale=1.0,
            segment=SegmentEmbedding(config.n_segments, config.d_model),
            norm=self._norm(),
        )
        self.encoder = Stack([self._block() for _ in range(config.n_layers)], final_norm=None)
        self.transform = MaskedTokenTransform(config) if config.masked_tokens else None
        self.output_projection = None
        if config.masked_tokens:
            self.output_projection = OutputProjection(config.vocab_size, config.d_model, bias=True)
            self.output_projection.weight = self.embedding.weight
        self.classes = ClassHead(config) if config.n_classes else None
        self.tags = TagHead(config) if config.n_tags else None
        initialize_normal(self)

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        mask: Sentences | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length vocab"]:
        """Logits of what each token is; ``mask`` is True where there is one, or numbers the texts of a row."""
        if self.transform is None or self.output_projection is None:
            raise ConfigError("this model has masked_tokens=false: apply classes or tags to hidden() instead")
        return self.output_projection(self.transform(self.hidden(tokens, mask, segments)))

    def hidden(
        self,
        tokens: Int[Tensor, "batch length"],
        mask: Sentences | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
        selected: Int[Tensor, " selected"] | None = None,
    ) -> Float[Tensor, "*tokens d_model"]:
        """One vector a token, from all that the text holds; of ``selected`` tokens only, if given (``Stack``)."""
        x = self.embedding(tokens, mask, segments=segments)
        x = self.encoder(x, Mask(mask, mask), selected=selected).to(x.dtype)
        return x if selected is not None else tap(self, "memory", x)

    def pooled(
        self,
        tokens: Int[Tensor, "batch length"],
        mask: Sentences | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch d_model"]:
        """Vector of each text that ``classes`` classifies."""
        if self.classes is None:
            raise ConfigError("this model has n_classes=0, so it has no pooler; use embed(), which needs no head")
        return self.classes.pooler(self.hidden(tokens, mask, segments))

    def embed(
        self,
        tokens: Int[Tensor, "batch length"],
        mask: Sentences | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
        pooling: Pooling = "mean",
    ) -> Float[Tensor, "batch d_model"]:
        """One vector per text: mean or maximum of its token vectors (Reimers & Gurevych 2019, arXiv:1908.10084), or the
        first token's vector."""
        hidden = self.hidden(tokens, mask, segments)
        if pooling == "cls":
            return hidden[:, 0]
        is_token = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask != 0
        if pooling == "max":
            return hidden.masked_fill(~is_token[..., None], float("-inf")).amax(1)
        filled = hidden.masked_fill(~is_token[..., None], 0.0)
        total = F.pad(filled, (0, 0, 0, -filled.size(1) % 32)).sum(1)  # PyTorch sums full 32 places in the same order
        return tap(self, "embedded", total / is_token.sum(1, keepdim=True).clamp(min=1))

    def _norm(self) -> LayerNorm:
        return LayerNorm(self.config.d_model, self.config.norm_eps)

    def _block(self) -> Block:
        c = self.config
        d_head = head_size(c.d_model, c.n_heads)
        on_weights = attention_rate(c.dropout, c.attention_dropout)
        attention = MultiHeadAttention(c.d_model, c.n_heads, d_head, d_head, Dropout(on_weights))
        feed_forward = FeedForward(c.d_model, c.d_ff, ACTIVATIONS[c.activation])
        return Block(attention, feed_forward, lambda: AddNorm(self._norm(), Dropout(c.dropout), pre=False))
