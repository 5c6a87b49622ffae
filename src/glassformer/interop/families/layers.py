"""What the encoder–decoders of Hugging Face that descend from BART have in common: the names within a layer."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.interop.table import Change, Family, Fixed, Setting, TensorRow, reordered, unchanged
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
"""Ours, theirs, and which axis of the weight and of the bias runs over d_model."""

SETTINGS = (
    Setting("d_model", ("d_model",)),
    Setting("n_heads", ("encoder_attention_heads", "decoder_attention_heads")),
    Setting("d_ff", ("encoder_ffn_dim", "decoder_ffn_dim")),
    Setting("n_encoder_layers", ("encoder_layers",)),
    Setting("n_decoder_layers", ("decoder_layers",)),
    Setting("dropout", ("dropout",)),
    Setting("max_length", ("max_position_embeddings",)),
    Setting("activation", ("activation_function",), {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}),
)

TRAINING = {"activation_dropout": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}
WRITTEN: dict[str, Any] = {**TRAINING, "forced_eos_token_id": None}

SIDES = {"source": "encoder", "target": "decoder"}
SHARED, LOGITS = "model.shared.weight", "lm_head.weight"
SOURCE, TARGET = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
BIAS = "final_logits_bias"

ROUNDED = 1e-3
"""How far a table of sines may be from the exact one, as when it was stored in 16 bits."""


def layers(config: EncoderDecoderConfig, order: Tensor | None = None) -> list[TensorRow]:
    """Every parameter of both stacks; ``order``: where theirs has each dimension of the residual stream from."""
    rows = []
    for side, count in (("encoder", config.n_encoder_layers), ("decoder", config.n_decoder_layers)):
        for index in range(count):
            for ours, theirs, weight_axis, bias_axis in PARTS:
                if side == "encoder" and ours.startswith("cross"):
                    continue
                name, other = f"{side}.layers.{index}.{ours}", f"model.{side}.layers.{index}.{theirs}"
                rows.append(reordered(f"{name}.weight", f"{other}.weight", weight_axis, order))
                if config.attention_bias or not _projects(ours):
                    rows.append(reordered(f"{name}.bias", f"{other}.bias", bias_axis, order))
        if config.norm_order == "pre":
            for kind in ("weight", "bias"):
                rows.append(reordered(f"{side}.final_norm.{kind}", f"model.{side}.layer_norm.{kind}", 0, order))
    return rows


def embeddings(config: EncoderDecoderConfig, order: Tensor | None = None, shared: bool = True) -> list[TensorRow]:
    """The matrices of section 3.4. ``shared``: theirs has a common one even where it goes unused."""
    rows = [_biased()] if config.output_bias else []
    if config.tie_embeddings:
        tied = reordered("source_embedding.weight", SHARED, 1, order)
        return [replace(tied, aliases=(SOURCE, TARGET, LOGITS)), *rows]
    source = reordered("source_embedding.weight", SOURCE, 1, order)
    target = reordered("target_embedding.weight", TARGET, 1, order)
    logits = reordered("output_projection.weight", LOGITS, 1, order)
    return [
        replace(source, instead=(SHARED,), copies=(SHARED,) if shared else ()),
        replace(target, instead=(SHARED,)),
        replace(logits, instead=(TARGET, SHARED)),
        *rows,
    ]


def of_both(
    config: EncoderDecoderConfig, ours: str, theirs: str, inwards: Change = unchanged, outwards: Change = unchanged
) -> list[TensorRow]:
    """A tensor of each embedding. Tied ones have one of it here, and theirs has the same one twice."""
    pairs = [(f"{side}_embedding.{ours}", f"model.{stack}.{theirs}") for side, stack in SIDES.items()]
    if not config.tie_embeddings:
        return [TensorRow((name,), (other,), inwards, outwards) for name, other in pairs]

    def twice(tensors: list[Tensor]) -> list[Tensor]:
        return [*outwards(tensors), *(tensor.clone() for tensor in outwards(tensors))]

    return [TensorRow((pairs[0][0],), (pairs[0][1], pairs[1][1]), lambda tensors: inwards(tensors[:1]), twice)]


def same_in_both(weights: Mapping[str, Tensor], theirs: str, inwards: Change = unchanged) -> bool:
    """Whether both embeddings could share that tensor; two that differ need two embeddings, even on one matrix."""
    found = [weights[name] for stack in SIDES.values() if (name := f"model.{stack}.{theirs}") in weights]
    return len(found) < len(SIDES) or torch.equal(*(inwards([tensor])[0] for tensor in found))


def absent(config: EncoderDecoderConfig) -> list[Fixed]:
    """The biases that theirs always has and ours may lack: zero."""
    fixed = []
    if not config.output_bias:
        why = "is not zero, and output_bias=false has no place for it"
        fixed.append(Fixed(BIAS, torch.zeros(1, config.vocab_sizes[1]), why))
    if not config.attention_bias:
        for side, count in (("encoder", config.n_encoder_layers), ("decoder", config.n_decoder_layers)):
            for index in range(count):
                for ours, theirs, _, _ in PARTS:
                    if _projects(ours) and not (side == "encoder" and ours.startswith("cross")):
                        name = f"model.{side}.layers.{index}.{theirs}.bias"
                        why = "is not zero, and attention_bias=false has no place for it"
                        fixed.append(Fixed(name, torch.zeros(config.d_model), why))
    return fixed


def sines_first(d_model: int) -> Tensor:
    """Where each dimension is from when all sines go before all cosines: 0, 2, 4, …, 1, 3, 5, …"""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def position_table(config: EncoderDecoderConfig) -> Tensor:
    """Section 3.5's table in float64, sines first."""
    table = sinusoids(torch.arange(config.max_length).double(), config.d_model)
    return table.index_select(1, sines_first(config.d_model))


