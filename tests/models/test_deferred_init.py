"""Deferred initialization: every division of a model has the bits of an ordinary construction, of each kind."""

import math

import pytest
import torch

from glassformer.models.deferred_init import recording_init
from glassformer.models.registry import build_model, weights_of
from glassformer.planning.record import Recorder
from glassformer.storage.tensor_files import Region

WIDTHS = {"d_model": 16, "n_heads": 2, "d_ff": 20, "n_layers": 2}
MODELS = {
    "encoder_decoder": {
        "kind": "encoder_decoder",
        "vocab_size": 50,
        "d_model": 16,
        "n_heads": 2,
        "d_ff": 20,
        "n_encoder_layers": 1,
        "n_decoder_layers": 2,
    },
    "untied": {"kind": "encoder_decoder", "vocab_size": (50, 30), "tie_embeddings": False, "d_model": 16, "n_heads": 2},
    "gpt": {"kind": "gpt", "vocab_size": 50, "max_length": 9, **WIDTHS},
    "llama": {
        "kind": "gpt",
        "vocab_size": 50,
        "norm": "rms",
        "positions": "rotary",
        "gated": True,
        "bias": False,
        "tie_embeddings": False,
        "attention": {"n_kv_heads": 1},
        **WIDTHS,
    },
    "bert": {"kind": "bert", "vocab_size": 50, "n_classes": 3, "n_tags": 4, **WIDTHS},
    "vit": {"kind": "vit", "n_classes": 3, "image_size": (8, 8), "patch_size": 4, **WIDTHS},
    "series": {"kind": "series", "n_variables": 2, "context": 24, "horizon": 6, "patch_length": 6, **WIDTHS},
    "recurrent": {"kind": "recurrent", "vocab_size": 50, "d_model": 16, "d_hidden": 12},
}


def columns_or_rows(shape: tuple[int, ...], part: int, n: int, axis: int) -> Region:
    """Part ``part`` of ``n`` of a tensor, divided along an axis as PyTorch's ``chunk`` does."""
    axis = min(axis, len(shape) - 1)
    size = -(-shape[axis] // n)
    first = min(part * size, shape[axis])
    offset, block = [0] * len(shape), list(shape)
    offset[axis], block[axis] = first, min(size, shape[axis] - first)
    return Region(tuple(offset), tuple(block))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("n", "axis"), [(1, 0), (3, 0), (64, 0), (2, 1)])
def test_each_part_has_the_bits_of_an_ordinary_construction(name: str, n: int, axis: int) -> None:
    if name == "recurrent" and axis:
        pytest.skip("an initializer of a part of a vector is for divisions by rows")
    torch.manual_seed(5)
    whole = weights_of(build_model(MODELS[name], "test"))
    state = torch.get_rng_state()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with recording_init() as record:
        model = build_model(MODELS[name], "test")
    assert torch.equal(torch.get_rng_state(), before)
    record.name_weights(model)
    weights = weights_of(model)
    assert all(w.is_meta for w in weights.values())
    shapes = {name: tuple(w.shape) for name, w in weights.items()}
    for part in {0, n // 2, n - 1}:
        regions = {name: columns_or_rows(shape, part, n, axis) for name, shape in shapes.items()}
        parts = {name: (torch.full(region.shape, math.nan), region) for name, region in regions.items()}
        torch.manual_seed(5)
        record.fill(shapes, parts)
        assert torch.equal(torch.get_rng_state(), state)
        for name, (tensor, region) in parts.items():
            assert torch.equal(tensor, whole[name][region.slices]), name


def test_initialization_holds_one_whole_tensor_at_a_time() -> None:
    with recording_init() as record:
        model = build_model(MODELS["gpt"], "test")
    shapes = {name: tuple(w.shape) for name, w in weights_of(model).items()}
    nothing = {name: Region((0,) * len(shape), (0, *shape[1:])) for name, shape in shapes.items()}
    parts = {name: (torch.empty(region.shape), region) for name, region in nothing.items()}
    record.name_weights(model)
    with Recorder() as memory:
        record.fill(shapes, parts)
    assert memory.record.activations == 4 * max(map(math.prod, shapes.values()))
