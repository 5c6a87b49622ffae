"""What stands behind the end of a sentence reaches nothing: neither outputs nor gradients."""

from collections.abc import Callable
from typing import get_args

import pytest
import torch
from torch import Tensor

from glassformer.layers.position import Encoding
from glassformer.models.encoder_decoder import EncoderDecoder

PAD, LENGTHS, TARGET_LENGTHS = 0, [6, 3, 1], [2, 5, 4]


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    source, target = torch.randint(3, 12, (3, 6)), torch.randint(3, 12, (3, 5))
    seen = torch.arange(6) < torch.tensor(LENGTHS)[:, None]
    target_seen = torch.arange(5) < torch.tensor(TARGET_LENGTHS)[:, None]
    return source.masked_fill(~seen, PAD), target.masked_fill(~target_seen, PAD), seen, target_seen


@pytest.mark.parametrize("norm_order", ["post", "pre"])
@pytest.mark.parametrize("positions", get_args(Encoding))
@pytest.mark.parametrize("poison", [float("nan"), 1e30, -1e30])
def test_poisoned_padding_changes_no_bit(
    make_model: Callable[..., EncoderDecoder], poison: float, positions: str, norm_order: str
) -> None:
    model = make_model(tie_embeddings=False, positions=positions, norm_order=norm_order)
    source, target, seen, target_seen = batch()

    def run(source: Tensor, target: Tensor) -> list[Tensor]:
        model.zero_grad()
        logits = model(source, target, seen, target_seen)[target_seen]
        logits.sin().sum().backward()
        return [logits.detach(), *(parameter.grad.clone() for parameter in model.parameters())]

    clean = run(source, target)
    assert all(tensor.isfinite().all() for tensor in clean)
    with torch.no_grad():
        model.source_embedding.weight[PAD] = poison
        model.target_embedding.weight[PAD] = poison
    others = source.masked_fill(~seen, 7), target.masked_fill(~target_seen, 9)
    for ids in ((source, target), others):
        for one, other in zip(clean, run(*ids), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("positions", get_args(Encoding))
def test_a_padded_batch_equals_its_sentences_alone(make_model: Callable[..., EncoderDecoder], positions: str) -> None:
    """To 1e-12: sums of another length may be taken in another order."""
    model = make_model(positions=positions)
    source, target, seen, target_seen = batch()
    together = model(source, target, seen, target_seen)
    for row, (length, target_length) in enumerate(zip(LENGTHS, TARGET_LENGTHS, strict=True)):
        alone = model(source[row : row + 1, :length], target[row : row + 1, :target_length])
        torch.testing.assert_close(together[row, :target_length], alone[0], atol=1e-12, rtol=1e-12)


def test_memory_after_a_sentence_is_not_read(make_model: Callable[..., EncoderDecoder]) -> None:
    model = make_model()
    source, target, seen, target_seen = batch()
    memory = model.encode(source, seen)
    poisoned = memory.masked_fill(~seen[..., None], 1e30)
    decoded = [model.decode(target, each, seen, target_seen) for each in (memory, poisoned)]
    assert torch.equal(*decoded)
    assert not torch.equal(decoded[0], model.decode(target, memory, None, target_seen))
