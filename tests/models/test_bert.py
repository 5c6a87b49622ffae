"""The encoder alone: what it reads, what padding must not reach, and its heads."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.models.bert import BERT, BERTConfig
from glassformer.taps import record

Build = Callable[..., Any]
TOLERANCE = {"atol": 1e-12, "rtol": 1e-12}
LENGTHS = [7, 4, 1]


@pytest.fixture
def model(build: Build) -> BERT:
    made: BERT = build("bert", n_classes=3, n_tags=5)
    return made


def batch() -> tuple[Tensor, Tensor, Tensor]:
    seen = torch.arange(7) < torch.tensor(LENGTHS)[:, None]
    return torch.randint(3, 11, (3, 7)).masked_fill(~seen, 0), seen, torch.randint(0, 2, (3, 7))


def outputs(model: BERT, tokens: Tensor, seen: Tensor | None, segments: Tensor) -> dict[str, Tensor]:
    hidden = model.hidden(tokens, seen, segments)
    return {
        "logits": model(tokens, seen, segments),
        "tags": model.tags(hidden),
        "classes": model.classes(hidden),
        "pooled": model.pooled(tokens, seen, segments),
        "mean": model.embed(tokens, seen, segments),
        "cls": model.embed(tokens, seen, segments, pooling="cls"),
    }


def test_a_padded_batch_equals_its_texts_alone(model: BERT) -> None:
    tokens, seen, segments = batch()
    together = outputs(model, tokens, seen, segments)
    for row, length in enumerate(LENGTHS):
        alone = outputs(model, tokens[row : row + 1, :length], None, segments[row : row + 1, :length])
        for name, found in together.items():
            whole = found[row, :length] if found.dim() == 3 else found[row]
            torch.testing.assert_close(whole, alone[name][0], **TOLERANCE)


@pytest.mark.parametrize("poison", [float("nan"), 1e30])
def test_poisoned_padding_changes_no_bit(model: BERT, poison: float) -> None:
    tokens, seen, segments = batch()

    def run() -> list[Tensor]:
        model.zero_grad()
        found = [x[seen] if x.dim() == 3 else x for x in outputs(model, tokens, seen, segments).values()]
        sum(x.sin().sum() for x in found).backward()
        return [*(x.detach() for x in found), *(p.grad.clone() for p in model.parameters() if p is not tied)]

    tied = model.embedding.weight  # is the output's too, and so has logits of the poisoned entry
    model.output_projection.weight = torch.nn.Parameter(tied.detach().clone())
    clean = run()
    assert all(tensor.isfinite().all() for tensor in clean)
    with torch.no_grad():
        tied[0] = poison
    assert all(torch.equal(one, other) for one, other in zip(clean, run(), strict=True))


def test_tokens_attend_to_all_tokens_and_use_their_segment(model: BERT) -> None:
    tokens, segments = torch.randint(3, 11, (1, 5)), torch.tensor([[0, 0, 1, 1, 1]])
    before = model(tokens, None, segments)
    for place in range(5):
        changed = tokens.clone()
        changed[:, place] += 1
        assert (before != model(changed, None, segments)).any(-1).all()
    assert (before != model(tokens, None, 1 - segments)).any(-1).all()
    assert torch.equal(model(tokens), model(tokens, None, torch.zeros_like(segments)))


def test_numbered_texts_of_one_row_are_read_apart(model: BERT) -> None:
    tokens, segments = torch.randint(3, 11, (1, 9)), torch.randint(0, 2, (1, 9))
    packed = model(tokens, torch.tensor([[1, 1, 1, 2, 2, 2, 2, 0, 0]]), segments)[0]
    for start, stop in ((0, 3), (3, 7)):
        alone = model(tokens[:, start:stop], None, segments[:, start:stop])[0]
        torch.testing.assert_close(packed[start:stop], alone, **TOLERANCE)


def test_model_has_only_the_configured_heads() -> None:
    sizes = {"vocab_size": 9, "d_model": 8, "n_heads": 2, "d_ff": 8, "n_layers": 1}
    names = {name.split(".")[0] for name, _ in BERT(BERTConfig.parse({**sizes, "n_tags": 3})).named_parameters()}
    assert names == {"embedding", "encoder", "transform", "output_projection", "tags"}
    model = BERT(BERTConfig.parse({**sizes, "masked_tokens": False, "n_classes": 2}))
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {"embedding", "encoder", "classes"}
    tokens = torch.ones(1, 3, dtype=torch.long)
    with pytest.raises(ConfigError, match="masked_tokens=false"):
        model(tokens)
    with pytest.raises(ConfigError, match="n_classes=0"):
        BERT(BERTConfig.parse(sizes)).pooled(tokens)


def test_tensors_are_named(model: BERT) -> None:
    tokens, seen, segments = batch()
    with record(model) as recorded:
        model.classes(model.hidden(tokens, seen, segments))
        model(tokens, seen, segments)
    expected = ["embedding.segment", "embedding.segmented", "embedding.normed", "memory", "classes.pooler.pooled"]
    expected += ["classes.projection.probabilities", "transform.normed", "output_projection.logits"]
    assert set(expected) <= set(recorded)
    assert recorded["encoder.layers.1.self_attention.weights"].shape == (3, 4, 7, 7)
