"""Streams of images: complete, resumable bit for bit, varied by the seed alone."""

import numpy as np
import pytest
import torch

from glassformer.data.config import AugmentConfig
from glassformer.data.image_files import ImageSet
from glassformer.data.images import ImageBatch, ImageFormat, image_batches, ordered_images
from glassformer.errors import DataError

EVERYTHING = AugmentConfig(rotation=20, shift=0.1, scale=0.2, shear=10, flip=0.5, erase=0.5, mixup=0.3)
PIXELS = np.random.default_rng(3).integers(0, 256, (30, 5, 4), np.uint8)
LABELS = np.repeat(np.arange(3), 10)
FORMAT = ImageFormat(height=5, width=4, classes=["0", "1", "2"], mean=[0.5], deviation=[0.25])


@pytest.fixture
def images() -> ImageSet:
    return ImageSet(PIXELS[..., None], LABELS, ("0", "1", "2"), np.arange(30))


def same(one: ImageBatch, other: ImageBatch) -> bool:
    return torch.equal(one.images, other.images) and torch.equal(one.labels, other.labels)


def test_an_epoch_holds_every_image_once(images: ImageSet) -> None:
    batches = image_batches(images, FORMAT, 7, seed=1)
    orders = []
    for _ in range(2):
        epoch = [batches.next() for _ in range(len(batches))]
        orders.append(np.concatenate([batch.examples for batch in epoch]))
        assert [len(batch) for batch in epoch] == [6, 6, 6, 6, 6]
        for batch in epoch:
            plain = (torch.from_numpy(PIXELS[batch.examples, None]) / 255 - 0.5) / 0.25
            assert torch.allclose(batch.images, plain)
            assert batch.labels.tolist() == LABELS[batch.examples].tolist()
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(30))
    assert (orders[0] != orders[1]).any()
    assert batches.state() == {"epoch": 2, "position": 0}
    assert batches.padding_share == 0
    assert batches.largest().describe() == "6 images of 1 × 5 × 4"
    assert batches.largest().source_tokens == batches.largest().n_targets == 6
    sizes = [len(image_batches(images, FORMAT, size, seed=1).largest()) for size in (1, 8, 29, 30, 999)]
    assert sizes == [1, 8, 15, 30, 30]


def test_ordered_images_are_every_image_as_it_is(images: ImageSet) -> None:
    batches = list(ordered_images(images, FORMAT, 8))
    assert np.concatenate([batch.examples for batch in batches]).tolist() == list(range(30))
    assert torch.cat([batch.labels for batch in batches]).tolist() == LABELS.tolist()
    assert batches[-1].to("meta").images.device.type == "meta"


@pytest.mark.parametrize("stop", [1, 4, 5, 11])
def test_a_restored_stream_goes_on_bit_for_bit(images: ImageSet, stop: int) -> None:
    stopped, restored = (image_batches(images, FORMAT, 7, 5, EVERYTHING) for _ in range(2))
    for _ in range(stop):
        stopped.next()
    restored.restore(stopped.state())
    assert all(same(restored.next(), stopped.next()) for _ in range(7))
    with pytest.raises(DataError, match="batch 5 of epoch 0 is asked for, which has 5"):
        restored.restore({"epoch": 0, "position": 5})


def test_each_epoch_and_each_batch_draws_anew(images: ImageSet) -> None:
    alike = ImageSet(images.pixels[:1].repeat(8, 0), images.labels[:8], images.names, images.rows[:8])
    batches = image_batches(alike, FORMAT, 4, 1, AugmentConfig(rotation=90))
    seen = torch.cat([batches.next().images for _ in range(6)])
    assert len(torch.unique(seen.flatten(1), dim=0)) == 24


def test_each_variation_reaches_the_stream(images: ImageSet) -> None:
    plain = image_batches(images, FORMAT, 30, 1).next().images
    for name in ("rotation", "shift", "scale", "shear", "flip", "erase", "mixup"):
        varied = image_batches(images, FORMAT, 30, 1, AugmentConfig.parse({name: 0.9})).next().images
        assert not torch.equal(varied, plain), name


def test_limits_of_0_leave_every_bit(images: ImageSet) -> None:
    plain, off = (
        image_batches(images, FORMAT, 7, 1),
        image_batches(images, FORMAT, 7, 1, AugmentConfig(border="mirror")),
    )
    assert all(same(plain.next(), off.next()) for _ in range(7))


def test_the_fingerprint_is_that_of_images_and_settings(images: ImageSet) -> None:
    def fingerprint(images: ImageSet = images, size: int = 7, **values: float) -> str:
        return image_batches(images, FORMAT, size, 1, AugmentConfig.parse(values)).fingerprint

    fewer = ImageSet(images.pixels, images.labels, images.names, images.rows[1:])
    others = ImageSet(images.pixels, images.labels[::-1], images.names, images.rows)
    prints = [fingerprint(), fingerprint(fewer), fingerprint(others), fingerprint(size=8), fingerprint(flip=0.5)]
    assert len(set(prints)) == 5
    assert fingerprint() == fingerprint()
