"""Masks with sparse patterns: one object for each pattern in a pass."""

import torch

from glassformer.layers.mask import Mask
from glassformer.layers.sparse import Window


def test_masks_with_two_patterns_of_one_pass_are_their_own() -> None:
    mask, near, far = Mask(), Window(2, causal=True), Window(5, causal=True)
    for pattern in (near, far, near):
        made = mask.with_pattern(pattern).dense(8, 8)
        assert made is not None
        assert torch.equal(made[0, 0], pattern.mask(8, 8).squeeze())
    assert mask.with_pattern(near) is mask.with_pattern(near)
    assert mask.with_pattern(None).dense(8, 8) is None
