"""Section 3.4: tokens become vectors of d_model, multiplied by √d_model; the same matrix turns vectors into logits.

What later models read besides: segments (Devlin et al. 2019), and patches of an image (Dosovitskiy et al. 2021) or of a
series (Nie et al. 2023).
"""

import copy
import math
from typing import Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.layers.dropout import Dropout
from glassformer.layers.linear import Linear
from glassformer.layers.mask import Sentences, positions_within
from glassformer.layers.position import Learned, Offset, Sinusoidal
from glassformer.native.embedding import can_embed, embedded
from glassformer.taps import note, overheard, tap, tracing


class SegmentEmbedding(nn.Module):
    """One vector for each of the texts that a row holds, 0 and 1 in BERT."""

    def __init__(self, n_segments: int, d_model: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_segments, d_model))

    def forward(self, segments: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length d_model"]:
        return F.embedding(segments, self.weight)


class TokenEmbedding(nn.Module):
    """A row of the matrix for each token, × √d_model, plus its position, then dropout (section 5.4).

    ``position`` is called with (offset, length); ``None`` adds nothing, as with rotary positions.
    Differs from the paper: ``scale`` may be another factor than √d_model, ``segment`` adds a vector for the text that a
    token belongs to, and ``norm`` normalises the sum.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        position: nn.Module | None,
        dropout: nn.Module,
        scale: float | None = None,
        segment: SegmentEmbedding | None = None,
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
        """Padding becomes zero, so that nothing behind it can reach the rest; positions count within a sentence.

        (A normalisation makes one and the same finite vector of it.) Without ``segments`` all tokens are of the first.
        """
        if segments is None and (whole := self._in_one_pass(ids, sentences, offset)) is not None:
            return whole
        rows = F.embedding(ids, self.weight)
        note(self, "one_hot", lambda: F.one_hot(ids, self.weight.size(0)).to(self.weight.dtype))
        rows = tap(self, "tokens", rows)
        x = tap(self, "scaled", rows * self.scale)
        if self.position is not None:
            encoding = tap(self, "encoding", self._positions(self.position, ids, sentences, offset))
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
        """Another embedding on the same matrix, the same positions and the norm's same parameters."""
        d_model = self.weight.size(1)
        norm = copy.copy(self.norm)  # a module of its own: what it computes has a name of its own
        if norm is not None:
            norm._parameters = dict(norm._parameters)
        twin = type(self)(0, d_model, self.position, self.dropout, self.scale, self.segment, norm)
        twin.weight = self.weight
        return twin

    def _in_one_pass(self, ids: Tensor, sentences: Sentences | None, offset: Offset) -> Tensor | None:
        """By the kernels, in training and where nobody looks at what is between; else None."""
        dropout, plain = self.dropout, self.segment is None and self.norm is None and isinstance(offset, int)
        if not (plain and torch.is_grad_enabled() and self.training) or tracing():
            return None
        if not isinstance(dropout, Dropout) or overheard(dropout) or not can_embed(self.weight):
            return None
        places, table = None, None
        if self.position is not None and sentences is not None and sentences.dtype != torch.bool:
            places = positions_within(sentences).masked_fill(sentences == 0, 0)
            table = _encodings(self.position, places)
        elif self.position is not None:
            places = torch.arange(ids.size(1), device=ids.device).expand_as(ids)
            table = self.position(offset, ids.size(1))
        used = None if sentences is None else sentences != 0
        return embedded(ids, used, self.weight, self.scale, places, table, dropout.threshold if dropout.training else 0)

    @staticmethod
    def _positions(position: nn.Module, ids: Tensor, sentences: Sentences | None, offset: Offset) -> Tensor:
        if sentences is None or sentences.dtype == torch.bool:
            return position(offset, ids.size(1))
        within = positions_within(sentences).masked_fill(sentences == 0, 0)  # padding has no place to run out of
        return F.embedding(within, _encodings(position, within))


def _encodings(position: nn.Module, places: Int[Tensor, "batch length"]) -> Float[Tensor, "positions d_model"]:
    """Of the positions up to the last of ``places``, or more: which is the last, a GPU would have to be waited for."""
    length = places.size(1)
    enough = isinstance(position, Sinusoidal | Learned) and length <= position.at_hand
    return position(0, length if enough else int(places.max()) + 1)


class PatchEmbedding(nn.Module):
    """The numbers of each patch through one linear transformation, plus its position, then dropout.

    A ``class_token`` stands before the patches: a vector of its own, whose place in the output speaks for all of them.
    """

    def __init__(self, patch_size: int, d_model: int, position: nn.Module, dropout: nn.Module, class_token: bool):
        super().__init__()
        self.projection = Linear(patch_size, d_model)
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
    """Squares of ``size``, row by row; the numbers of each by channel, row and column."""
    squares = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    return squares.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def series_patches(
    series: Float[Tensor, "batch time"], length: int, stride: int
) -> Float[Tensor, "batch patches {length}"]:
    """``length`` steps every ``stride``; the last value is repeated for one stride more (Nie et al. 2023)."""
    return F.pad(series[:, None], (0, stride), mode="replicate")[:, 0].unfold(1, length, stride)


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
