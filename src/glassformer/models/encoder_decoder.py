"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017): an encoder and a decoder stack."""

from typing import ClassVar, Literal, Self

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from glassformer.config import Config, FormerKeys
from glassformer.layers.attention import MultiHeadAttention, head_size
from glassformer.layers.block import AddNorm, Block, Stack
from glassformer.layers.cache import DecoderState, StackCache
from glassformer.layers.dropout import Dropout, attention_rate
from glassformer.layers.embedding import OutputProjection, TokenEmbedding
from glassformer.layers.feed_forward import ACTIVATIONS, Activation, FeedForward
from glassformer.layers.init import initialize
from glassformer.layers.mask import Mask, Sentences, causal_mask
from glassformer.layers.norm import LayerNorm
from glassformer.layers.position import ENCODINGS, Encoding, Rotary
from glassformer.taps import tap


class EncoderDecoderConfig(Config):
    """Table 3's columns. ``vocab_size`` may be a pair (source, target), and is the tokenizer's when not given."""

    former_keys: ClassVar[FormerKeys] = {
        "embedding": {
            "scaled": {"scale_embeddings": True, "norm_embeddings": False},
            "normed": {"scale_embeddings": False, "norm_embeddings": True},
            "scaled_normed": {"scale_embeddings": True, "norm_embeddings": True},
        }
    }
    shares_rows: ClassVar[bool] = True
    """True if sentences may share a row, each under its own mask."""
    kind: Literal["encoder_decoder"] = "encoder_decoder"
    vocab_size: int | tuple[int, int] | None = Field(None, description="entries; a pair for separate vocabularies")
    d_model: int = Field(512, gt=0, description="width of the residual stream")
    n_heads: int = Field(8, gt=0, description="attention heads, h in the paper")
    d_k: int | None = Field(None, gt=0, description="query and key width of a head; d_model / n_heads when not given")
    d_v: int | None = Field(None, gt=0, description="value width of a head; d_model / n_heads when not given")
    d_ff: int = Field(2048, gt=0, description="inner width of the feed-forward layers")
    n_encoder_layers: int = Field(6, gt=0, description="N of the encoder")
    n_decoder_layers: int = Field(6, gt=0, description="N of the decoder")
    dropout: float = Field(0.1, ge=0, lt=0.99, description="dropout of embeddings and sub-layer outputs")
    attention_dropout: float | None = Field(None, ge=0, lt=0.99)
    """Dropout of the attention weights; ``dropout`` if not set."""
    norm_order: Literal["post", "pre"] = Field("post", description="LayerNorm after the sum, or before the sub-layer")
    positions: Encoding = Field("sinusoidal", description="positional encodings")
    scale_embeddings: bool = True
    """Multiply embeddings by √d_model (section 3.4). BART, with learned positions, does not (arXiv:1910.13461)."""
    norm_embeddings: bool = Field(False, description="LayerNorm of the sum of embedding and position, as in BART")
    activation: Activation = Field("relu", description="activation of the feed-forward layers")
    attention_bias: bool = Field(True, description="biases in the four projections")
    output_bias: bool = Field(False, description="bias before the softmax")
    tie_embeddings: bool = Field(True, description="one matrix for source, target and output (section 3.4)")
    max_length: int = Field(1024, gt=0, description="positions prepared; learned ones end there")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.d_k is None or self.d_v is None:
            head_size(self.d_model, self.n_heads)
        ENCODINGS[self.positions].check_width("d_k", self.head_sizes[0])
        vocab_size = 1 if self.vocab_size is None else self.vocab_size
        sizes = vocab_size if isinstance(vocab_size, tuple) else (vocab_size, vocab_size)
        if min(sizes) < 1:
            raise ValueError(f"vocab_size={self.vocab_size} holds no token; leave it out to use the tokenizer's size")
        if self.tie_embeddings and sizes[0] != sizes[1]:
            raise ValueError(
                "tie_embeddings=true needs one vocabulary; set text.joint=true or model.tie_embeddings=false"
            )
        return self

    @property
    def head_sizes(self) -> tuple[int, int]:
        """d_k and d_v, both d_model / n_heads when not given (section 3.2.2)."""
        return self.d_k or self.d_model // self.n_heads, self.d_v or self.d_model // self.n_heads

    @property
    def vocab_sizes(self) -> tuple[int, int]:
        """Entries of the source and of the target vocabulary."""
        return both_sides(self.vocab_size)


