"""Section 3.4: tokens become vectors of d_model, multiplied by √d_model; the same matrix turns vectors into logits."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.layers.mask import Sentences, positions_within
from glassformer.taps import tap


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
        rows = tap(self, "tokens", F.embedding(ids, self.weight))
        x = tap(self, "scaled", rows * math.sqrt(self.weight.size(1)))
        if self.position is not None:
            x = tap(self, "positioned", x + self._positions(self.position, ids, sentences, offset))
        if sentences is not None:
            x = x.masked_fill((sentences == 0)[..., None], 0.0)
        return self.dropout(x)

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
        return tap(self, "logits", F.linear(x, self.weight, self.bias))
