"""Section 3.4: tokens become vectors of d_model, multiplied by √d_model; the same matrix turns vectors into logits."""

import math
from typing import Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.layers.mask import Sentences, positions_within
from glassformer.taps import note, tap


class TokenEmbedding(nn.Module):
    """A row of the matrix for each token, × √d_model, plus its position, then dropout (section 5.4).

    ``position`` is called with (offset, length); ``None`` adds nothing, as with rotary positions.
    """

    def __init__(self, vocab_size: int, d_model: int, position: nn.Module | None, dropout: nn.Module):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.position = position
        self.dropout = dropout

    def forward(
        self,
        ids: Int[Tensor, "batch length"],
        sentences: Sentences | None = None,
        offset: int = 0,
    ) -> Float[Tensor, "batch length d_model"]:
        """Padding becomes zero, so that nothing behind it can reach the rest; positions count within a sentence."""
        rows = F.embedding(ids, self.weight)
        note(self, "one_hot", lambda: F.one_hot(ids, self.weight.size(0)).to(self.weight.dtype))
        rows = tap(self, "tokens", rows)
        x = tap(self, "scaled", rows * math.sqrt(self.weight.size(1)))
        if self.position is not None:
            encoding = tap(self, "encoding", self._positions(self.position, ids, sentences, offset))
            x = tap(self, "positioned", x + encoding)
        if sentences is not None:
            x = x.masked_fill((sentences == 0)[..., None], 0.0)
        return self.dropout(x)

    def sharing(self) -> Self:
        """Another embedding on the same matrix and the same positions."""
        twin = type(self)(0, self.weight.size(1), self.position, self.dropout)
        twin.weight = self.weight
        return twin

    @staticmethod
    def _positions(position: nn.Module, ids: Tensor, sentences: Sentences | None, offset: int) -> Tensor:
        if sentences is None or sentences.dtype == torch.bool:
            return position(offset, ids.size(1))
        within = positions_within(sentences).masked_fill(sentences == 0, 0)  # padding has no place to run out of
        return F.embedding(within, position(0, int(within.max()) + 1))


class OutputProjection(nn.Module):
    """The linear transformation before the softmax; assign ``weight`` from an embedding to share its matrix."""

    def __init__(self, vocab_size: int, d_model: int, bias: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.bias = nn.Parameter(torch.empty(vocab_size)) if bias else None

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        logits = tap(self, "logits", F.linear(x, self.weight, self.bias))
        note(self, "log_probabilities", lambda: logits.log_softmax(-1))
        note(self, "probabilities", lambda: logits.softmax(-1))
        return logits
