"""Section 3.4: token embeddings, multiplied by √d_model, and the output projection, which may share their matrix.

Inputs of later models: segments of a text (Devlin et al. 2019, arXiv:1810.04805), patches of an image (Dosovitskiy et
al. 2021, arXiv:2010.11929) or of a series (Nie et al. 2023, arXiv:2211.14730).
"""

import copy
import math
from typing import Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.layers.mask import Sentences, positions_within
from glassformer.layers.position import Learned, Offset, Sinusoidal
from glassformer.taps import note, tap


class TokenEmbedding(nn.Module):
    """A row of the matrix for each token, × √d_model, plus its positional encoding, then dropout (section 5.4).

    ``position`` is called with (offset, length); ``None`` adds nothing, as with rotary positions.
    Differs from the paper: ``scale`` may be another factor than √d_model, ``segment`` adds a vector for the text of a
    token, and ``norm`` normalizes the sum.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        position: nn.Module | None,
        dropout: nn.Module,
        scale: float | None = None,
        segment: nn.Module | None = None,
        norm: nn.Module | None = None,
    ):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.position = position
        self.dropout = dropout
        self.scale = math.sqrt(d_model) if scale is None else scale
        self.segment = segment
        self.norm = norm

    def forward(
        self,
        ids: Int[Tensor, "batch length"],
        sentences: Sentences | None = None,
        offset: Offset = 0,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """Embeddings of ``ids``. Those of padding are zero (with ``norm``: one constant), so padding reaches no token.

        Without ``segments`` all tokens are of segment 0.
        """
        rows = F.embedding(ids, self.weight)
        note(self, "one_hot", lambda: F.one_hot(ids, self.weight.size(0)).to(self.weight.dtype))
        rows = tap(self, "tokens", rows)
        x = tap(self, "scaled", rows * self.scale)
        if self.position is not None:
            encoding = tap(self, "encoding", self._encode(ids, sentences, offset))
            x = tap(self, "positioned", x + encoding)
        if self.segment is not None:
            encoding = tap(self, "segment", self.segment(torch.zeros_like(ids) if segments is None else segments))
            x = tap(self, "segmented", x + encoding)
        if sentences is not None:
            x = x.masked_fill((sentences == 0)[..., None], 0.0)
        if self.norm is not None:
            x = tap(self, "normed", self.norm(x))
        return self.dropout(x)

    def sharing(self) -> Self:
        """Another embedding of the same parameters, whose tensors have names of their own in a trace."""
        d_model = self.weight.size(1)
        norm = copy.copy(self.norm)
        if norm is not None:
            norm._parameters = dict(norm._parameters)
        twin = type(self)(0, d_model, self.position, self.dropout, self.scale, self.segment, norm)
        twin.weight = self.weight
        return twin

    def _encode(self, ids: Tensor, sentences: Sentences | None, offset: Offset) -> Tensor:
        """Positional encodings; in rows of several sentences positions count within each sentence."""
        assert self.position is not None
        if sentences is None or sentences.dtype == torch.bool:
            return self.position(offset, ids.size(1))
        return F.embedding(*positions_in_table(self.position, sentences))


def positions_in_table(
    position: nn.Module, sentences: Int[Tensor, "batch length"]
) -> tuple[Int[Tensor, "batch length"], Float[Tensor, "positions d_model"]]:
    """Position of each token in its sentence, and a table with the encodings of all these positions.

    The table covers a whole row if that many are computed anyway: the largest position would need a synchronization
    with a GPU. Padding has position 0.
    """
    positions = positions_within(sentences).masked_fill(sentences == 0, 0)
    enough = isinstance(position, Sinusoidal | Learned) and positions.size(1) <= position.n_positions
    return positions, position(0, positions.size(1) if enough else int(positions.max()) + 1)


class OutputProjection(nn.Module):
    """Linear transformation before the softmax; assign ``weight`` from an embedding to share its matrix."""

    def __init__(self, vocab_size: int, d_model: int, bias: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.bias = nn.Parameter(torch.empty(vocab_size)) if bias else None

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        logits = tap(self, "logits", F.linear(x, self.weight, self.bias))
        note(self, "log_probabilities", lambda: logits.log_softmax(-1))
        note(self, "probabilities", lambda: logits.softmax(-1))
        return logits


class SegmentEmbedding(nn.Module):
    """One vector for each text of a row: 0 and 1 in BERT."""

    def __init__(self, n_segments: int, d_model: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_segments, d_model))

    def forward(self, segments: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length d_model"]:
        return F.embedding(segments, self.weight)


class PatchEmbedding(nn.Module):
    """Linear transformation of the numbers of each patch, plus its positional encoding, then dropout.

    A ``class_token`` precedes the patches: a trained vector whose output stands for the whole input.
    """

    def __init__(self, patch_size: int, d_model: int, position: nn.Module, dropout: nn.Module, class_token: bool):
        super().__init__()
        self.projection = nn.Linear(patch_size, d_model)
        self.class_token = nn.Parameter(torch.empty(d_model)) if class_token else None
        self.position = position
        self.dropout = dropout

    def forward(self, patches: Float[Tensor, "batch patch numbers"]) -> Float[Tensor, "batch length d_model"]:
        x = tap(self, "projected", self.projection(tap(self, "patches", patches)))
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(x.size(0), 1, -1), x], dim=1)
        encoding = tap(self, "encoding", self.position(0, x.size(1)))
        return self.dropout(tap(self, "positioned", x + encoding))


def image_patches(
    images: Float[Tensor, "batch channels height width"], size: int
) -> Float[Tensor, "batch patches numbers"]:
    """Squares of ``size``, row by row; the numbers of each in the order channel, row, column."""
    squares = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    return squares.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def series_patches(
    series: Float[Tensor, "batch time"], length: int, stride: int
) -> Float[Tensor, "batch patches {length}"]:
    """``length`` steps every ``stride``; the last value is repeated for one more stride (Nie et al. 2023)."""
    return F.pad(series[:, None], (0, stride), mode="replicate")[:, 0].unfold(1, length, stride)
