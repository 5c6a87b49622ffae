"""No prediction knows what comes after it."""

from collections.abc import Callable

import pytest
import torch

from glassformer.models.encoder_decoder import EncoderDecoder


@pytest.mark.parametrize("norm_order", ["post", "pre"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
def test_a_changed_token_changes_no_bit_before_it(
    make_model: Callable[..., EncoderDecoder], positions: str, norm_order: str
) -> None:
    model = make_model(positions=positions, norm_order=norm_order)
    source, target = torch.randint(3, 12, (2, 6)), torch.randint(3, 11, (2, 7))
    before = model(source, target)
    for place in range(7):
        changed = target.clone()
        changed[:, place] += 1
        after = model(source, changed)
        assert torch.equal(before[:, :place], after[:, :place])
        assert (before[:, place:] != after[:, place:]).any(-1).all()


def test_every_prediction_knows_all_of_the_source(make_model: Callable[..., EncoderDecoder]) -> None:
    model, source, target = make_model(), torch.randint(3, 11, (2, 6)), torch.randint(3, 12, (2, 7))
    before = model(source, target)
    for place in range(6):
        changed = source.clone()
        changed[:, place] += 1
        assert (before != model(changed, target)).any(-1).all()
