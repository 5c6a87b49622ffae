"""Every kind of model by its name, with the sizes that are published."""

from typing import Any

import pytest
import torch

from glassformer.errors import ConfigError
from glassformer.models.registry import (
    MODELS,
    build_model,
    build_uninitialized,
    flops_per_token,
    load_weights,
    parameters_by_part,
    weights_of,
)

LLAMA_7B = {
    "vocab_size": 32000,
    "d_model": 4096,
    "n_heads": 32,
    "d_ff": 11008,
    "n_layers": 32,
    "norm": "rms",
    "positions": "rotary",
    "activation": "silu",
    "gated": True,
    "bias": False,
    "tie_embeddings": False,
}
PUBLISHED = [
    ("gpt", {"vocab_size": 50257}, 124_439_808),
    ("gpt", LLAMA_7B, 6_738_415_616),
    ("bert", {"vocab_size": 30522}, 109_514_298),
    ("vit", {"n_classes": 1000}, 86_567_656),
    ("series", {}, 921_440),
]


@pytest.mark.parametrize(("kind", "values", "parameters"), PUBLISHED, ids=["gpt-2", "llama", "bert", "vit", "patchtst"])
def test_the_number_of_parameters_is_the_published_one(kind: str, values: dict[str, Any], parameters: int) -> None:
    with torch.device("meta"):
        model = build_model({"kind": kind, **values}, "test")
    parts = parameters_by_part(model)
    assert parts.pop("total") == sum(parts.values()) == parameters
    flops = flops_per_token(model)
    if kind == "gpt":  # two for each weight of a matrix that multiplies
        inside = sum(p.numel() for n, p in model.named_parameters() if p.dim() == 2 and n.startswith("decoder"))
        assert flops == {"target_token": 2 * inside + 2 * model.output_projection.weight.numel()}
    assert bool(flops) == (kind in ("gpt", "bert"))


SMALL: dict[str, dict[str, Any]] = {
    "encoder_decoder": {"vocab_size": 9, "n_encoder_layers": 1, "n_decoder_layers": 1},
    "gpt": {"vocab_size": 9, "n_layers": 1},
    "bert": {"vocab_size": 9, "n_layers": 1, "n_classes": 2, "n_tags": 3},
    "vit": {"n_classes": 3, "n_layers": 1, "image_size": [4, 4], "patch_size": 2},
    "series": {"n_layers": 1, "context": 32},
}
RECURRENT = {"vocab_size": 9, "d_hidden": 8, "n_encoder_layers": 1, "n_decoder_layers": 1}


@pytest.mark.parametrize("kind", SMALL)
def test_a_model_comes_back_from_its_configuration_and_weights(kind: str) -> None:
    values = {"kind": kind, "d_model": 8, "n_heads": 2, "d_ff": 8, **SMALL[kind]}
    torch.manual_seed(1)
    model = build_model(values, "test")
    again = build_model(model.config.model_dump(mode="json"), "test")
    assert again.config == model.config
    assert type(again) is MODELS[kind][1]
    load_weights(again, weights_of(model), "test")
    for name, weight in weights_of(model).items():
        assert torch.equal(weight, weights_of(again)[name])
        assert weight.isfinite().all()


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_to_be_loaded_draws_no_random_number(kind: str) -> None:
    shape = RECURRENT if kind == "recurrent" else {"n_heads": 2, "d_ff": 8, **SMALL[kind]}
    values = {"kind": kind, "d_model": 8, **shape}
    before = torch.get_rng_state()
    model = build_uninitialized(values, "test")
    assert torch.equal(torch.get_rng_state(), before)
    drawn = build_model(values, "test")
    assert not torch.equal(torch.get_rng_state(), before)
    load_weights(model, weights_of(drawn), "test")
    for name, tensor in {**weights_of(drawn), **dict(drawn.named_buffers())}.items():
        assert torch.equal(tensor, {**weights_of(model), **dict(model.named_buffers())}[name])


def test_a_seed_fixes_every_weight() -> None:
    for kind in SMALL:
        models = []
        for _ in range(2):
            torch.manual_seed(3)
            models.append(build_model({"kind": kind, "d_model": 8, "n_heads": 2, "d_ff": 8, **SMALL[kind]}, "test"))
        assert all(torch.equal(*pair) for pair in zip(*(model.parameters() for model in models), strict=True))


def test_an_unknown_kind_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"^here: model.kind='gtp' is not a model; did you mean gpt\?"):
        build_model({"kind": "gtp"}, "here")
