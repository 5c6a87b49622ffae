"""A model and its example in a line each, as they stand at the top of a page."""

from typing import Any

from glassformer.explain.example import Example
from glassformer.explain.walkthrough.step import SIDES

THROUGH = {
    "encoder_decoder": "a Transformer",
    "gpt": "GPT",
    "bert": "BERT",
    "vit": "a Vision Transformer",
    "series": "a Transformer of time series",
    "recurrent": "a recurrent network with attention",
}
COUNTS = {5: "five", 7: "seven", 12: "twelve"}


def eyebrow(example: Example, steps: int) -> str:
    """``One sentence through a Transformer, in twelve steps``"""
    kind = example.trace.kind
    return f"One {SIDES.get(kind, 'sentence')} through {THROUGH[kind]}, in {COUNTS.get(steps, steps)} steps"


def model_line(model: Any) -> str:
    """``3 + 3 layers · d_model 256 · 4 heads · …``"""
    c = model.config
    two = hasattr(c, "n_encoder_layers")
    parts = [f"{c.n_encoder_layers} + {c.n_decoder_layers} layers" if two else f"{c.n_layers} layers"]
    parts += [f"d_model {c.d_model}", _heads(c)]
    if c.kind == "recurrent":
        parts.append(f"LSTMs of {c.d_hidden}")
    else:
        order = getattr(c, "norm_order", "post" if c.kind == "bert" else "pre")
        norm = "RMSNorm, " if getattr(c, "norm", "layer") == "rms" else ""
        gated = "gated " if getattr(c, "gated", False) else ""
        parts += [f"d_ff {c.d_ff}", f"{norm}{order}-norm", f"{getattr(c, 'positions', 'learned')} positions"]
        parts.append(f"{gated}{c.activation}")
    return " · ".join([*parts, *_ends(c), f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters"])


def _heads(c: Any) -> str:
    if c.kind == "encoder_decoder":
        return f"{c.n_heads} heads of {c.head_sizes[0]}"
    width = c.d_hidden if c.kind == "recurrent" else c.d_model
    keys = getattr(c, "kv_heads", c.n_heads)
    grouped = "" if keys == c.n_heads else f", {keys} of keys and values"
    return f"{c.n_heads} heads of {getattr(c, 'd_head', width // c.n_heads)}{grouped}"


def _ends(c: Any) -> list[str]:
    """What it reads and says."""
    if c.kind == "vit":
        height, width = c.image_size
        return [f"{height} × {width} pixels in {c.n_patches} patches", f"{c.n_classes} classes"]
    if c.kind == "series":
        return [f"{c.context} steps in {c.n_patches} patches", f"{c.horizon} steps forecast"]
    sizes = c.vocab_sizes if hasattr(c, "vocab_sizes") else (c.vocab_size, c.vocab_size)
    vocabulary = f"vocabulary {sizes[0]:,}" + ("" if sizes[0] == sizes[1] else f" and {sizes[1]:,}")
    tied = getattr(c, "tie_embeddings", True)
    return [vocabulary, "tied embeddings" if tied else "untied embeddings"]
