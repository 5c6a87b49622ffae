"""An LSTM encoder and an LSTM decoder with attention (equation 1).

The encoder is bidirectional (Bahdanau et al. 2015, arXiv:1409.0473). The first decoder layer has the queries; the
context enters the softmax and the other layers (Luong et al. 2015, arXiv:1508.04025; Wu et al. 2016, arXiv:1609.08144).
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from glassformer.config import Config
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.block import select_tokens
from glassformer.layers.cache import KeyValueCache
from glassformer.layers.dropout import Dropout
from glassformer.layers.embedding import OutputProjection, TokenEmbedding
from glassformer.layers.init import initialize
from glassformer.layers.mask import Mask, Sentences, single_sentences
from glassformer.models.encoder_decoder import both_sides
from glassformer.taps import tap


class RecurrentConfig(Config):
    """``vocab_size`` may be a pair (source, target), and is the tokenizer's when not given."""

    shares_rows: ClassVar[bool] = False  # an LSTM would read on into the next sentence
    kind: Literal["recurrent"] = "recurrent"
    vocab_size: PositiveInt | tuple[PositiveInt, PositiveInt] | None = Field(None, description="entries")
    d_model: int = Field(512, gt=0, description="width of the embeddings and of the input of the softmax")
    d_hidden: int = Field(512, gt=0, description="units of a layer; the encoder has half of them each way")
    n_heads: int = Field(1, gt=0, description="attention heads; 1 in the papers")
    n_encoder_layers: int = Field(2, gt=0, description="LSTMs of the encoder, each way")
    n_decoder_layers: int = Field(2, gt=0, description="LSTMs of the decoder; the first attends to the source")
    dropout: float = Field(0.1, ge=0, lt=0.99, description="between layers, not between steps (Zaremba et al. 2014)")
    output_bias: bool = Field(False, description="bias before the softmax")
    tie_embeddings: bool = Field(True, description="one matrix for source, target and output")
    positions: Literal["none"] = Field("none", description="a recurrent network needs none")
    max_length: int = Field(1024, gt=0, description="longer sentences draw a warning; every length is possible")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.d_hidden % 2 or self.d_hidden % self.n_heads:
            raise ValueError(
                f"d_hidden={self.d_hidden} is not a multiple of 2 and of n_heads={self.n_heads}; choose one"
            )
        if self.tie_embeddings and isinstance(self.vocab_size, tuple) and len(set(self.vocab_size)) > 1:
            raise ValueError("tie_embeddings=true needs one vocabulary; set text.joint or unset model.tie_embeddings")
        return self

    @property
    def vocab_sizes(self) -> tuple[int, int]:
        """Entries of the source and of the target vocabulary."""
        return both_sides(self.vocab_size)