def position_tables(config: EncoderDecoderConfig, written: bool) -> list[Fixed]:
    value, why, sides = position_table(config).float(), "is not the sinusoidal table", ("encoder", "decoder")
    return [Fixed(f"model.{side}.embed_positions.weight", value, why, ROUNDED, written) for side in sides]


@torch.no_grad()
def exact_positions(theirs: Any, config: EncoderDecoderConfig) -> None:
    """Their table is float32's also in a float64 model: the one that it rounds takes its place, and of no other."""
    exact = position_table(config)
    for side in (theirs.model.encoder, theirs.model.decoder):
        table = side.embed_positions.weight
        if table.shape == exact.shape and (table - exact).abs().max() <= ROUNDED:
            table.copy_(exact)


def embeddings_to_ours(theirs: dict[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """One matrix where all three are tied; a matrix of its own for each where any is not."""
    source, tied = theirs["vocab_size"], theirs.get("tie_word_embeddings", True)
    target = theirs.get("decoder_vocab_size") or source
    shared = theirs.get("share_encoder_decoder_embeddings", True)
    together = bool(tied and shared)
    return {
        "vocab_size": source if source == target else [source, target],
        "tie_embeddings": together,
        "attention_dropout": theirs["attention_dropout"],
        "attention_bias": True,
        "output_bias": BIAS in weights and bool(weights[BIAS].any()),
    }


def embeddings_to_theirs(config: EncoderDecoderConfig) -> dict[str, Any]:
    """For those with one size of vocabulary."""
    source, target = config.vocab_sizes
    if source != target:
        raise ConfigError(
            f"model.vocab_size={[source, target]}: of Hugging Face's models Marian's alone have a size for each side; "
            "train with text.joint=true, or export to ctranslate2"
        )
    return {**attention_to_theirs(config), "vocab_size": source, "tie_word_embeddings": config.tie_embeddings}


def attention_to_theirs(config: EncoderDecoderConfig) -> dict[str, Any]:
    """Its dropout, which is a setting of its own there; heads must have the width that theirs have."""
    usual = config.d_model / config.n_heads
    if config.head_sizes != (usual, usual):
        raise ConfigError(
            f"model.d_k={config.head_sizes[0]}, model.d_v={config.head_sizes[1]}: heads of Hugging Face's models are "
            f"d_model/n_heads={usual:g} wide; export to onnx, or train with that"
        )
    return {"attention_dropout": config.dropout if config.attention_dropout is None else config.attention_dropout}


def _projects(ours: str) -> bool:
    return "_attention." in ours


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
    fixed=absent,
    further_to_ours=embeddings_to_ours,
    further_to_theirs=embeddings_to_theirs,
    constants=WRITTEN,
    training_only=TRAINING,
)
"""A family of theirs, where it does not say otherwise."""
