"""Inputs of later models: segments of a text, and patches of an image or of a series.

Devlin et al. 2019 (arXiv:1810.04805), Dosovitskiy et al. 2021 (arXiv:2010.11929), Nie et al. 2023 (arXiv:2211.14730).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.taps import tap


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
