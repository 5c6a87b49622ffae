"""The grid of patches: each effect is that of a run with this patch alone, and the ends are known."""

from typing import Any

import pytest
import torch
from torch import Tensor

from explain.small_models import STACK, small_model
from glassformer import ConfigError, Trace, trace
from glassformer.explain.analysis.interventions import Inputs, patch, run
from glassformer.explain.analysis.patching import Contrast, continuation, logits_at, patch_effects, patch_groups
from glassformer.models.registry import build_model

LOGITS = "output_projection.logits"
VOCAB = 12


def built(kind: str) -> Any:
    """A model of random weights, float64."""
    if kind != "encoder_decoder":
        return small_model(kind, vocab_size=VOCAB)
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 2, "n_decoder_layers": 2}
    return build_model({"kind": kind, "vocab_size": VOCAB, "dropout": 0.0, **sizes}, "test").double().eval()


def inputs(kind: str, length: int = 6) -> Inputs:
    source = torch.randint(3, VOCAB, (1, length))
    if kind == "encoder_decoder":
        return Inputs(source, torch.randint(3, VOCAB, (1, 5)))
    return Inputs(source, segments=torch.zeros_like(source)) if kind == "bert" else Inputs(source)


def other(of: Inputs) -> Inputs:
    """Another source before the same target."""
    return of._replace(source=torch.randint(3, VOCAB, of.source.shape))


def recorded(model: torch.nn.Module, given: Inputs) -> Trace:
    with torch.no_grad(), trace(model) as t:
        model(*given.arguments)
    return t


def contrast_of(original: Trace, donor: Trace, step: int) -> Contrast:
    contrast = Contrast.of(original[LOGITS][0, step], donor[LOGITS][0, step])
    assert contrast is not None
    return contrast


@pytest.fixture(params=["encoder_decoder", "gpt", "llama", "bert"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_each_effect_is_that_of_one_edited_run(kind: str) -> None:
    model, given = built(kind), inputs(kind)
    original, donor = recorded(model, given), recorded(model, other(given))
    step = 3
    contrast = contrast_of(original, donor, step)
    for names in patch_groups(model).values():
        size = original[names[0]].size(1)
        places = [*([place] for place in range(size)), list(range(size))]
        found = patch_effects(model, given, donor, names, places, step, contrast)
        assert found.shape == (len(names), size + 1)
        for name, row in zip(names, found, strict=True):
            for place, value in zip(places, row, strict=True):
                logits = run(model, given, {name: patch(donor[name], place)})[0, step].detach()
                assert float(value) == pytest.approx(float(contrast.effect(logits)), abs=1e-9), (name, place)
                difference = logits[contrast.rising] - logits[contrast.falling]
                share = (float(difference) - contrast.original) / (contrast.donor - contrast.original)
                assert float(value) == pytest.approx(share, abs=1e-9)


def test_ends_of_the_scale_and_what_cannot_matter(kind: str) -> None:
    model, given = built(kind), inputs(kind)
    original, donor = recorded(model, given), recorded(model, other(given))
    step = 3
    contrast = contrast_of(original, donor, step)
    groups = patch_groups(model)
    last = groups["encoder.stream" if kind == "bert" else "decoder.stream"][-1]
    size = original[last].size(1)
    own = patch_effects(model, given, original, [last], [[place] for place in range(size)], step, contrast)
    assert own.abs().max() < 1e-9  # an activation of its own changes nothing
    theirs = patch_effects(model, given, donor, [last], [[place] for place in range(size)], step, contrast)[0]
    assert float(theirs[step]) == pytest.approx(1, abs=1e-9)  # the last layer at the step is all that decides it
    assert theirs[torch.arange(size) != step].abs().max() < 1e-9
    if kind != "bert":
        first = groups["decoder.stream"][1]
        after = [[place] for place in range(step + 1, size)]
        later = patch_effects(model, given, donor, [first], after, step, contrast)
        assert later.abs().max() < 1e-9  # nothing attends to a later position


def test_effects_do_not_depend_on_their_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model, given = built("encoder_decoder"), inputs("encoder_decoder")
    original, donor = recorded(model, given), recorded(model, other(given))
    contrast = contrast_of(original, donor, 2)
    names, places = patch_groups(model)["encoder.self_attention"], [[place] for place in range(6)]
    together = patch_effects(model, given, donor, names, places, 2, contrast)
    monkeypatch.setattr("glassformer.explain.analysis.patching.BATCH_TOKENS", 1)
    alone = patch_effects(model, given, donor, names, places, 2, contrast)
    assert torch.allclose(together, alone, rtol=0, atol=1e-12)


def test_contrast_is_of_the_words_that_change_most() -> None:
    before, after = torch.tensor([3.0, 1.0, 0.0, 0.0]), torch.tensor([0.0, 1.0, 4.0, 0.5])
    contrast = Contrast.of(before, after)
    assert contrast == Contrast(0, 2, -3.0, 4.0)
    assert contrast is not None
    assert contrast.effect(torch.stack([before, after])).tolist() == [0.0, 1.0]
    assert Contrast.of(before, before) is None
    assert Contrast.of(before, before + 2) is None  # the same probabilities


def test_batches_and_models_without_words_are_refused() -> None:
    model = built("gpt")
    two = Inputs(torch.randint(3, VOCAB, (2, 4)))
    donor = recorded(model, two)
    with pytest.raises(ConfigError, match="2 rows; patch one input at a time"):
        patch_effects(model, two, donor, ["decoder.layers.0.self_attention.result"], [[0]], 0, Contrast(0, 1, 0.0, 1.0))
    dropping = build_model({"kind": "gpt", "vocab_size": VOCAB, "dropout": 0.5, **STACK}, "test")
    with pytest.raises(ConfigError, match="training mode"):
        patch_effects(dropping, two.row(0), donor, ["memory"], [[0]], 0, Contrast(0, 1, 0.0, 1.0))


def test_continuation_is_the_most_probable_path_and_follows_edits() -> None:
    model = built("gpt")
    ids, expected = [3, 4, 5], list[int]()
    for _ in range(3):
        logits: Tensor = model(torch.tensor([[*ids, *expected]]))
        expected.append(int(logits[0, -1].argmax()))
    assert continuation(model, ids, 3, {}) == expected
    assert continuation(model, ids, 3, {}, end=expected[0]) == []
    zeros = {"decoder.layers.*.result": torch.zeros_like}
    edited = continuation(model, ids, 1, zeros)
    assert edited == [int(run(model, Inputs(torch.tensor([ids])), zeros)[0, -1].argmax())]
    room = model.config.max_length - len(ids)
    assert len(continuation(model, ids, 10_000, {})) <= room + 1


def test_logits_of_one_position_are_those_of_all(kind: str) -> None:
    model, given = built(kind), inputs(kind)
    with torch.no_grad():
        assert torch.allclose(logits_at(model, given, 2), model(*given.arguments)[:, 2], rtol=0, atol=1e-12)
