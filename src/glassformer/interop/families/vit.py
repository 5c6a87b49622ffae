"""The Vision Transformer (Dosovitskiy et al. 2021): a patch is projected by a convolution there, and a matrix here."""

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.interop.table import ENCODER, Family, Setting, TensorRow, linear, refuse_other_problems
from glassformer.models.vit import ViTConfig

PARTS = (
    *((f"self_attention.{name}", f"attention.attention.{name}") for name in ("query", "key", "value")),
    ("self_attention.output", "attention.output.dense"),
    ("self_attention_norm.norm", "layernorm_before"),
    ("feed_forward.inner", "intermediate.dense"),
    ("feed_forward.outer", "output.dense"),
    ("feed_forward_norm.norm", "layernorm_after"),
)
IN_MEMORY = {
    "attention.q_proj": "attention.attention.query",
    "attention.k_proj": "attention.attention.key",
    "attention.v_proj": "attention.attention.value",
    "attention.o_proj": "attention.output.dense",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}
"""Names of parts in their class, and in folders that ``save_pretrained`` writes."""


def _rows(config: ViTConfig) -> list[TensorRow]:
    patch = (config.n_channels, config.patch_size, config.patch_size)

    def image(tensors: list[Tensor]) -> list[Tensor]:
        return [tensor.unflatten(-1, patch) for tensor in tensors]

    projection = "vit.embeddings.patch_embeddings.projection"
    rows = [
        TensorRow(("embedding.class_token",), ("vit.embeddings.cls_token",), _without_axes(2), _with_axes(2)),
        TensorRow(
            ("embedding.position.weight",), ("vit.embeddings.position_embeddings",), _without_axes(1), _with_axes(1)
        ),
        TensorRow(("embedding.projection.weight",), (f"{projection}.weight",), _flatten, image),
        TensorRow(("embedding.projection.bias",), (f"{projection}.bias",)),
        *linear("encoder.final_norm", "vit.layernorm"),
        *linear("output_projection", "classifier"),
    ]
    for layer in range(config.n_layers):
        for our_name, their_name in PARTS:
            rows += linear(f"encoder.layers.{layer}.{our_name}", f"vit.encoder.layer.{layer}.{their_name}")
    return rows


def _flatten(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.flatten(1) for tensor in tensors]


def _without_axes(axes: int) -> Any:
    """Change that removes the first ``axes`` axes, each of size 1."""
    return lambda tensors: [tensor.flatten(0, axes) for tensor in tensors]


def _with_axes(axes: int) -> Any:
    return lambda tensors: [tensor[(None,) * axes] for tensor in tensors]


def _import_settings(their_config: dict[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    height, width = _pair(their_config["image_size"])
    patches = _pair(their_config["patch_size"])
    if patches[0] != patches[1]:
        raise ConfigError(f"patch_size={list(patches)}: a patch is a square here; choose a model where it is one")
    refuse_other_problems(their_config)
    classes = len(their_config.get("id2label") or {})
    return {"image_size": (height, width), "patch_size": patches[0], "n_classes": classes}


def _export_settings(config: ViTConfig) -> dict[str, Any]:
    return {"image_size": list(config.image_size), "patch_size": config.patch_size}


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _canonical_name(name: str) -> str:
    """Name as ``save_pretrained`` writes it, for a name of their class."""
    name = re.sub(r"^vit\.layers\.", "vit.encoder.layer.", name)
    for part, stored in IN_MEMORY.items():
        name = re.sub(rf"\.{re.escape(part)}\.(weight|bias)$", rf".{stored}.\1", name)
    return name


VIT = Family(
    model_type="vit",
    architecture="ViTForImageClassification",
    task="images",
    settings=(
        Setting("n_channels", ("num_channels",)),
        *ENCODER,
        Setting("attention_dropout", ("attention_probs_dropout_prob",)),
    ),
    our_values={"kind": "vit"},
    their_values={"qkv_bias": True},
    rows=_rows,
    import_settings=_import_settings,
    export_settings=_export_settings,
    ignored_weights={r"vit\.pooler\..*": "the pooler, which no classifier of images has,"},
    canonical_name=_canonical_name,
)
