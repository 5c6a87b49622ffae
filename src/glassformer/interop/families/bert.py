"""BERT (Devlin et al. 2019): with a head for masked tokens, text classes or tags, or without a head."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.interop.table import ENCODER, Family, Fixed, Setting, TensorRow, linear, refuse_other_problems
from glassformer.layers.dropout import attention_rate
from glassformer.models.bert import BERTConfig

PARTS = (
    *((f"self_attention.{name}", f"attention.self.{name}") for name in ("query", "key", "value")),
    ("self_attention.output", "attention.output.dense"),
    ("self_attention_norm.norm", "attention.output.LayerNorm"),
    ("feed_forward.inner", "intermediate.dense"),
    ("feed_forward.outer", "output.dense"),
    ("feed_forward_norm.norm", "output.LayerNorm"),
)
DROPOUT, ATTENTION_DROPOUT = "hidden_dropout_prob", "attention_probs_dropout_prob"
PREFIX = "bert."
"""Prefix of the stack in classes with a head."""
WORDS = "bert.embeddings.word_embeddings.weight"


def _stack(config: BERTConfig) -> list[TensorRow]:
    rows = [
        TensorRow(("embedding.position.weight",), ("bert.embeddings.position_embeddings.weight",)),
        TensorRow(("embedding.segment.weight",), ("bert.embeddings.token_type_embeddings.weight",)),
        *linear("embedding.norm", "bert.embeddings.LayerNorm"),
    ]
    for layer in range(config.n_layers):
        for our_name, their_name in PARTS:
            rows += linear(f"encoder.layers.{layer}.{our_name}", f"bert.encoder.layer.{layer}.{their_name}")
    return rows


def _masked(config: BERTConfig) -> list[TensorRow]:
    return [
        *_stack(config),
        TensorRow(("embedding.weight",), (WORDS,), aliases=("cls.predictions.decoder.weight",)),
        TensorRow(("output_projection.bias",), ("cls.predictions.bias",), aliases=("cls.predictions.decoder.bias",)),
        *linear("transform.dense", "cls.predictions.transform.dense"),
        *linear("transform.norm", "cls.predictions.transform.LayerNorm"),
    ]


def _classes(config: BERTConfig) -> list[TensorRow]:
    head = [*linear("classes.pooler.dense", "bert.pooler.dense"), *linear("classes.projection", "classifier")]
    return [*_stack(config), TensorRow(("embedding.weight",), (WORDS,)), *head]


def _tags(config: BERTConfig) -> list[TensorRow]:
    return [*_stack(config), TensorRow(("embedding.weight",), (WORDS,)), *linear("tags.projection", "classifier")]


def _bare(config: BERTConfig) -> list[TensorRow]:
    rows = [*_stack(config), TensorRow(("embedding.weight",), (WORDS,))]
    return [replace(row, their_names=tuple(name.removeprefix(PREFIX) for name in row.their_names)) for row in rows]


def _no_pooler(config: BERTConfig) -> list[Fixed]:
    """A pooler of zeros; without it, loading the class would initialize one at random."""
    d, reason = config.d_model, "has no counterpart"
    shapes = {"weight": (d, d), "bias": (d,)}
    return [Fixed(f"pooler.dense.{kind}", torch.zeros(shape), reason) for kind, shape in shapes.items()]


def _import_settings(head: str | None, their_config: dict[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    dropout = {"attention_dropout": their_config[ATTENTION_DROPOUT]}
    if head in (None, "masked_tokens"):
        return {**dropout, "masked_tokens": head is not None}
    refuse_other_problems(their_config)
    return {**dropout, "masked_tokens": False, str(head): len(their_config.get("id2label") or {})}


def _export_settings(head: str | None, config: BERTConfig) -> dict[str, Any]:
    heads = {"masked_tokens": int(config.masked_tokens), "n_classes": config.n_classes, "n_tags": config.n_tags}
    if {name for name, size in heads.items() if size} != ({head} - {None}):
        values = ", ".join(f"model.{name}={getattr(config, name)}" for name in heads)
        required = f"only the head of its task, {head}" if head else "no head for task embedding"
        raise ConfigError(f"{values}: a BERT of Hugging Face has {required}; train with that")
    rate = attention_rate(config.dropout, config.attention_dropout)
    return {ATTENTION_DROPOUT: rate, "is_decoder": False}


def _canonical_name(name: str) -> str:
    """Name with weight and bias for the γ and β of norms converted from TensorFlow."""
    return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name))


def _family(task: str, architecture: str, rows: Callable[[BERTConfig], list[TensorRow]], head: str | None) -> Family:
    has_names = head in ("n_classes", "n_tags")
    return Family(
        model_type="bert",
        architecture=architecture,
        task=task,
        settings=(
            Setting("vocab_size", ("vocab_size",)),
            *ENCODER,
            Setting("n_segments", ("type_vocab_size",)),
            Setting("max_length", ("max_position_embeddings",)),
        ),
        our_values={"kind": "bert"},
        their_values={
            "is_decoder": False,
            "add_cross_attention": False,
            "tie_word_embeddings": True,
            "position_embedding_type": "absolute",
        },
        rows=rows,
        import_settings=partial(_import_settings, head),
        export_settings=partial(_export_settings, head),
        ignored_weights={r"bert\.embeddings\.position_ids": ""},
        canonical_name=_canonical_name,
        training_only={"classifier_dropout": DROPOUT} if has_names else {},
    )


_MASKED = _family("masked", "BertForMaskedLM", _masked, "masked_tokens")
MASKED_BERT = replace(
    _MASKED,
    other_architectures=("BertForPreTraining",),
    ignored_weights={
        **_MASKED.ignored_weights,
        r"bert\.pooler\..*": "the pooler, which no head for masked tokens has,",
        r"cls\.seq_relationship\..*": "the head for the next sentence",
    },
)
BERT_CLASSIFIER = _family("classification", "BertForSequenceClassification", _classes, "n_classes")
BERT_TAGGER = _family("tagging", "BertForTokenClassification", _tags, "n_tags")
BARE_BERT = replace(
    _family("embedding", "BertModel", _bare, None),
    fixed=_no_pooler,
    ignored_weights={r"embeddings\.position_ids": "", r"pooler\..*": "the pooler, which text vectors do not use,"},
    canonical_name=lambda name: _canonical_name(name).removeprefix(PREFIX),
    notes=lambda config: ["the pooler of BertModel is written as zeros, since this model has none"],
)
"""The stack without a head, as sentence encoders are stored."""
