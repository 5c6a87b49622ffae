"""Forecasts of time series: the encoder on patches of time, each variable for itself (PatchTST, Nie et al. 2023).

arXiv:2211.14730. Differs from the paper: LayerNorm where it has batch normalization, before the sub-layers.
"""

from typing import ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from glassformer.config import Config, FormerKeys
from glassformer.errors import DataError
from glassformer.layers.attention import MultiHeadAttention, head_size
from glassformer.layers.block import AddNorm, Block, Stack
from glassformer.layers.dropout import Dropout, attention_rate
from glassformer.layers.embedding import PatchEmbedding, series_patches
from glassformer.layers.feed_forward import ACTIVATIONS, Activation, FeedForward
from glassformer.layers.init import initialize_normal
from glassformer.layers.norm import LayerNorm
from glassformer.layers.position import Learned
from glassformer.taps import tap

EPSILON = 1e-5
"""Added to the variance of a series, which may stand still."""


class SeriesConfig(Config):
    """PatchTST/42 by default: 336 steps in 42 patches. ``n_variables`` is that of the data when not given."""

    former_keys: ClassVar[FormerKeys] = {"normalise": "normalize"}
    kind: Literal["series"] = "series"
    n_variables: int | None = Field(None, gt=0, description="series observed together")
    context: int = Field(336, gt=0, description="steps that are seen")
    horizon: int = Field(96, gt=0, description="steps that are forecast")
    patch_length: int = Field(16, gt=0, description="steps a patch")
    patch_stride: int = Field(8, gt=0, description="steps from one patch to the next")
    d_model: int = Field(128, gt=0, description="width of the residual stream")
    n_heads: int = Field(16, gt=0, description="attention heads")
    d_ff: int = Field(256, gt=0, description="inner width of the feed-forward layers")
    n_layers: int = Field(3, gt=0, description="encoder layers")
    dropout: float = Field(0.2, ge=0, lt=0.99, description="dropout of embeddings and sub-layer outputs")
    attention_dropout: float | None = Field(None, ge=0, lt=0.99)
    """Dropout of the attention weights; ``dropout`` if not set."""
    head_dropout: float = Field(0.0, ge=0, lt=0.99, description="before the last linear transformation")
    activation: Activation = Field("gelu", description="activation of the feed-forward layers")
    normalize: bool = Field(True, description="each series to mean 0 and deviation 1, and back (Kim et al. 2022)")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        head_size(self.d_model, self.n_heads)
        if self.patch_length > self.context:
            raise ValueError(
                f"patch_length={self.patch_length} is more than context={self.context}; lower the first or raise "
                "the second"
            )
        return self

    @property
    def n_patches(self) -> int:
        """One more than fit, since the last value is repeated for one stride."""
        return (self.context - self.patch_length) // self.patch_stride + 2


class SeriesModel(nn.Module):
    """``forward`` gives the steps after those that are seen; all variables share every weight."""

    title, reads = "a Transformer of time series", "series"
    """The model and its input, in words."""

    def __init__(self, config: SeriesConfig):
        super().__init__()
        self.config = config
        self.embedding = PatchEmbedding(
            config.patch_length,
            config.d_model,
            Learned(config.n_patches, config.d_model),
            Dropout(config.dropout),
            class_token=False,
        )
        self.encoder = Stack([self._block() for _ in range(config.n_layers)], LayerNorm(config.d_model))
        self.head_dropout = Dropout(config.head_dropout)
        self.forecast = nn.Linear(config.n_patches * config.d_model, config.horizon)
        initialize_normal(self)

    def forward(self, series: Float[Tensor, "batch time variables"]) -> Float[Tensor, "batch horizon variables"]:
        if series.size(1) != self.config.context:
            raise DataError(
                f"a series has {series.size(1)} steps, but this model reads context={self.config.context}; "
                "pass that many"
            )
        rows = series.transpose(1, 2).flatten(0, 1)
        if not torch.is_grad_enabled():  # training keeps the bits of earlier runs
            rows = rows.contiguous()  # one series alone would be summed in another order
        mean, std = self._scale(rows)
        x = self.hidden((rows - mean) / std)
        forecast = self.forecast(self.head_dropout(x.flatten(1))) * std + mean
        return tap(self, "forecast", forecast.unflatten(0, (len(series), -1)).transpose(1, 2))

    def hidden(self, rows: Float[Tensor, "rows time"]) -> Float[Tensor, "rows patches d_model"]:
        """One vector a patch; a row is one variable of one series."""
        x = self.embedding(series_patches(rows, self.config.patch_length, self.config.patch_stride))
        return tap(self, "memory", self.encoder(x).to(x.dtype))

    @property
    def extent(self) -> tuple[str, str]:
        """Sizes of the input and of the output, in words."""
        return (
            f"{self.config.context} steps in {self.config.n_patches} patches",
            f"{self.config.horizon} steps forecast",
        )

    def _scale(self, rows: Float[Tensor, "rows time"]) -> tuple[Tensor, Tensor]:
        """Mean and deviation of each row (RevIN, Kim et al. 2022, without its learned scale), or 0 and 1."""
        if not self.config.normalize:
            return rows.new_zeros(1), rows.new_ones(1)
        mean = tap(self, "mean", rows.mean(-1, keepdim=True))
        return mean, tap(self, "deviation", (rows.var(-1, keepdim=True, correction=0) + EPSILON).sqrt())

    def _block(self) -> Block:
        c = self.config
        d_head = head_size(c.d_model, c.n_heads)
        on_weights = attention_rate(c.dropout, c.attention_dropout)
        attention = MultiHeadAttention(c.d_model, c.n_heads, d_head, d_head, Dropout(on_weights))
        feed_forward = FeedForward(c.d_model, c.d_ff, ACTIVATIONS[c.activation])
        return Block(attention, feed_forward, lambda: AddNorm(LayerNorm(c.d_model), Dropout(c.dropout), pre=True))
