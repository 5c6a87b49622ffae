"""GPT: a stack of decoder layers alone, each token predicting the next (Radford et al. 2018 and 2019).

GPT-2 and Llama (Touvron et al. 2023, arXiv:2302.13971) are two configurations: the latter has RMSNorm, rotary
positions, a gated feed-forward with SiLU, fewer heads of keys and values, no biases and a projection of its own.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from glassformer.config import Config, FormerKeys
from glassformer.layers.attention import MultiHeadAttention, head_size
from glassformer.layers.block import AddNorm, Block, Stack
from glassformer.layers.cache import StackCache
from glassformer.layers.dropout import Dropout, attention_rate
from glassformer.layers.embedding import OutputProjection, TokenEmbedding
from glassformer.layers.feed_forward import ACTIVATIONS, Activation, FeedForward, GatedFeedForward
from glassformer.layers.init import initialize_normal
from glassformer.layers.mask import Sentences, causal_mask
from glassformer.layers.norm import LayerNorm, RMSNorm
from glassformer.layers.position import ENCODINGS, Encoding, Learned
from glassformer.layers.ragged import PromptState, ragged, within_table
from glassformer.layers.sparse import Pattern, Window, fixed, global_tokens, strided


class AttentionConfig(Config):
    """Settings of attention from later papers."""

    n_kv_heads: int | None = Field(None, gt=0, description="heads of keys and values; n_heads by default")
    d_head: int | None = Field(None, gt=0, description="width of a head; d_model / n_heads by default")
    rope_theta: float = Field(10000.0, gt=0, description="base θ of rotary positions; larger values rotate more slowly")
    pattern: Literal["dense", "window", "strided", "fixed"] = "dense"
    """Visible earlier positions. ``dense``: all. ``window``: the nearest ``span``. ``strided``: also every ``span``-th
    (Child et al. 2019). ``fixed``: those of the same block of ``span``, and the last one of every block."""
    span: int = Field(256, gt=0, description="width, stride or block of the pattern, in positions")
    global_positions: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="positions that all later ones see"
    )

    def sparse(self) -> Pattern | None:
        """The pattern as an object; None where all is seen."""
        if self.pattern == "dense":
            return None
        kinds: dict[str, Callable[..., Pattern]] = {"window": Window, "strided": strided, "fixed": fixed}
        near = kinds[self.pattern](self.span, causal=True)
        return near | global_tokens(self.global_positions, causal=True) if self.global_positions else near


class GPTConfig(Config):
    """GPT-2's smallest by default. ``vocab_size`` is the tokenizer's when not given."""

    former_keys: ClassVar[FormerKeys] = {"norm_epsilon": "norm_eps", "attention.dropout": "attention_dropout"}
    kind: Literal["gpt"] = "gpt"
    vocab_size: int | None = Field(None, gt=0, description="entries of the vocabulary")
    d_model: int = Field(768, gt=0, description="width of the residual stream")
    n_heads: int = Field(12, gt=0, description="attention heads")
    attention: AttentionConfig = AttentionConfig()
    d_ff: int = Field(3072, gt=0, description="inner width of the feed-forward layers")
    n_layers: int = Field(12, gt=0, description="decoder layers")
    dropout: float = Field(0.1, ge=0, lt=0.99, description="dropout of embeddings and sub-layer outputs")
    attention_dropout: float | None = Field(None, ge=0, lt=0.99)
    """Dropout of the attention weights; ``dropout`` if not set. A sparse pattern trains fast with 0 only."""
    norm: Literal["layer", "rms"] = Field("layer", description="LayerNorm or RMSNorm, before each sub-layer")
    norm_eps: float = Field(1e-5, gt=0, description="added to the variance")
    positions: Encoding = Field("learned", description="positional encodings")
    activation: Activation = Field("gelu_tanh", description="activation of the feed-forward layers")
    gated: bool = Field(False, description="a second product as a gate: SwiGLU with silu, GEGLU with gelu")
    bias: bool = Field(True, description="biases in attention and feed-forward layers")
    tie_embeddings: bool = Field(True, description="one matrix for input and output")
    max_length: int = Field(1024, gt=0, description="positions prepared; learned ones end there")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.n_heads % self.kv_heads:
            divisors = ", ".join(str(n) for n in range(1, min(self.n_heads, 64) + 1) if self.n_heads % n == 0)
            raise ValueError(
                f"n_heads={self.n_heads} is not divisible by attention.n_kv_heads={self.kv_heads}; "
                f"choose from {divisors}"
            )
        ENCODINGS[self.positions].check_width("attention.d_head", self.d_head)
        return self

    @property
    def d_head(self) -> int:
        """d_k and d_v."""
        return self.attention.d_head or head_size(self.d_model, self.n_heads)

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.attention.n_kv_heads or self.n_heads


class GPT(nn.Module):
    """``forward`` gives the logits of the token after each of ``tokens``."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        if config.vocab_size is None:
            raise ValueError("vocab_size is not known yet; it comes from the tokenizer")
        self.config = config
        self.pattern = config.attention.sparse()
        self.embedding = self._embedding(config.vocab_size)
        self.decoder = Stack([self._block() for _ in range(config.n_layers)], self._norm())
        self.output_projection = OutputProjection(config.vocab_size, config.d_model, bias=False)
        if config.tie_embeddings:
            self.output_projection.weight = self.embedding.weight
        initialize_normal(self, residuals=2 * config.n_layers)

    def forward(
        self, tokens: Int[Tensor, "rows length"], sentences: Sentences | None = None
    ) -> Float[Tensor, "rows length vocab"]:
        """``sentences`` is True where there is a token, padding on the right, or it numbers the documents of a row
        (``layers.mask``), which then see nothing of each other."""
        return self.output_projection(self.hidden(tokens, sentences))

    def hidden(
        self, tokens: Int[Tensor, "rows length"], sentences: Sentences | None = None, cache: StackCache | None = None
    ) -> Float[Tensor, "rows length d_model"]:
        """Input of the output projection; an empty ``cache`` is filled with the keys and values."""
        mask = causal_mask(sentences=sentences)
        if self.pattern is not None:  # which is causal itself, and never n × n
            mask = replace(mask, causal=False)
        return self.decoder(self.embedding(tokens, sentences), mask, cache=cache)

    def begin(
        self, source: Int[Tensor, "rows prompt"], source_mask: Bool[Tensor, "rows prompt"], use_cache: bool = True
    ) -> PromptState:
        """Read the prompts without their last tokens, which the first ``step`` brings; padding stands on the right."""
        lengths = source_mask.sum(1)
        if not use_cache:
            return PromptState(lengths, None, source)
        cache = StackCache(self.config.n_layers)
        if source.size(1):
            self.hidden(source, source_mask, cache)
        return PromptState(lengths, ragged(cache, lengths), source)

    def step(self, tokens: Int[Tensor, "rows new"], state: PromptState) -> Float[Tensor, "rows vocab"]:
        """Logits after ``tokens``, which continue what ``state`` has seen; ``state`` moves on."""
        new, position = tokens.size(1), self.embedding.position
        if isinstance(position, Learned):
            state.lengths = within_table(position, state.lengths, new)
        if state.cache is None:
            x = self.hidden(*state.extended(tokens))
            return self.output_projection(x[torch.arange(len(x), device=x.device), state.lengths - 1])
        x = self.decoder(self.embedding(tokens, offset=state.lengths), causal_mask(state.lengths), cache=state.cache)
        state.lengths = state.lengths + new
        return self.output_projection(x[:, -1])

    def _embedding(self, vocab_size: int) -> TokenEmbedding:
        c = self.config
        position = ENCODINGS[c.positions].on_embeddings(c.max_length, c.d_model)
        return TokenEmbedding(vocab_size, c.d_model, position, Dropout(c.dropout), scale=1.0)

    def _norm(self) -> nn.Module:
        kind = {"layer": LayerNorm, "rms": RMSNorm}[self.config.norm]
        return kind(self.config.d_model, self.config.norm_eps)

    def _block(self) -> Block:
        c = self.config
        rotary = ENCODINGS[c.positions].on_heads(c.d_head, c.attention.rope_theta)
        on_weights = Dropout(attention_rate(c.dropout, c.attention_dropout))
        heads, sizes = (c.n_heads, c.kv_heads), (c.d_head, c.d_head)
        attention = MultiHeadAttention(c.d_model, heads, *sizes, on_weights, c.bias, rotary, self.pattern)
        kind = GatedFeedForward if c.gated else FeedForward
        feed_forward = kind(c.d_model, c.d_ff, ACTIVATIONS[c.activation], c.bias)
        return Block(attention, feed_forward, lambda: AddNorm(self._norm(), Dropout(c.dropout), pre=True))
