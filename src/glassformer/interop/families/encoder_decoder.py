"""Rows and settings shared by the encoder–decoders of Hugging Face that descend from BART."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.interop.table import (
    ACTIVATIONS,
    SINUSOID_TOLERANCE,
    Change,
    Family,
    Fixed,
    Setting,
    TensorRow,
    reordered,
    restore_sinusoids,
    unchanged,
)
from glassformer.layers.dropout import attention_rate
from glassformer.layers.position import sinusoids
from glassformer.models.encoder_decoder import EncoderDecoderConfig

PARTS: tuple[tuple[str, str, int, int | None], ...] = (
    ("self_attention.query", "self_attn.q_proj", 1, None),
    ("self_attention.key", "self_attn.k_proj", 1, None),
    ("self_attention.value", "self_attn.v_proj", 1, None),
    ("self_attention.output", "self_attn.out_proj", 0, 0),
    ("self_attention_norm.norm", "self_attn_layer_norm", 0, 0),
    ("cross_attention.query", "encoder_attn.q_proj", 1, None),
    ("cross_attention.key", "encoder_attn.k_proj", 1, None),
    ("cross_attention.value", "encoder_attn.v_proj", 1, None),
    ("cross_attention.output", "encoder_attn.out_proj", 0, 0),
    ("cross_attention_norm.norm", "encoder_attn_layer_norm", 0, 0),
    ("feed_forward.inner", "fc1", 1, None),
    ("feed_forward.outer", "fc2", 0, 0),
    ("feed_forward_norm.norm", "final_layer_norm", 0, 0),
)
"""Our name, their name, and the axis of the weight and of the bias that runs over d_model."""

SETTINGS = (
    Setting("d_model", ("d_model",)),
    Setting("n_heads", ("encoder_attention_heads", "decoder_attention_heads")),
    Setting("d_ff", ("encoder_ffn_dim", "decoder_ffn_dim")),
    Setting("n_encoder_layers", ("encoder_layers",)),
    Setting("n_decoder_layers", ("decoder_layers",)),
    Setting("dropout", ("dropout",)),
    Setting("max_length", ("max_position_embeddings",)),
    Setting("activation", ("activation_function",), {"gelu": "gelu", **ACTIVATIONS}),
)

TRAINING_ONLY = {"activation_dropout": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}
CONSTANTS: dict[str, Any] = {**TRAINING_ONLY, "forced_eos_token_id": None}

SIDES = {"source": "encoder", "target": "decoder"}
SHARED, LOGITS = "model.shared.weight", "lm_head.weight"
SOURCE, TARGET = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
BIAS = "final_logits_bias"


def layers(config: EncoderDecoderConfig, order: Tensor | None = None) -> list[TensorRow]:
    """Rows for both stacks; ``order`` is the permutation of the residual stream in their model."""
    rows = []
    for side, count in (("encoder", config.n_encoder_layers), ("decoder", config.n_decoder_layers)):
        for index in range(count):
            for our_name, their_name, weight_axis, bias_axis in PARTS:
                if side == "encoder" and our_name.startswith("cross"):
                    continue
                name, other = f"{side}.layers.{index}.{our_name}", f"model.{side}.layers.{index}.{their_name}"
                rows.append(reordered(f"{name}.weight", f"{other}.weight", weight_axis, order))
                if config.attention_bias or not _projects(our_name):
                    rows.append(reordered(f"{name}.bias", f"{other}.bias", bias_axis, order))
        if config.norm_order == "pre":
            for kind in ("weight", "bias"):
                rows.append(reordered(f"{side}.final_norm.{kind}", f"model.{side}.layer_norm.{kind}", 0, order))
    return rows


def embeddings(config: EncoderDecoderConfig, order: Tensor | None = None, shared: bool = True) -> list[TensorRow]:
    """Rows for the matrices of section 3.4; with ``shared``, their model stores a common one even if it is unused."""
    rows = [_biased()] if config.output_bias else []
    if config.tie_embeddings:
        tied = reordered("source_embedding.weight", SHARED, 1, order)
        return [replace(tied, aliases=(SOURCE, TARGET, LOGITS)), *rows]
    source = reordered("source_embedding.weight", SOURCE, 1, order)
    target = reordered("target_embedding.weight", TARGET, 1, order)
    logits = reordered("output_projection.weight", LOGITS, 1, order)
    return [
        replace(source, fallbacks=(SHARED,), copies=(SHARED,) if shared else ()),
        replace(target, fallbacks=(SHARED,)),
        replace(logits, fallbacks=(TARGET, SHARED)),
        *rows,
    ]


def embedding_rows(
    config: EncoderDecoderConfig,
    our_name: str,
    their_name: str,
    on_import: Change = unchanged,
    on_export: Change = unchanged,
) -> list[TensorRow]:
    """Rows for one tensor of each embedding; tied embeddings have one tensor here and two equal ones there."""
    pairs = [(f"{side}_embedding.{our_name}", f"model.{stack}.{their_name}") for side, stack in SIDES.items()]
    if not config.tie_embeddings:
        return [TensorRow((our_name,), (their_name,), on_import, on_export) for our_name, their_name in pairs]

    def twice(tensors: list[Tensor]) -> list[Tensor]:
        return [*on_export(tensors), *(tensor.clone() for tensor in on_export(tensors))]

    return [TensorRow((pairs[0][0],), (pairs[0][1], pairs[1][1]), lambda tensors: on_import(tensors[:1]), twice)]


def equal_in_both(weights: Mapping[str, Tensor], their_name: str, on_import: Change = unchanged) -> bool:
    """True if both embeddings can share the tensor; if it differs, they are untied even with one matrix."""
    tensors = [weights[name] for stack in SIDES.values() if (name := f"model.{stack}.{their_name}") in weights]
    return len(tensors) < len(SIDES) or torch.equal(*(on_import([tensor])[0] for tensor in tensors))


def absent_biases(config: EncoderDecoderConfig) -> list[Fixed]:
    """Zero for the biases that their model always has and ours may lack."""
    fixed = []
    if not config.output_bias:
        error = "is not zero, and output_bias=false has no place for it"
        fixed.append(Fixed(BIAS, torch.zeros(1, config.vocab_sizes[1]), error))
    if not config.attention_bias:
        for side, count in (("encoder", config.n_encoder_layers), ("decoder", config.n_decoder_layers)):
            for index in range(count):
                for our_name, their_name, _, _ in PARTS:
                    if _projects(our_name) and not (side == "encoder" and our_name.startswith("cross")):
                        name = f"model.{side}.layers.{index}.{their_name}.bias"
                        error = "is not zero, and attention_bias=false has no place for it"
                        fixed.append(Fixed(name, torch.zeros(config.d_model), error))
    return fixed


def sines_first(d_model: int) -> Tensor:
    """Permutation that puts all sines before all cosines: 0, 2, 4, …, 1, 3, 5, …"""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def position_table(config: EncoderDecoderConfig) -> Tensor:
    """Table of section 3.5 in float64, sines first."""
    table = sinusoids(torch.arange(config.max_length).double(), config.d_model)
    return table.index_select(1, sines_first(config.d_model))


def position_tables(config: EncoderDecoderConfig, exported: bool) -> list[Fixed]:
    value, error, sides = position_table(config).float(), "is not the sinusoidal table", ("encoder", "decoder")
    names = [f"model.{side}.embed_positions.weight" for side in sides]
    return [Fixed(name, value, error, SINUSOID_TOLERANCE, exported) for name in names]


def make_positions_exact(their_model: Any, config: EncoderDecoderConfig) -> None:
    """Replace tables of sinusoids, which are rounded to float32 even in a float64 model, by the exact one."""
    exact = position_table(config)
    for side in (their_model.model.encoder, their_model.model.decoder):
        restore_sinusoids(side.embed_positions.weight, exact)


def import_embeddings(their_config: dict[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Settings of the embeddings: one matrix if all three are tied, otherwise three."""
    source, tied = their_config["vocab_size"], their_config.get("tie_word_embeddings", True)
    target = their_config.get("decoder_vocab_size") or source
    shared = their_config.get("share_encoder_decoder_embeddings", True)
    return {
        "vocab_size": source if source == target else [source, target],
        "tie_embeddings": bool(tied and shared),
        "attention_dropout": their_config["attention_dropout"],
        "attention_bias": True,
        "output_bias": BIAS in weights and bool(weights[BIAS].any()),
    }


