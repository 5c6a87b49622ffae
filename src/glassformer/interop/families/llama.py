"""Llama (Touvron et al. 2023, arXiv:2302.13971), and Mistral (Jiang et al. 2023, arXiv:2310.06825) with its window.

RMSNorm, SwiGLU, grouped heads of keys and values, rotary positions. Dimension i of a head is rotated with i + d/2
there, and with its neighbor here. Rows of the query and key projections are permuted accordingly.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.interop.table import ACTIVATIONS, STACK, Change, Family, Setting, TensorRow, linear
from glassformer.layers.dropout import attention_rate
from glassformer.layers.norm import RMSNorm
from glassformer.models.gpt import GPTConfig

PARTS = (
    ("self_attention.value", "self_attn.v_proj"),
    ("self_attention.output", "self_attn.o_proj"),
    ("feed_forward.gate", "mlp.gate_proj"),
    ("feed_forward.inner", "mlp.up_proj"),
    ("feed_forward.outer", "mlp.down_proj"),
)


def _rows(config: GPTConfig) -> list[TensorRow]:
    embedding = TensorRow(("embedding.weight",), ("model.embed_tokens.weight",))
    rows = linear("decoder.final_norm", "model.norm", bias=False)
    if config.tie_embeddings:
        rows.append(replace(embedding, aliases=("lm_head.weight",)))
    else:
        rows += [embedding, TensorRow(("output_projection.weight",), ("lm_head.weight",))]
    for layer in range(config.n_layers):
        our_layer, their_layer = f"decoder.layers.{layer}", f"model.layers.{layer}"
        for name, other, heads in (("query", "q_proj", config.n_heads), ("key", "k_proj", config.kv_heads)):
            changes = in_pairs(heads), in_halves(heads)
            rows += linear(
                f"{our_layer}.self_attention.{name}", f"{their_layer}.self_attn.{other}", *changes, bias=config.bias
            )
        for name, other in PARTS:
            rows += linear(f"{our_layer}.{name}", f"{their_layer}.{other}", bias=config.bias)
        rows += linear(f"{our_layer}.self_attention_norm.norm", f"{their_layer}.input_layernorm", bias=False)
        rows += linear(f"{our_layer}.feed_forward_norm.norm", f"{their_layer}.post_attention_layernorm", bias=False)
    return rows


def in_pairs(heads: int) -> Change:
    """Change that moves dimensions of a head that are rotated together next to each other."""
    return lambda tensors: [t.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2) for t in tensors]


def in_halves(heads: int) -> Change:
    """Inverse of ``in_pairs``."""
    return lambda tensors: [t.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2) for t in tensors]


class _Angles(nn.Module):
    """Cosines and sines of their rotary positions in float64."""

    def __init__(self, d_head: int, theta: float):
        super().__init__()
        self.rates = theta ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head)

    def forward(
        self, x: Float[Tensor, "rows length d_model"], position_ids: Int[Tensor, "one length"]
    ) -> tuple[Float[Tensor, "one length d_head"], Float[Tensor, "one length d_head"]]:
        angles = (position_ids[..., None].double() * self.rates).repeat(1, 1, 2)
        return angles.cos(), angles.sin()


def _make_exact(their_model: Any, config: GPTConfig) -> None:
    """Compute angles and norms in float64, which their class rounds to float32.

    The sizes and rates are those of ``their_model``, so that a setting with another value is still detected.
    """
    width, theta = 2 * len(their_model.model.rotary_emb.inv_freq), their_model.config.rope_parameters["rope_theta"]
    their_model.model.rotary_emb = _Angles(width, theta)
    for path, module in list(their_model.named_modules()):
        if path.endswith("norm"):
            exact = RMSNorm(config.d_model, module.variance_epsilon).double()
            exact.weight = module.weight
            their_model.set_submodule(path, exact)


def _import_settings(their_config: dict[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    ropes = {"rope_theta": 10000.0, "rope_type": "default", **(their_config.get("rope_parameters") or {})}
    if ropes["rope_type"] != "default" or ropes.get("partial_rotary_factor", 1.0) != 1.0:
        raise ConfigError(f"rope_parameters={ropes}: only plain rotary positions (rope_type='default') are imported")
    return {"attention.rope_theta": ropes["rope_theta"], "dropout": 0.0}


def _import_mistral(their_config: dict[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    window = their_config.get("sliding_window")
    pattern = {"attention.pattern": "dense"}
    if window is not None:
        pattern = {"attention.pattern": "window", "attention.span": window}
    return {**_import_settings(their_config, weights), **pattern}


def _export_settings(config: GPTConfig) -> dict[str, Any]:
    return {
        "rope_parameters": {"rope_type": "default", "rope_theta": config.attention.rope_theta},
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.d_head,
        "attention_dropout": attention_rate(config.dropout, config.attention_dropout),
    }


def _export_mistral(config: GPTConfig) -> dict[str, Any]:
    if config.attention.global_positions:
        raise ConfigError(
            f"model.attention.global_positions={config.attention.global_positions}: a Mistral of Hugging Face sees its "
            "window alone; train without"
        )
    return {**_export_settings(config), "sliding_window": config.attention.span}


_SETTINGS = (
    Setting("vocab_size", ("vocab_size",)),
    *STACK,
    Setting("attention.n_kv_heads", ("num_key_value_heads",)),
    Setting("attention.d_head", ("head_dim",)),
    Setting("attention_dropout", ("attention_dropout",)),
    Setting("max_length", ("max_position_embeddings",)),
    Setting("norm_eps", ("rms_norm_eps",)),
    Setting("activation", ("hidden_act",), {"silu": "silu", **ACTIVATIONS}),
    Setting("tie_embeddings", ("tie_word_embeddings",)),
)
_OUR_VALUES = {"kind": "gpt", "positions": "rotary", "norm": "rms", "gated": True}

LLAMA = Family(
    model_type="llama",
    architecture="LlamaForCausalLM",
    task="language",
    settings=(*_SETTINGS, Setting("bias", ("attention_bias", "mlp_bias"))),
    our_values={**_OUR_VALUES, "attention.pattern": "dense"},
    their_values={},
    rows=_rows,
    import_settings=_import_settings,
    export_settings=_export_settings,
    ignored_weights={r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq": ""},
    make_exact=_make_exact,
)
MISTRAL = replace(
    LLAMA,
    model_type="mistral",
    architecture="MistralForCausalLM",
    settings=_SETTINGS,
    our_values={**_OUR_VALUES, "bias": False, "attention.pattern": "window"},
    import_settings=_import_mistral,
    export_settings=_export_mistral,
)
