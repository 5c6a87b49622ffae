"""Images as sequences of patches."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from glassformer.errors import ConfigError, DataError
from glassformer.layers.embedding import image_patches
from glassformer.models.vit import ViTConfig
from glassformer.taps import record

Build = Callable[..., Any]


def test_patches_are_squares_row_by_row() -> None:
    images = torch.arange(2 * 3 * 4 * 6).double().view(2, 3, 4, 6)
    patches = image_patches(images, 2)
    assert patches.shape == (2, 6, 12)
    for patch, (row, column) in enumerate((row, column) for row in (0, 2) for column in (0, 2, 4)):
        assert torch.equal(patches[1, patch], images[1, :, row : row + 2, column : column + 2].flatten())


def test_logits_depend_on_every_pixel_and_on_no_other_image(build: Build) -> None:
    model, images = build("vit"), torch.rand(2, 1, 4, 6, dtype=torch.float64)
    before = model(images)
    assert before.shape == (2, 5)
    for row in range(4):
        for column in range(6):
            changed = images.clone()
            changed[0, 0, row, column] += 1
            after = model(changed)
            assert (after[0] != before[0]).all()
            assert torch.equal(after[1], before[1])


def test_the_order_of_the_patches_matters(build: Build) -> None:
    model, images = build("vit"), torch.rand(1, 1, 4, 6, dtype=torch.float64)
    assert not torch.allclose(model(images), model(images.flip(-1)))


def test_tensors_are_named_and_gradients_finite(build: Build) -> None:
    model, images = build("vit"), torch.rand(2, 1, 4, 6, dtype=torch.float64)
    with record(model) as recorded:
        traced = model(images)
    torch.testing.assert_close(traced, model(images), atol=1e-12, rtol=1e-12)
    names = {"patches", "projected", "encoding", "positioned"}
    assert {f"embedding.{name}" for name in names} | {"encoder.normed", "memory"} <= set(recorded)
    assert recorded["encoder.layers.0.self_attention.weights"].shape == (2, 4, 7, 7)
    model(images).sin().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_images_of_another_shape_and_patches_that_do_not_fit_are_refused(build: Build) -> None:
    with pytest.raises(DataError, match=r"^an image is 3 × 4 × 6, but this model reads 1 × 4 × 6; resize it to"):
        build("vit")(torch.zeros(1, 3, 4, 6, dtype=torch.float64))
    with pytest.raises(ConfigError, match=r"image_size=28 × 28 is not a whole number of patches of patch_size=16"):
        ViTConfig.parse({"image_size": [28, 28]})