class EncoderDecoder(nn.Module):
    """Section 3.1. ``forward`` gives logits; the loss and the choice of tokens live elsewhere."""

    def __init__(self, config: EncoderDecoderConfig):
        super().__init__()
        self.config = config
        source_size, target_size = config.vocab_sizes
        self.source_embedding = self._embedding(source_size)
        self.target_embedding = self.source_embedding if config.tie_embeddings else self._embedding(target_size)
        self.encoder = self._stack(config.n_encoder_layers, cross_attention=False)
        self.decoder = self._stack(config.n_decoder_layers, cross_attention=True)
        self.output_projection = OutputProjection(target_size, config.d_model, config.output_bias)
        if config.tie_embeddings:
            self.output_projection.weight = self.target_embedding.weight
        initialize(self)
        if config.tie_embeddings:  # a module of its own: its tensors have names of their own
            self.target_embedding = self.source_embedding.sharing()

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch target"],
        source_mask: Sentences | None = None,
        target_mask: Sentences | None = None,
    ) -> Float[Tensor, "batch target vocab"]:
        """Logits of the token after each of ``target``, which starts with the start token (teacher forcing).

        Where a row holds several sentences, both masks number them (``layers.mask``).
        """
        return self.output_projection(self.hidden(source, target, source_mask, target_mask))

    def hidden(
        self,
        source: Tensor,
        target: Tensor,
        source_mask: Sentences | None = None,
        target_mask: Sentences | None = None,
        selected: Int[Tensor, " selected"] | None = None,
    ) -> Float[Tensor, "*tokens d_model"]:
        """Input of the output projection, for all target tokens or the ``selected`` ones (``Stack``)."""
        memory = self.encode(source, source_mask)
        return self.decode(target, memory, source_mask, target_mask, selected=selected)

    def encode(
        self, source: Int[Tensor, "batch source"], source_mask: Sentences | None = None
    ) -> Float[Tensor, "batch source d_model"]:
        x = self.source_embedding(source, source_mask)
        return tap(self, "memory", self.encoder(x, Mask(source_mask, source_mask)))

    def decode(
        self,
        target: Int[Tensor, "rows target"],
        memory: Float[Tensor, "batch source d_model"],
        source_mask: Sentences | None = None,
        target_mask: Sentences | None = None,
        cache: StackCache | None = None,
        selected: Int[Tensor, " selected"] | None = None,
    ) -> Float[Tensor, "*tokens d_model"]:
        """The decoder's output, for all tokens or ``selected`` ones. ``target`` continues what a ``cache`` holds."""
        offset = 0 if cache is None else cache.length
        x = self.target_embedding(target, target_mask, offset)
        memory_mask = Mask(source_mask, target_mask)
        return self.decoder(x, causal_mask(offset, target_mask), memory, memory_mask, cache, selected)

    def begin(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        use_cache: bool = True,
    ) -> DecoderState:
        """Encode once; ``step`` then reads from it."""
        cache = StackCache(self.config.n_decoder_layers) if use_cache else None
        return DecoderState(self.encode(source, source_mask), source_mask, cache)

    def step(self, tokens: Int[Tensor, "rows new"], state: DecoderState) -> Float[Tensor, "rows vocab"]:
        """Logits after ``tokens``, which continue what ``state`` has seen; ``state`` moves on."""
        if state.cache is None:
            state.tokens = tokens if state.tokens is None else torch.cat([state.tokens, tokens], dim=1)
            tokens = state.tokens
        x = self.decode(tokens, state.memory, state.memory_mask, cache=state.cache)
        return self.output_projection(x[:, -1])

    def _embedding(self, vocab_size: int) -> TokenEmbedding:
        c = self.config
        position = ENCODINGS[c.positions].on_embeddings(c.max_length, c.d_model)
        scale = None if c.scale_embeddings else 1.0
        norm = LayerNorm(c.d_model) if c.norm_embeddings else None
        return TokenEmbedding(vocab_size, c.d_model, position, Dropout(c.dropout), scale, norm=norm)

    def _stack(self, n_layers: int, cross_attention: bool) -> Stack:
        c = self.config
        pre = c.norm_order == "pre"
        on_weights = attention_rate(c.dropout, c.attention_dropout)

        def wrap() -> AddNorm:
            return AddNorm(LayerNorm(c.d_model), Dropout(c.dropout), pre)

        def attention(rotary: Rotary | None = None) -> MultiHeadAttention:
            return MultiHeadAttention(
                c.d_model, c.n_heads, *c.head_sizes, Dropout(on_weights), c.attention_bias, rotary
            )

        blocks = []
        for _ in range(n_layers):
            own = attention(ENCODINGS[c.positions].on_heads(c.head_sizes[0]))
            feed_forward = FeedForward(c.d_model, c.d_ff, ACTIVATIONS[c.activation])
            blocks.append(Block(own, feed_forward, wrap, attention() if cross_attention else None))
        return Stack(blocks, LayerNorm(c.d_model) if pre else None)


def both_sides(vocab_size: int | tuple[int, int] | None) -> tuple[int, int]:
    """Entries of the source and of the target vocabulary, which may be one."""
    if vocab_size is None:
        raise ValueError("vocab_size is not known yet; it comes from the tokenizer")
    return vocab_size if isinstance(vocab_size, tuple) else (vocab_size, vocab_size)