@dataclass
class RecurrentState:
    """State of decoding between steps, of ``rows`` hypotheses: k for each of ``batch`` sentences."""

    memory: Float[Tensor, "batch source d_hidden"]
    memory_mask: Bool[Tensor, "batch source"]
    cross_attention: KeyValueCache | None
    """The memory, projected once; None recomputes all of the past at every step."""
    layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """h and c of each layer, ``[1, rows, d_hidden]``: all of the past, however long it was."""
    tokens: Int[Tensor, "rows length"] | None = None
    """The prefix so far; kept only without a cache."""

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep these hypotheses, in this order."""
        self.layers = [(h.index_select(1, rows), c.index_select(1, rows)) for h, c in self.layers]
        self.tokens = None if self.tokens is None else self.tokens[rows]

    def select_sentences(self, sentences: Int[Tensor, " batch"]) -> None:
        """Keep the memory of these sentences, in this order."""
        self.memory, self.memory_mask = self.memory[sentences], self.memory_mask[sentences]
        if self.cross_attention is not None:
            self.cross_attention.select(sentences)


class RecurrentEncoder(nn.Module):
    """In each layer one LSTM reads from the start and one from the end of the sentence (Schuster & Paliwal 1997)."""

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        inputs, half = [config.d_model] + [config.d_hidden] * (config.n_encoder_layers - 1), config.d_hidden // 2
        self.rightward = nn.ModuleList(_lstm(d_input, half) for d_input in inputs)
        self.leftward = nn.ModuleList(_lstm(d_input, half) for d_input in inputs)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "batch source d_model"], mask: Bool[Tensor, "batch source"]
    ) -> Float[Tensor, "batch source d_hidden"]:
        """The second LSTM reads each sentence reversed, with padding still last."""
        positions, lengths = torch.arange(x.size(1), device=x.device)[None, :, None], mask.sum(1)[:, None, None]
        reversed_positions = torch.where(positions < lengths, lengths - 1 - positions, positions)
        for index, (rightward, leftward) in enumerate(zip(self.rightward, self.leftward, strict=True)):
            left = leftward(x.take_along_dim(reversed_positions, 1))[0].take_along_dim(reversed_positions, 1)
            x = self.dropout(tap(self, f"states_{index}", torch.cat([rightward(x)[0], left], dim=-1)))
        return x


class RecurrentDecoder(nn.Module):
    """tanh(W [c; h]) of the context and the last layer's state is what the softmax reads (Luong et al., equation 5)."""

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        d_hidden, d_head = config.d_hidden, config.d_hidden // config.n_heads
        inputs = [config.d_model] + [2 * d_hidden] * (config.n_decoder_layers - 1)
        self.start = nn.Linear(d_hidden // 2, config.n_decoder_layers * d_hidden)
        self.layers = nn.ModuleList(_lstm(d_input, d_hidden) for d_input in inputs)
        self.cross_attention = MultiHeadAttention(d_hidden, config.n_heads, d_head, d_head, Dropout(0.0))
        self.combine = nn.Linear(2 * d_hidden, config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "rows target d_model"], state: RecurrentState
    ) -> Float[Tensor, "rows target d_model"]:
        """``state`` moves on behind ``x``."""
        before = state.layers or self._start(state.memory, x.size(0))
        state.layers, context = [], None
        for index, layer in enumerate(self.layers):
            states, after = layer(x, before[index])
            state.layers, h = [*state.layers, after], tap(self, f"states_{index}", states)
            if context is None:
                context = self.cross_attention(h, state.memory, Mask(state.memory_mask), state.cross_attention)
            x = self.dropout(torch.cat([context, h], dim=-1))
        return self.dropout(tap(self, "combined", self.combine(x).tanh()))

    def _start(self, memory: Tensor, rows: int) -> list[tuple[Tensor, Tensor]]:
        """h = tanh(W s), s the leftward state at the first token (Bahdanau et al., A.2.2), and c = 0."""
        h = self.start(memory[:, 0, memory.size(2) // 2 :]).tanh().repeat_interleave(rows // len(memory), 0)
        return [(one.contiguous(), torch.zeros_like(one)) for one in h[None].chunk(len(self.layers), dim=-1)]


class Recurrent(nn.Module):
    """Offers what ``EncoderDecoder`` does, one sentence a row: a recurrence cannot keep several apart."""

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        self.config = config
        d_model, dropout, (source_size, target_size) = config.d_model, Dropout(config.dropout), config.vocab_sizes
        self.source_embedding = TokenEmbedding(source_size, d_model, None, dropout)
        self.target_embedding = TokenEmbedding(target_size, d_model, None, dropout)
        self.encoder, self.decoder = RecurrentEncoder(config), RecurrentDecoder(config)
        self.output_projection = OutputProjection(target_size, d_model, config.output_bias)
        initialize(self)
        if config.tie_embeddings:
            self.target_embedding = self.source_embedding.sharing()
            self.output_projection.weight = self.source_embedding.weight

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch target"],
        source_mask: Sentences | None = None,
        target_mask: Sentences | None = None,
    ) -> Float[Tensor, "batch target vocab"]:
        """Logits of the token after each of ``target``, which starts with the start token (teacher forcing)."""
        return self.output_projection(self.hidden(source, target, source_mask, target_mask))

    def hidden(
        self,
        source: Tensor,
        target: Tensor,
        source_mask: Sentences | None = None,
        target_mask: Sentences | None = None,
        selected: Int[Tensor, " selected"] | None = None,
    ) -> Float[Tensor, "*tokens d_model"]:
        """Input of the output projection, for all target tokens or the ``selected`` ones."""
        visible = None if target_mask is None else single_sentences(target_mask)
        x = self.decoder(self.target_embedding(target, visible), self.begin(source, source_mask, use_cache=False))
        return select_tokens(x, selected)

    def begin(
        self, source: Int[Tensor, "batch source"], source_mask: Sentences | None, use_cache: bool = True
    ) -> RecurrentState:
        """Encode once; ``step`` then reads from it."""
        mask = single_sentences(torch.ones_like(source, dtype=torch.bool) if source_mask is None else source_mask)
        memory = tap(self, "memory", self.encoder(self.source_embedding(source, mask), mask))
        return RecurrentState(memory, mask, KeyValueCache() if use_cache else None)

    def step(self, tokens: Int[Tensor, "rows new"], state: RecurrentState) -> Float[Tensor, "rows vocab"]:
        """Logits after ``tokens``, which continue what ``state`` has seen; ``state`` moves on."""
        if state.cross_attention is None:
            state.tokens = tokens if state.tokens is None else torch.cat([state.tokens, tokens], dim=1)
            tokens, state.layers = state.tokens, []
        return self.output_projection(self.decoder(self.target_embedding(tokens), state)[:, -1])


def _lstm(d_input: int, d_hidden: int) -> nn.LSTM:
    """Initialize as PyTorch does, with an open forget gate (Jozefowicz et al. 2015)."""
    lstm = nn.LSTM(d_input, d_hidden, batch_first=True)
    nn.init.ones_(lstm.get_parameter("bias_ih_l0").detach().chunk(4)[1])
    return lstm
