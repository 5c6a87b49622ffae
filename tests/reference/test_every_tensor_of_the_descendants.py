"""Every tensor of a trace of GPT-2, Llama, BERT and ViT is the one that their papers' formulas give."""

from typing import Any

import numpy as np
import pytest

from explain.small_models import SEGMENTS, TOKENS, inputs, recorded, small_model
from glassformer.models.registry import weights_of
from reference.descendants import Descendant, Sizes
from reference.transformer import Tensors

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT-2": ("gpt", {}),
    "GPT-2 with the exact GELU, untied": ("gpt", {"activation": "gelu", "tie_embeddings": False}),
    "Llama": ("llama", {}),
    "one head of keys and values": ("llama", {"attention": {"n_kv_heads": 1}, "activation": "gelu", "d_ff": 20}),
    "BERT": ("bert", {}),
    "BERT with ReLU and three layers": ("bert", {"activation": "relu", "n_layers": 3}),
    "ViT": ("vit", {}),
    "ViT of one square": ("vit", {"image_size": (4, 6), "patch_size": 1}),
}


def expected(variant: str, model: Any) -> Tensors:
    config = model.config
    attention = getattr(config, "attention", None)
    sizes = Sizes(
        n_layers=config.n_layers,
        n_heads=config.n_heads,
        n_kv_heads=getattr(config, "kv_heads", config.n_heads),
        epsilon=config.norm_eps,
        activation=config.activation,
        pre_norm=variant != "bert",
        causal=variant in ("gpt", "llama"),
        rotary_theta=attention.rope_theta if getattr(config, "positions", "") == "rotary" else 0.0,
    )
    weights = {name: w.detach().double().numpy() for name, w in weights_of(model).items()}
    reference = Descendant(weights, sizes)
    if variant == "bert":
        return reference.bert(TOKENS, SEGMENTS)
    if variant == "vit":
        return reference.vit(inputs("vit")[0][0].numpy(), config.patch_size)
    return reference.gpt(TOKENS)


def error(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference relative to the largest value; where one is −∞ the other must be."""
    assert ours.shape == theirs.shape
    visible = np.isfinite(theirs)
    assert np.array_equal(visible, np.isfinite(ours))
    return float(np.abs(ours[visible] - theirs[visible]).max() / np.abs(theirs[visible]).max())


@pytest.mark.parametrize("name", VARIANTS)
def test_trace_equals_the_reference_formulas(name: str) -> None:
    """Largest difference, relative to the largest value of a tensor: 1e-10 in float64."""
    variant, values = VARIANTS[name]
    model = small_model(variant, **values)
    t, theirs = recorded(variant, model), expected(variant, model)
    ours = {name: t[name].numpy()[0] if "batch" in t.axes(name) else t[name].numpy() for name in t}
    assert set(ours) == set(theirs)
    for tensor, value in theirs.items():
        assert error(ours[tensor], value) <= 1e-10, tensor
