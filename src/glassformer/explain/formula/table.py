"""The table of taps: for each class of module, every tensor that it records, with axes, formula and rule.

A name may lead through attributes: ``projection.logits`` of a ``ClassHead``. Such a row precedes that of the module
inside. ``docs/tensor-names.md`` is this table (``make docs``).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from glassformer.explain.formula import embedding_rules as read
from glassformer.explain.formula import layer_rules as layer
from glassformer.explain.formula import output_rules as out
from glassformer.explain.formula.operands import Derivation, Operands, model_input
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.block import AddNorm, Stack
from glassformer.layers.embedding import OutputProjection, PatchEmbedding, TokenEmbedding
from glassformer.layers.feed_forward import FeedForward, GatedFeedForward
from glassformer.layers.norm import LayerNorm, RMSNorm
from glassformer.models.bert import BERT, ClassHead, MaskedTokenTransform, Pooler, TagHead
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.gpt import GPT
from glassformer.models.recurrent import Recurrent, RecurrentDecoder, RecurrentEncoder
from glassformer.models.series import SeriesModel
from glassformer.models.vit import ViT

Axes = tuple[str, ...]
Rule = Callable[[Operands], Derivation]


@dataclass(frozen=True)
class Condition:
    """Condition under which a module records a tap, in words and as a test of the module.

    Without ``holds`` it depends on the call.
    """

    text: str
    holds: Callable[[Any], bool] | None = None


@dataclass(frozen=True)
class Tap:
    """A recorded tensor: its axes, the formula of its numbers in LaTeX, its origin, and its rule.

    The formula is that of the default settings; a rule may give another. Without a rule, numbers are not explained.
    """

    axes: Axes
    formula: str
    reference: str
    derive: Rule | None = None
    read_only: bool = False
    """True if the model computes nothing from the tensor, so that an edit of it is refused."""
    condition: Condition | None = None
    """Condition of its being recorded; None if it always is."""


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
PATCH = ("batch", "patch", "number")
SERIES = ("batch", "one")
"""Each variable of a series is a row of the batch."""
CANDIDATES = ("sentence", "candidate")

SUBLAYER = r"x + \text{Sublayer}(x)"
LAYER_NORM = r"\frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \gamma + \beta", "Ba et al. 2016", layer.normed
ROTATED = r"x_{2i} \cos\theta - x_{2i+1} \sin\theta", "Su et al. 2021", layer.rotated
MEMORY = Tap(POSITION, r"\text{Encoder}(x)", "section 3.1", out.memory)
LINEAR = r"x W + b"
ROTARY = Condition("rotary positions", lambda attention: attention.rotary is not None)
MASKED = Condition("with a mask: causality, padding or a pattern")
ADDED = Condition("positions that are added", lambda embedding: embedding.position is not None)
SEGMENTS = Condition("BERT", lambda embedding: embedding.segment is not None)
NORMED_EMBEDDING = Condition("BERT, or `norm_embeddings = true`", lambda embedding: embedding.norm is not None)
PRE_NORM = Condition("pre-norm order", lambda stack: stack.final_norm is not None)
NORMALIZED = Condition("`normalize = true`", lambda model: model.config.normalize)
SEARCH, BEAM = Condition("in a search"), Condition("in a beam search")
EMBED = Condition("by `embed()`")
VIT, BERT_PAPER = "Dosovitskiy et al. 2021", "Devlin et al. 2019"


def _projection(axes: Axes, logits: Rule, path: str = "") -> dict[str, Tap]:
    """Taps of an output projection at ``path``."""
    log = r"z_w - \ln \sum_v e^{z_v}"
    softmax = r"\frac{e^{z_w}}{\sum_v e^{z_v}}"
    return {
        f"{path}logits": Tap(axes, LINEAR, "section 3.4", logits),
        f"{path}log_probabilities": Tap(axes, log, "section 3.4", out.log_probabilities, read_only=True),
        f"{path}probabilities": Tap(axes, softmax, "section 3.4", out.probabilities, read_only=True),
    }


SEARCHED = {
    "candidate_tokens": Tap(CANDIDATES, r"\text{best tokens of a step}", "section 6.1", None, True, SEARCH),
    "candidate_scores": Tap(
        CANDIDATES, r"\text{log-probability, with a beam that of all tokens so far}", "section 6.1", None, True, SEARCH
    ),
    "candidate_parents": Tap(
        CANDIDATES, r"\text{hypothesis of the beam that each continues}", "section 6.1", None, True, BEAM
    ),
}

TAPS: dict[type[nn.Module], dict[str, Tap]] = {
    TokenEmbedding: {
        "one_hot": Tap(
            VOCAB,
            r"1 \text{ where } v = \text{id}(\text{token}_p)\text{, else } 0",
            "3.4; the tokenizer gives ids",
            model_input,
            read_only=True,
        ),
        "tokens": Tap(POSITION, r"\sum_v \text{onehot}_{p,v} E_{v,d}", "section 3.4", read.tokens),
        "scaled": Tap(POSITION, r"E_{p,d} \sqrt{d_{model}}", "section 3.4", read.scaled),
        "encoding": Tap(
            ENCODING,
            r"\sin\left(\frac{p}{10000^{2i/d_{model}}}\right)",
            "section 3.5",
            read.encoding,
            condition=ADDED,
        ),
        "positioned": Tap(
            POSITION,
            r"x_{p,d} = E_{p,d} \sqrt{d_{model}} + PE_{p,d}",
            "sections 3.4, 3.5",
            read.positioned,
            condition=ADDED,
        ),
        "segment": Tap(POSITION, r"S_{s(p),d}", f"{BERT_PAPER}, figure 2", read.segment, condition=SEGMENTS),
        "segmented": Tap(
            POSITION,
            r"x_{p,d} = E_{p,d} + P_{p,d} + S_{s(p),d}",
            f"{BERT_PAPER}, figure 2",
            read.segmented,
            condition=SEGMENTS,
        ),
        "normed": Tap(POSITION, *LAYER_NORM, condition=NORMED_EMBEDDING),
    },
    PatchEmbedding: {
        "patches": Tap(
            PATCH, r"\text{a square of the image, by channel, row and column}", f"{VIT}, section 3.1", model_input
        ),
        "projected": Tap(("batch", "patch", "d_model"), LINEAR, f"{VIT}, equation 1", read.projected),
        "encoding": Tap(ENCODING, *read.LEARNED, read.encoding),
        "positioned": Tap(POSITION, r"x_p W + b + P_{p,d}", f"{VIT}, equation 1", read.positioned_patch),
    },
    MultiHeadAttention: {
        "q": Tap(QUERY, r"q = x W^Q + b", "section 3.2.2", layer.projection),
        "k": Tap(KEY, r"k = x W^K + b", "section 3.2.2", layer.projection),
        "v": Tap(("batch", "head", "key", "d_v"), r"v = x W^V + b", "section 3.2.2", layer.projection),
        "rotated_q": Tap(QUERY, *ROTATED, condition=ROTARY),
        "rotated_k": Tap(KEY, *ROTATED, condition=ROTARY),
        "scores": Tap(SCORES, r"q \cdot k = \sum_i q_i k_i", "section 3.2.1", layer.scores),
        "scaled_scores": Tap(SCORES, r"\frac{q \cdot k}{\sqrt{d_k}}", "equation 1", layer.scaled_scores),
        "mask": Tap(SCORES, r"1 \text{ where attention is allowed}", "section 3.2.3", model_input, True, MASKED),
        "masked_scores": Tap(
            SCORES,
            r"\frac{q \cdot k}{\sqrt{d_k}} \text{ where visible, else } -\infty",
            "section 3.2.3",
            layer.masked_scores,
            True,
            MASKED,
        ),
        "weights": Tap(SCORES, r"\frac{e^{s_k}}{\sum_j e^{s_j}}", "equation 1", layer.weights),
        "context": Tap(("batch", "head", "query", "d_v"), r"\sum_k a_k v_k", "equation 1", layer.context),
        "concatenated": Tap(
            ("batch", "position", "heads_d_v"),
            r"\text{Concat}(head_1, \dots, head_h)",
            "section 3.2.2",
            layer.concatenated,
        ),
        "result": Tap(
            POSITION, r"\text{Concat}(head_1, \dots, head_h) W^O + b", "section 3.2.2", layer.attention_result
        ),
    },
    FeedForward: {
        "inner": Tap(INNER, r"x W_1 + b_1", "equation 2", layer.inner),
        "activated": Tap(INNER, r"\text{activation}(x W_1 + b_1)", "section 3.3", layer.activated),
        "result": Tap(POSITION, r"\text{activated}(x W_1 + b_1) W_2 + b_2", "equation 2", layer.feed_forward_result),
    },
    GatedFeedForward: {
        "gate": Tap(INNER, r"x W_{gate} + b", "Shazeer 2020", layer.gate),
        "inner": Tap(INNER, r"x W_1 + b_1", "equation 2", layer.inner),
        "activated": Tap(INNER, r"\text{activation}(x W_{gate} + b)", "section 3.3", layer.activated_gate),
        "product": Tap(INNER, r"\text{activated}(x W_{gate}) \odot x W_1", "Shazeer 2020", layer.product),
        "result": Tap(
            POSITION,
            r"(\text{activated}(x W_{gate}) \odot x W_1) W_2",
            "Shazeer 2020, equation 6",
            layer.gated_result,
        ),
    },
    AddNorm: {
        "sum": Tap(POSITION, SUBLAYER, "section 3.1", layer.residual_sum),
        "normed": Tap(POSITION, *LAYER_NORM),
    },
    Stack: {"normed": Tap(POSITION, *LAYER_NORM, condition=PRE_NORM)},
    LayerNorm: {
        "mean": Tap(TOKEN, r"\mu = \frac{1}{d} \sum_i x_i", "Ba et al. 2016", layer.mean, read_only=True),
        "deviation": Tap(
            TOKEN,
            r"\sqrt{\frac{1}{d} \sum_i (x_i - \mu)^2 + \epsilon}",
            "Ba et al. 2016",
            layer.deviation,
            read_only=True,
        ),
    },
    RMSNorm: {
        "root_mean_square": Tap(
            TOKEN,
            r"\sqrt{\frac{1}{d} \sum_i x_i^2 + \epsilon}",
            layer.RMS_NORM,
            layer.root_mean_square,
            read_only=True,
        )
    },
    OutputProjection: _projection(VOCAB, out.decoder_logits),
    EncoderDecoder: {"memory": MEMORY, **SEARCHED},
    GPT: SEARCHED,
    BERT: {
        "memory": MEMORY,
        "embedded": Tap(
            TEXT,
            r"\frac{1}{n} \sum_p x_{p,d}",
            "Reimers & Gurevych 2019, section 3",
            out.embedded,
            condition=EMBED,
        ),
        **_projection(VOCAB, out.masked_token_logits, "output_projection."),
    },
    MaskedTokenTransform: {
        "activated": Tap(
            POSITION,
            r"\text{activation}(z), z = x W + b",
            f"{BERT_PAPER}, section 3.1; the linear transformation before it is not recorded by itself",
            layer.activated_transform,
        ),
        "normed": Tap(POSITION, *LAYER_NORM),
    },
    Pooler: {"pooled": Tap(TEXT, r"\tanh(x_{[CLS]} W + b)", f"{BERT_PAPER}, section 3", out.pooled)},
    ClassHead: _projection(LABEL, out.class_logits, "projection."),
    TagHead: _projection(("batch", "position", "tag"), out.memory_logits, "projection."),
    ViT: {"memory": MEMORY, **_projection(LABEL, out.memory_logits, "output_projection.")},
    SeriesModel: {
        "mean": Tap(
            SERIES,
            r"\mu = \frac{1}{T} \sum_t x_t",
            "Kim et al. 2022; the series itself is not recorded",
            model_input,
            condition=NORMALIZED,
        ),
        "deviation": Tap(
            SERIES,
            r"\sqrt{\frac{1}{T} \sum_t (x_t - \mu)^2 + \epsilon}",
            "Kim et al. 2022; the series itself is not recorded",
            model_input,
            condition=NORMALIZED,
        ),
        "embedding.patches": Tap(PATCH, r"\text{a stretch of the series}", "Nie et al. 2023, section 3.1", model_input),
        "memory": MEMORY,
        "forecast": Tap(
            ("batch", "step", "variable"), r"\text{flatten}(x) W + b", "Nie et al. 2023, section 3.1", out.forecast
        ),
    },
    Recurrent: {
        "memory": Tap(
            HIDDEN,
            r"[\overrightarrow{h}_p; \overleftarrow{h}_p]",
            "Bahdanau et al. 2015, section 3.2",
            out.recurrent_memory,
        ),
        **_projection(VOCAB, out.recurrent_logits, "output_projection."),
        **SEARCHED,
    },
    RecurrentEncoder: {
        "states_N": Tap(HIDDEN, r"\text{states of layer } N\text{, both directions}", "Hochreiter & Schmidhuber 1997")
    },
    RecurrentDecoder: {
        "states_N": Tap(HIDDEN, r"\text{states of layer } N", "Hochreiter & Schmidhuber 1997"),
        "combined": Tap(POSITION, r"\tanh(W [c; h] + b)", "Luong et al. 2015, equation 5", out.combined),
        "cross_attention.result": Tap(
            HIDDEN, r"\text{Concat}(head_1, \dots, head_h) W^O + b", "section 3.2.2", layer.attention_result
        ),
    },
}


def find_row(model: nn.Module, name: str) -> tuple[type[nn.Module], str] | None:
    """Class and name of the row of a recorded tensor, by its module; None for a tap that is not the package's."""
    parts = re.sub(r"_\d+$", "_N", name).split(".")
    module: nn.Module | None = model
    for depth, part in enumerate(parts):
        tap = ".".join(parts[depth:])
        for one in type(module).__mro__:
            if one in TAPS and tap in TAPS[one]:
                return one, tap
        child = getattr(module, part, None)
        module = child if isinstance(child, nn.Module) else None
    return None


def find_tap(model: nn.Module, name: str) -> Tap | None:
    """The row of a recorded tensor; None for a tap that is not the package's."""
    row = find_row(model, name)
    return None if row is None else TAPS[row[0]][row[1]]


def axes_of(model: nn.Module, name: str, tensor: Tensor) -> tuple[str, ...]:
    """The names of the axes of ``tensor``; numbered ones for a tap that is not the package's, or of another shape."""
    tap = find_tap(model, name)
    known = () if tap is None else tap.axes
    if len(known) == tensor.ndim:
        return known
    if known[:1] == ("batch",) and len(known) == tensor.ndim + 1:  # one step of a search has no axis of positions
        return tuple(axis for axis in known if axis != "position")
    if name.endswith(".encoding") and len(known) == tensor.ndim - 1:  # one for each row, where rows hold several texts
        return ("batch", *known)
    return tuple(f"axis_{number}" for number in range(tensor.ndim))


def explained_taps() -> list[str]:
    """Names of the taps whose numbers have a formula."""
    rows = (row for rows in TAPS.values() for row in rows.items())
    return list(dict.fromkeys(name.rpartition(".")[2] for name, tap in rows if tap.derive is not None))
