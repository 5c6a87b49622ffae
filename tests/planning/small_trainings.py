"""Small configurations of every kind of model, whose data do not exist: a plan reads none."""

from typing import Any

from glassformer.planning import Training, planned_training
from glassformer.train import parse_config

WIDTHS = {"d_model": 32, "n_heads": 4, "d_ff": 64, "dropout": 0.1}

CONFIGS: dict[str, dict[str, Any]] = {
    "encoder_decoder": {
        "model": {"kind": "encoder_decoder", **WIDTHS, "n_encoder_layers": 2, "n_decoder_layers": 1},
        "text": {"vocab_size": 300},
        "data": {"train": ["missing"], "batch_tokens": 128},
    },
    "gpt": {
        "model": {"kind": "gpt", **WIDTHS, "n_layers": 2, "max_length": 64},
        "text": {"vocab_size": 300},
        "data": {"train": ["missing.txt"], "context": 32, "batch_tokens": 128},
    },
    "gpt_without_dropout": {
        "model": {"kind": "gpt", **WIDTHS, "dropout": 0.0, "n_layers": 2, "attention": {"n_kv_heads": 2}},
        "text": {"vocab_size": 300},
        "data": {"train": ["missing.txt"], "context": 32, "batch_tokens": 128},
    },
    "bert": {
        "model": {"kind": "bert", **WIDTHS, "n_layers": 2, "max_length": 32},
        "text": {"vocab_size": 300},
        "data": {"train": ["missing.txt"], "max_length": 32, "batch_tokens": 128},
    },
    "classification": {
        "task": "classification",
        "model": {"kind": "bert", **WIDTHS, "n_layers": 2, "max_length": 32, "n_classes": 5},
        "text": {"vocab_size": 300},
        "data": {"train": ["missing.csv"], "max_length": 32, "batch_tokens": 128},
    },
    "tagging": {
        "task": "tagging",
        "model": {"kind": "bert", **WIDTHS, "n_layers": 2, "max_length": 32, "n_tags": 5},
        "text": {"vocab_size": 300},
        "data": {"train": ["missing.conll"], "max_length": 32, "batch_tokens": 128},
    },
    "vit": {
        "model": {
            "kind": "vit",
            **WIDTHS,
            "n_layers": 2,
            "n_classes": 7,
            "image_size": [16, 16],
            "patch_size": 4,
            "n_channels": 1,
        },
        "data": {"train": ["missing"], "batch_size": 4},
    },
    "series": {
        "model": {"kind": "series", **WIDTHS, "n_layers": 2, "context": 48, "horizon": 12, "n_variables": 3},
        "data": {"file": "missing.csv", "context": 48, "horizon": 12, "batch_size": 4},
    },
    "recurrent": {
        "model": {"kind": "recurrent", "d_model": 16, "d_hidden": 16},
        "text": {"vocab_size": 300},
        "data": {"train": ["missing"], "batch_tokens": 64},
    },
}


def small_training(name: str, **changes: dict[str, Any]) -> Training:
    """The training called ``name``, with ``changes`` to its sections."""
    values = {section: dict(part) if isinstance(part, dict) else part for section, part in CONFIGS[name].items()}
    for section, change in changes.items():
        values[section] = {**values.get(section, {}), **change}
    return planned_training(parse_config(values, name), name)
