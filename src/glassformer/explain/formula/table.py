"""The table of taps: for each class of module, the axes and the rule of every tensor that it records.

A name may lead through attributes: ``projection.logits`` of a ``ClassHead``. Such a row precedes that of the module
inside. A rule leads from a recorded number to the expression that gives it, with its operands.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from glassformer.explain.formula import embedding_rules as read
from glassformer.explain.formula import layer_rules as layer
from glassformer.explain.formula import output_rules as out
from glassformer.explain.formula.operands import Derivation, Operands
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.block import AddNorm, Stack
from glassformer.layers.embedding import OutputProjection, PatchEmbedding, TokenEmbedding
from glassformer.layers.feed_forward import FeedForward, GatedFeedForward
from glassformer.layers.norm import LayerNorm, RMSNorm
from glassformer.models.bert import BERT, ClassHead, MaskedTokenTransform, Pooler, TagHead
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.recurrent import Recurrent, RecurrentDecoder, RecurrentEncoder
from glassformer.models.series import SeriesModel
from glassformer.models.vit import ViT

Axes = tuple[str, ...]
Rule = Callable[[Operands], Derivation]


@dataclass(frozen=True)
class Tap:
    """The axes of a recorded tensor, and the rule of its numbers; None if they have no formula."""

    axes: Axes
    derive: Rule | None = None


POSITION = ("batch", "position", "d_model")
INNER = ("batch", "position", "d_ff")
ENCODING = ("position", "d_model")
QUERY = ("batch", "head", "query", "d_k")
KEY = ("batch", "head", "key", "d_k")
SCORES = ("batch", "head", "query", "key")
VOCAB = ("batch", "position", "vocab")
LABEL = ("batch", "label")
TOKEN = ("batch", "position")
TEXT = ("batch", "d_model")
HIDDEN = ("batch", "position", "d_hidden")
SERIES = ("batch", "one")
"""Each variable of a series is a row of the batch."""
CANDIDATES = ("sentence", "candidate")


def _projection(axes: Axes, logits: Rule, path: str = "") -> dict[str, Tap]:
    """Taps of an output projection at ``path``."""
    return {
        f"{path}logits": Tap(axes, logits),
        f"{path}log_probabilities": Tap(axes, out.probabilities),
        f"{path}probabilities": Tap(axes, out.probabilities),
    }


TAPS: dict[type[nn.Module], dict[str, Tap]] = {
    TokenEmbedding: {
        "one_hot": Tap(VOCAB, read.one_hot),
        "tokens": Tap(POSITION, read.tokens),
        "scaled": Tap(POSITION, read.scaled),
        "encoding": Tap(ENCODING, read.encoding),
        "positioned": Tap(POSITION, read.positioned),
        "segment": Tap(POSITION, read.segment),
        "segmented": Tap(POSITION, read.segmented),
        "normed": Tap(POSITION, layer.normed),
    },
    PatchEmbedding: {
        "patches": Tap(("batch", "patch", "number"), read.image_patches),
        "projected": Tap(("batch", "patch", "d_model"), read.projected),
        "encoding": Tap(ENCODING, read.encoding),
        "positioned": Tap(POSITION, read.positioned_patch),
    },
    MultiHeadAttention: {
        "q": Tap(QUERY, layer.projection),
        "k": Tap(KEY, layer.projection),
        "v": Tap(("batch", "head", "key", "d_v"), layer.projection),
        "rotated_q": Tap(QUERY, layer.rotated),
        "rotated_k": Tap(KEY, layer.rotated),
        "scores": Tap(SCORES, layer.scores),
        "scaled_scores": Tap(SCORES, layer.scaled_scores),
        "mask": Tap(SCORES, layer.mask),
        "masked_scores": Tap(SCORES, layer.masked_scores),
        "weights": Tap(SCORES, layer.weights),
        "context": Tap(("batch", "head", "query", "d_v"), layer.context),
        "concatenated": Tap(("batch", "position", "heads_d_v"), layer.concatenated),
        "result": Tap(POSITION, layer.attention_result),
    },
    FeedForward: {
        "inner": Tap(INNER, layer.inner),
        "activated": Tap(INNER, layer.activated),
        "result": Tap(POSITION, layer.feed_forward_result),
    },
    GatedFeedForward: {
        "gate": Tap(INNER, layer.gate),
        "inner": Tap(INNER, layer.inner),
        "activated": Tap(INNER, layer.activated_gate),
        "product": Tap(INNER, layer.product),
        "result": Tap(POSITION, layer.gated_result),
    },
    AddNorm: {"sum": Tap(POSITION, layer.residual_sum), "normed": Tap(POSITION, layer.normed)},
    Stack: {"normed": Tap(POSITION, layer.normed)},
    LayerNorm: {"mean": Tap(TOKEN, layer.mean), "deviation": Tap(TOKEN, layer.deviation)},
    RMSNorm: {"root_mean_square": Tap(TOKEN, layer.root_mean_square)},
    OutputProjection: _projection(VOCAB, out.decoder_logits),
    EncoderDecoder: {"memory": Tap(POSITION, out.memory)},
    BERT: {
        "memory": Tap(POSITION, out.memory),
        "embedded": Tap(TEXT, out.embedded),
        **_projection(VOCAB, out.masked_token_logits, "output_projection."),
    },
    MaskedTokenTransform: {
        "activated": Tap(POSITION, layer.activated_transform),
        "normed": Tap(POSITION, layer.normed),
    },
    Pooler: {"pooled": Tap(TEXT, out.pooled)},
    ClassHead: _projection(LABEL, out.class_logits, "projection."),
    TagHead: _projection(("batch", "position", "tag"), out.memory_logits, "projection."),
    ViT: {
        "memory": Tap(POSITION, out.memory),
        **_projection(LABEL, out.memory_logits, "output_projection."),
    },
    SeriesModel: {
        "mean": Tap(SERIES, read.series_mean),
        "deviation": Tap(SERIES, read.series_deviation),
        "embedding.patches": Tap(("batch", "patch", "number"), read.series_patches),
        "memory": Tap(POSITION, out.memory),
        "forecast": Tap(("batch", "step", "variable"), out.forecast),
    },
    Recurrent: {
        "memory": Tap(HIDDEN, out.recurrent_memory),
        **_projection(VOCAB, out.recurrent_logits, "output_projection."),
    },
    RecurrentEncoder: {"states": Tap(HIDDEN)},
    RecurrentDecoder: {
        "states": Tap(HIDDEN),
        "combined": Tap(POSITION, out.combined),
        "cross_attention.result": Tap(HIDDEN, layer.attention_result),
    },
    nn.Module: {  # of any model, in a search
        "candidate_tokens": Tap(CANDIDATES),
        "candidate_scores": Tap(CANDIDATES),
        "candidate_parents": Tap(CANDIDATES),
    },
}


def find_tap(model: nn.Module, name: str) -> Tap | None:
    """The row of a recorded tensor, by the class of its module; None for a tap that is not the package's."""
    parts, modules = re.sub(r"_\d+$", "", name).split("."), dict(model.named_modules(remove_duplicate=False))
    for depth in range(len(parts)):
        module, tap = modules.get(".".join(parts[:depth])), ".".join(parts[depth:])
        for one in type(module).__mro__:
            if one in TAPS and tap in TAPS[one]:
                return TAPS[one][tap]
    return None


def explained_taps() -> list[str]:
    """Names of the taps whose numbers have a formula."""
    rows = (row for rows in TAPS.values() for row in rows.items())
    return list(dict.fromkeys(name.rpartition(".")[2] for name, tap in rows if tap.derive is not None))
