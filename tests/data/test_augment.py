"""Each variation does what it says, exactly where that can be said."""

import numpy as np
import pytest
import torch

from glassformer.data.augment import affine, erase, mix, move
from glassformer.data.config import AugmentConfig


def amounts(**values: float | list[float]) -> dict[str, torch.Tensor]:
    """The arguments of ``affine`` for one image, that does nothing unless told otherwise."""
    still = {"angle": 0.0, "scale": 1.0, "shear": 0.0, "shift": [0.0, 0.0]}
    return {name: torch.tensor([value], dtype=torch.float64) for name, value in {**still, **values}.items()}


PICTURE = torch.rand(1, 2, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_affine_does_what_it_says() -> None:
    def close(one: torch.Tensor, other: torch.Tensor) -> bool:
        return torch.allclose(one, other, atol=1e-9)

    assert close(affine(PICTURE, **amounts()), PICTURE)
    assert close(affine(PICTURE, **amounts(angle=90)), PICTURE.rot90(1, (2, 3)))
    right_and_down = affine(PICTURE, **amounts(shift=[1 / 6, 2 / 6]), border="black")
    assert close(right_and_down[..., 2:, 1:], PICTURE[..., :-2, :-1])
    assert right_and_down[..., :2, :].max() < 1e-9
    enlarged = affine(PICTURE, **amounts(scale=3))
    assert close(enlarged[..., 1::3, 1::3], PICTURE[..., 2:4, 2:4])
    leaning = affine(PICTURE, **amounts(shear=45), border="black")
    center = torch.arange(6) - 2.5
    by = (-center - 0.5).long()  # whole pixels after half a pixel to the right
    half = affine(leaning, **amounts(shift=[-0.5 / 6, 0.0]), border="black")
    assert by[0] == 2
    assert half[0, 0, 0, 2:].gt(0).all()
    assert half[0, 0, 0, 0] == 0
    assert half[0, 0, -1, :3].gt(0).all()
    assert half[0, 0, -1, -1] == 0


def test_an_image_leans_before_it_turns() -> None:
    for angle in (90, -90, 180):
        leaning = affine(PICTURE, **amounts(shear=30), border="black")
        turned = affine(PICTURE, **amounts(shear=30, angle=angle), border="black")
        assert torch.allclose(turned, leaning.rot90(angle // 90, (2, 3)), atol=1e-9)


def test_turning_does_not_stretch_a_wide_image() -> None:
    cross = torch.zeros(1, 1, 9, 21, dtype=torch.float64)
    cross[..., 4, 7:14] = 1
    turned = affine(cross, **amounts(angle=90), border="black")
    upright = torch.zeros_like(cross)
    upright[..., 1:8, 10] = 1
    assert torch.allclose(turned, upright, atol=1e-9)


@pytest.mark.parametrize(("border", "value"), [("edge", 1.0), ("black", 0.0), ("mirror", 1.0)])
def test_beyond_the_border(border: str, value: float) -> None:
    moved = affine(torch.ones_like(PICTURE), **amounts(shift=[0.5, 0.0]), border=border)
    assert torch.allclose(moved[..., 0], torch.full((6,), value).double())
    assert moved[..., 3:].sub(1).abs().max() < 1e-9


def test_flip_is_a_share_of_mirrored_images() -> None:
    generator = np.random.default_rng(0)
    images = torch.rand(400, 1, 3, 4)
    assert torch.equal(move(images, AugmentConfig(flip=1), generator), images.flip(-1))
    some = move(images, AugmentConfig(flip=0.25), generator)
    flipped = (some == images.flip(-1)).flatten(1).all(1)
    assert (flipped | (some == images).flatten(1).all(1)).all()
    assert 70 <= flipped.sum() <= 130


def test_erase_blanks_one_rectangle() -> None:
    erased = erase(torch.ones(300, 2, 20, 30), 0.5, np.random.default_rng(0)) == 0
    hit = erased.flatten(1).any(1)
    assert 110 <= hit.sum() <= 190
    for one in erased[hit]:
        rows, columns = one[0].any(1), one[0].any(0)
        assert torch.equal(one[0], rows[:, None] & columns[None, :])
        assert torch.equal(one[0], one[1])
        assert 0.005 <= one[0].float().mean() <= 0.4


def test_mixup_mixes_labels_as_it_mixes_images() -> None:
    labels = torch.randint(0, 3, (50,))
    shown = torch.nn.functional.one_hot(labels, 3).float()[:, :, None, None].expand(-1, -1, 2, 2)
    images, expected = mix(shown, labels, 3, 1.0, np.random.default_rng(0))
    assert torch.allclose(images[:, :, 0, 0], expected, atol=1e-6)
    assert torch.allclose(expected.sum(1), torch.ones(50))
    assert (expected.max(1).values < 0.9).any()
    assert torch.nn.functional.cross_entropy(torch.zeros(50, 3), expected).item() == pytest.approx(np.log(3))