def export_embeddings(config: EncoderDecoderConfig) -> dict[str, Any]:
    """Settings of the embeddings for families with one vocabulary size."""
    source, target = config.vocab_sizes
    if source != target:
        raise ConfigError(
            f"model.vocab_size={[source, target]}: of Hugging Face's models Marian's alone have a size for each side; "
            "train with text.joint=true, or export to ctranslate2"
        )
    return {**export_attention(config), "vocab_size": source, "tie_word_embeddings": config.tie_embeddings}


def export_attention(config: EncoderDecoderConfig) -> dict[str, Any]:
    """Dropout of the attention weights; ``ConfigError`` if heads are not d_model/n_heads wide."""
    usual = config.d_model / config.n_heads
    if config.head_sizes != (usual, usual):
        raise ConfigError(
            f"model.d_k={config.head_sizes[0]}, model.d_v={config.head_sizes[1]}: heads of Hugging Face's models are "
            f"d_model/n_heads={usual:g} wide; export to onnx, or train with that"
        )
    return {"attention_dropout": attention_rate(config.dropout, config.attention_dropout)}


def _projects(our_name: str) -> bool:
    return "_attention." in our_name


def _biased() -> TensorRow:
    return TensorRow(
        ("output_projection.bias",),
        (BIAS,),
        lambda tensors: [tensors[0].reshape(-1)],
        lambda tensors: [tensors[0].reshape(1, -1)],
    )


descendant = partial(
    Family,
    settings=SETTINGS,
    fixed=absent_biases,
    import_settings=import_embeddings,
    export_settings=export_embeddings,
    constants=CONSTANTS,
    training_only=TRAINING_ONLY,
)
"""Family with the defaults of the descendants of BART."""
