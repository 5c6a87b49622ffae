"""Guided alignment: one head of the cross-attention learns given word alignments while the model learns to translate.

Chen, Matusov, Khadivi & Peter 2016, "Guided Alignment Training for Topic-Aware Neural Machine Translation"
(arXiv:1607.01628), of one head as in Garg et al. 2019, "Jointly Learning to Align and Translate with Transformer
Models" (arXiv:1909.02074), and by default at the step that *reads* a word, as Chen et al. 2020, "Accurate Word
Alignment Induction from Neural Machine Translation" (arXiv:2004.14837), read alignments: there the word is known.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from glassformer.alignment.attention import HeadReading
from glassformer.config import Config
from glassformer.data import TokenLinks
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.mask import Mask
from glassformer.taps import InputRecorder


class GuidedAlignmentConfig(Config):
    """Head that learns ``data.alignments``, and the weight of its loss. Unused without alignments."""

    weight: float = Field(0.1, gt=0, description="weight of the head's cross-entropy beside that of the translation")
    layer: int = Field(-1, description="layer of the decoder, from 0, or from its end when negative")
    head: int = Field(0, ge=0, description="head of that layer, from 0")
    shifted: bool = True
    """Read attention at the step whose input is the target word (Chen et al. 2020); false: at its prediction (Garg)."""

    def reading(self, n_layers: int) -> HeadReading:
        """The head that a trained model reads for alignments, with its layer counted from 0."""
        return HeadReading(self.layer % n_layers, self.head, self.shifted)


def guided(
    model: nn.Module, how: GuidedAlignmentConfig, links: TokenLinks, run: Callable[[], Tensor]
) -> tuple[Tensor, Tensor]:
    """Call ``run``, which runs ``model`` once, and compute the weighted loss of the guided head, summed over tokens.

    The loss is −weight · Σ G log A over all target tokens (Garg et al. 2019): G are the shares of ``links``, A is the
    attention of the head. This sums a cross-entropy in nats over the tokens with links. Like the rest of the loss it is
    divided by all target tokens, so it does not depend on the division into batches and rows.

    The head's weights are computed a second time here, so that attention itself stays fused. A hook records the inputs
    of the module, which avoids an argument through every layer.
    """
    attention = cross_attentions(model)[how.layer]
    recorder = InputRecorder()
    with attention.register_forward_pre_hook(recorder):
        result = run()
    row, step, column = links.places
    linked = log_weights(attention, how.head, *recorder.calls[0][:3])[row, step + how.shifted, column]
    return result, -how.weight * (links.shares.to(linked) * linked).sum()


def cross_attentions(model: nn.Module) -> list[MultiHeadAttention]:
    """Cross-attention of each layer of a Transformer's decoder, or the only one of a recurrent decoder."""
    return [m for path, m in model.named_modules() if path.endswith("cross_attention")]


def log_weights(
    attention: MultiHeadAttention,
    head: int,
    x: Float[Tensor, "rows query d_model"],
    memory: Float[Tensor, "rows key d_model"],
    mask: Mask | None = None,
) -> Float[Tensor, "rows query key"]:
    """Logarithm of one head's attention weights, without dropout, in float32 or wider.

    A masked key has the lowest finite score instead of −∞, so that gradients stay finite.
    """
    d_k = attention.query.out_features // attention.n_heads
    rows = slice(head * d_k, (head + 1) * d_k)
    q, k = (
        F.linear(side, projection.weight[rows], None if projection.bias is None else projection.bias[rows])
        for side, projection in ((x, attention.query), (memory, attention.key))
    )
    dtype = torch.promote_types(q.dtype, torch.float32)
    scores = q.to(dtype) @ k.to(dtype).transpose(-2, -1) / math.sqrt(d_k)
    if mask is not None and (visible := mask.dense(q.size(1), k.size(1), q.device)) is not None:
        scores = scores.masked_fill(~visible[:, 0], torch.finfo(dtype).min)
    return scores.log_softmax(-1)
