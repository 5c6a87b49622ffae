"""Every tensor that a trace records is the one that the paper's formulas give, computed independently."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch

from glassformer import trace
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.registry import weights_of
from reference.transformer import Reference, Tensors

SOURCE, TARGET = [5, 3, 11, 7, 4, 2], [1, 9, 4, 10, 6]
VARIANTS = {
    f"{order}-{tied}-{positions}": {"norm_order": order, "tie_embeddings": tied == "tied", "positions": positions}
    for order, tied, positions in product(["post", "pre"], ["tied", "untied"], ["sinusoidal", "learned"])
} | {
    "gelu": {"activation": "gelu"},
    "silu": {"activation": "silu", "norm_order": "pre"},
    "no attention biases": {"attention_bias": False},
    "output bias": {"output_bias": True, "n_encoder_layers": 1, "n_decoder_layers": 3},
    "BART": {
        "scale_embeddings": False,
        "norm_embeddings": True,
        "positions": "learned",
        "activation": "gelu",
        "tie_embeddings": False,
    },
    "BART, tied": {"scale_embeddings": False, "norm_embeddings": True, "positions": "learned"},
    "mBART": {"norm_embeddings": True, "positions": "learned", "norm_order": "pre"},
    "two vocabularies": {"vocab_size": (12, 15), "tie_embeddings": False},
}


def expected(model: EncoderDecoder) -> Tensors:
    config = model.config
    weights = {name: w.detach().double().numpy() for name, w in weights_of(model).items()}
    reference = Reference(weights, config.n_heads, config.norm_order, config.activation)
    reference.scale_embeddings, reference.norm_embeddings = config.scale_embeddings, config.norm_embeddings
    return reference.run(SOURCE, TARGET, config.n_encoder_layers, config.n_decoder_layers)


def recorded(model: EncoderDecoder) -> dict[str, np.ndarray]:
    with trace(model) as t, torch.no_grad():
        model(torch.tensor([SOURCE]), torch.tensor([TARGET]))
    assert all(len(t.all(name)) == 1 for name in t)
    return {name: t[name].double().numpy()[0] if "batch" in t.axes(name) else t[name].double().numpy() for name in t}


def error(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference relative to the largest value; where one is −∞ the other must be."""
    visible = np.isfinite(theirs)
    assert np.array_equal(visible, np.isfinite(ours))
    return float(np.abs(ours[visible] - theirs[visible]).max() / np.abs(theirs[visible]).max())


@pytest.mark.parametrize("variant", VARIANTS)
def test_trace_equals_the_reference_formulas(make_model: Callable[..., EncoderDecoder], variant: str) -> None:
    """Largest difference, relative to the largest value of a tensor: 1e-10 in float64."""
    model = make_model(**VARIANTS[variant])
    ours, theirs = recorded(model), expected(model)
    assert set(ours) == set(theirs)
    for name, tensor in theirs.items():
        assert error(ours[name], tensor) <= 1e-10, name


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 5e-2)], ids=["float32", "bfloat16"]
)
@pytest.mark.parametrize("variant", ["post-tied-sinusoidal", "pre-untied-learned"])
def test_trace_in_lower_precision_is_the_rounded_reference(
    make_model: Callable[..., EncoderDecoder], variant: str, dtype: torch.dtype, tolerance: float
) -> None:
    """The reference starts from the weights as they are in that precision."""
    model = make_model(**VARIANTS[variant]).to(dtype)
    ours, theirs = recorded(model), expected(model)
    worst = max(error(ours[name], tensor) for name, tensor in theirs.items())
    assert 0 < worst < tolerance


def test_trace_covers_every_module(make_model: Callable[..., EncoderDecoder]) -> None:
    """No part that computes is left out of the trace, and so of the comparison."""
    model = make_model(norm_order="pre")
    seen = recorded(model)
    for path, module in model.named_modules():
        if not list(module.children()) and any(True for _ in module.parameters()):
            above = path.rpartition(".")[0]
            assert any(name.startswith((f"{path}.", f"{above}.")) for name in seen), path
