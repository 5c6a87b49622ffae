"""The Vision Transformer: an image is a sequence of patches (Dosovitskiy et al. 2021, arXiv:2010.11929)."""

from typing import Annotated, ClassVar, Literal, Self

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from glassformer.config import Config, FormerKeys
from glassformer.errors import DataError
from glassformer.layers.attention import MultiHeadAttention, head_size
from glassformer.layers.block import AddNorm, Block, Stack
from glassformer.layers.dropout import Dropout
from glassformer.layers.embedding import OutputProjection, PatchEmbedding, image_patches
from glassformer.layers.feed_forward import ACTIVATIONS, Activation, FeedForward
from glassformer.layers.init import initialize_normal
from glassformer.layers.norm import LayerNorm
from glassformer.layers.position import Learned
from glassformer.taps import tap

Pixels = Annotated[int, Field(gt=0)]


class ViTConfig(Config):
    """ViT-B/16 by default. ``n_classes`` is that of the labels when not given."""

    former_keys: ClassVar[FormerKeys] = {"norm_epsilon": "norm_eps"}
    kind: Literal["vit"] = "vit"
    n_classes: int | None = Field(None, gt=0, description="classes of an image")
    image_size: tuple[Pixels, Pixels] = Field((224, 224), description="height and width in pixels")
    patch_size: int = Field(16, gt=0, description="side of a patch in pixels")
    n_channels: int = Field(3, gt=0, description="numbers a pixel: 1 is gray, 3 are colors")
    d_model: int = Field(768, gt=0, description="width of the residual stream")
    n_heads: int = Field(12, gt=0, description="attention heads")
    d_ff: int = Field(3072, gt=0, description="inner width of the feed-forward layers")
    n_layers: int = Field(12, gt=0, description="encoder layers")
    dropout: float = Field(0.1, ge=0, lt=0.99, description="dropout of embeddings and sub-layer outputs")
    attention_dropout: float = Field(0.0, ge=0, lt=0.99, description="dropout of the attention weights")
    activation: Activation = Field("gelu", description="activation of the feed-forward layers")
    norm_eps: float = Field(1e-6, gt=0, description="added to the variance")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        head_size(self.d_model, self.n_heads)
        if any(side % self.patch_size for side in self.image_size):
            height, width = self.image_size
            raise ValueError(
                f"image_size={height} × {width} is not a whole number of patches of patch_size={self.patch_size}; "
                "choose one that divides both"
            )
        return self

    @property
    def n_patches(self) -> int:
        """Number of patches that the encoder reads, beside the class token."""
        return (self.image_size[0] // self.patch_size) * (self.image_size[1] // self.patch_size)


class ViT(nn.Module):
    """``forward`` gives the logits of the classes, from the class token's place in the encoder's output."""

    title, reads = "a Vision Transformer", "image"
    """The model and its input, in words."""

    def __init__(self, config: ViTConfig):
        super().__init__()
        if config.n_classes is None:
            raise ValueError("n_classes is not known yet; it comes from the labels")
        self.config = config
        self.embedding = PatchEmbedding(
            config.n_channels * config.patch_size**2,
            config.d_model,
            Learned(1 + config.n_patches, config.d_model),
            Dropout(config.dropout),
            class_token=True,
        )
        self.encoder = Stack([self._block() for _ in range(config.n_layers)], self._norm())
        self.output_projection = OutputProjection(config.n_classes, config.d_model, bias=True)
        initialize_normal(self)

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch classes"]:
        return self.output_projection(self.hidden(images)[:, 0])

    def class_tokens(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch d_model"]:
        """Vector of each class token, which ``forward`` projects, without those of the patches."""
        first = torch.arange(len(images), device=images.device) * (1 + self.config.n_patches)
        return self.hidden(images, first)

    def hidden(
        self,
        images: Float[Tensor, "batch channels height width"],
        selected: Int[Tensor, " selected"] | None = None,
    ) -> Float[Tensor, "*tokens d_model"]:
        """One vector for the class token, first, and one a patch, row by row; or those of ``selected`` (``Stack``)."""
        expected = (self.config.n_channels, *self.config.image_size)
        if images.shape[1:] != expected:
            shapes = (" × ".join(map(str, shape)) for shape in (images.shape[1:], expected))
            raise DataError("an image is {}, but this model reads {}; resize it to that shape".format(*shapes))
        x = self.embedding(image_patches(images, self.config.patch_size))
        x = self.encoder(x, selected=selected).to(x.dtype)
        return x if selected is not None else tap(self, "memory", x)

    @property
    def extent(self) -> tuple[str, str]:
        """Sizes of the input and of the output, in words."""
        height, width = self.config.image_size
        return f"{height} × {width} pixels in {self.config.n_patches} patches", f"{self.config.n_classes} classes"

    def _norm(self) -> LayerNorm:
        return LayerNorm(self.config.d_model, self.config.norm_eps)

    def _block(self) -> Block:
        c = self.config
        d_head = head_size(c.d_model, c.n_heads)
        attention = MultiHeadAttention(c.d_model, c.n_heads, d_head, d_head, Dropout(c.attention_dropout))
        feed_forward = FeedForward(c.d_model, c.d_ff, ACTIVATIONS[c.activation])
        return Block(attention, feed_forward, lambda: AddNorm(self._norm(), Dropout(c.dropout), pre=True))
