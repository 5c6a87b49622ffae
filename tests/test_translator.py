"""Raw text in, raw text out, through the public door."""

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer
import tiny_run
from glassformer import CheckpointError, ConfigError, DataError, Translator
from glassformer.checkpoint import load_checkpoint, save_checkpoint
from glassformer.models.registry import build_model, weights_of
from glassformer.run_folder import RunFolder, resolve
from glassformer.text.faults import LongTextWarning

TEXTS = ["the old cat sleeps", "she doesn't see a tree, and I love you", "I love you", "you sleep"]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return tiny_run.made(tmp_path_factory).translator


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    """The same run, thirty steps before."""
    return Translator.load(RunFolder.open(tiny_run.made(tmp_path_factory).run).checkpoints()[0])


def test_loading_a_run_is_loading_its_best_checkpoint(
    tmp_path_factory: pytest.TempPathFactory, translator: Translator
) -> None:
    run = tiny_run.made(tmp_path_factory).run
    best = RunFolder.open(run).best()
    assert best is not None
    for path in (run, str(run), best.checkpoint):
        assert glassformer.load(path).translate(TEXTS) == translator.translate(TEXTS)


def test_texts_become_texts_whatever_stands_beside_them(translator: Translator) -> None:
    together = translator.translate([*TEXTS, "", " \t", *TEXTS[::-1]])
    assert together == [translator.translate([text])[0] for text in TEXTS] + ["", ""] + together[:4][::-1]
    assert translator.translate([]) == []
    assert translator.translate([""]) == [""]
    for text in together:
        assert translator.tokenizers.target.decode(translator.tokenizers.target.encode(text)) == text


def test_what_was_never_seen_is_still_text(translator: Translator) -> None:
    """Letters that the vocabulary does not know, line ends within a text, signs that look special."""
    with pytest.warns(LongTextWarning, match=r"^text 4: 30\d tokens"):
        found = translator.translate(["Straße 日本 🙂", "one\ntwo", "</s> <s> <pad>", "a" * 300])
    assert len(found) == 4
    assert not any("<s>" in text or "</s>" in text or "\n" in text for text in found)


def test_the_score_of_what_was_found_is_what_was_reported(translator: Translator) -> None:
    found = [one[0] for one in translator.hypotheses(TEXTS, beam_size=3)]
    scored = translator.score(TEXTS, [one.text for one in found])
    for one, hypothesis in zip(found, scored, strict=True):
        assert hypothesis.tokens == one.hypothesis.tokens
        assert hypothesis.log_prob == pytest.approx(one.hypothesis.log_prob, abs=1e-4)
        assert hypothesis.score == pytest.approx(one.score, abs=1e-4)
        assert hypothesis.log_prob == pytest.approx(sum(hypothesis.token_log_probs), abs=1e-6)
        assert all(value <= 0 for value in hypothesis.token_log_probs)


def test_bfloat16_scores_are_float32s_rounded_and_the_model_stays_what_it_is(translator: Translator) -> None:
    """A token's log-probability is off by what eight bits make of logits below ten."""
    before = translator.translate(TEXTS)
    exact, rounded = (translator.score(TEXTS, before, precision=p) for p in ("float32", "bfloat16"))
    for one, other in zip(exact, rounded, strict=True):
        assert other.token_log_probs == pytest.approx(one.token_log_probs, abs=0.1)
        assert other.token_log_probs != one.token_log_probs
    together = translator.translate(TEXTS, precision="bfloat16")
    assert together == [translator.translate([text], precision="bfloat16")[0] for text in TEXTS]
    assert translator.translate(TEXTS) == before
    assert {p.dtype for p in translator.models[0].parameters()} == {torch.float32}


def test_options_go_over_what_the_run_stored(translator: Translator) -> None:
    assert translator.decoding.beam_size == 2
    assert translator.configure(beam_size=7).beam_size == 7
    assert translator.configure(n_best=4).beam_size == 4
    assert translator.configure().max_extra == 5
    assert [len(one) for one in translator.hypotheses(TEXTS, n_best=3)] == [3, 3, 3, 3]
    scores = [one.score for one in translator.hypotheses(TEXTS, n_best=3)[0]]
    assert scores == sorted(scores, reverse=True)
    assert all(len(one[0].hypothesis.tokens) <= 2 for one in translator.hypotheses(TEXTS, max_length=2))


def test_what_cannot_translate_is_refused_when_it_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    ours = load_checkpoint(resolve(tiny_run.made(tmp_path_factory).run))
    config = {"model": ours.config["model"]}
    save_checkpoint(tmp_path / "mute", config=config, tokenizer={}, weights=ours.weights)
    with pytest.raises(CheckpointError, match="/mute: has no tokenizer, so it cannot translate; restore the or"):
        Translator.load(tmp_path / "mute")
    gpt = build_model({"kind": "gpt", "vocab_size": 5, "d_model": 8, "n_heads": 2, "n_layers": 1}, "test")
    config = {"model": gpt.config.model_dump(mode="json")}
    save_checkpoint(tmp_path / "gpt", config=config, tokenizer={}, weights=weights_of(gpt))
    with pytest.raises(CheckpointError, match=r"/gpt: a model of kind gpt does not translate; use load\(\)$"):
        Translator.load(tmp_path / "gpt")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"beam": 4}, r"^decoding: unknown key beam; did you mean beam_size\?$"),
        ({"lenght_penalty": "none"}, r"^decoding: unknown key lenght_penalty; did you mean length_penalty\?$"),
        ({"length_penalty": "gmt"}, r"^decoding: length_penalty='gmt': input should be 'none', 'average' or 'gnmt'$"),
        ({"n_best": 3, "beam_size": 2}, r"^decoding: n_best=3 hypotheses need beam_size of at least that, not 2$"),
        ({"temperature": -1}, r"^decoding: temperature=-1: input should be greater than or equal to 0$"),
    ],
)
def test_options_that_cannot_be(translator: Translator, options: dict[str, Any], told: str) -> None:
    for use in (translator.translate, translator.hypotheses):
        with pytest.raises(ConfigError, match=told):
            use(TEXTS, **options)
    with pytest.raises(ConfigError, match=told):
        translator.score(TEXTS, TEXTS, **options)


def test_what_is_not_a_list_of_as_many_is_refused(translator: Translator) -> None:
    with pytest.raises(DataError, match="texts is one string"):
        translator.translate("I love you")
    with pytest.raises(DataError, match=r"^2 sources and 1 targets; give as many of each$"):
        translator.score(["a", "b"], ["a"])
    with pytest.raises(DataError, match=r"^2 texts and 1 prefixes; give one for each, empty where none is$"):
        translator.hypotheses(["a", "b"], ["un"])
    with pytest.raises(CheckpointError, match=r"^no checkpoint is named; name at least one$"):
        Translator.load()


# Prefixes


@pytest.mark.parametrize("options", [{"beam_size": 1}, {"beam_size": 3, "n_best": 3}, {"sample": True, "n_best": 2}])
def test_translations_begin_with_their_prefix(translator: Translator, options: dict[str, Any]) -> None:
    found = translator.hypotheses([TEXTS[0], "", TEXTS[1], TEXTS[2]], ["le vieux", "un", "", "je"], **options)
    assert all(one.text.startswith("le vieux") for one in found[0])
    assert [one.text for one in found[1]] == [""]
    assert all(one.text.startswith("je") for one in found[3])
    if "sample" not in options:
        alone = translator.hypotheses([TEXTS[1]], **options)
        assert [one.text for one in found[2]] == [one.text for one in alone[0]]


def test_a_prefix_longer_than_the_limit_is_refused(translator: Translator) -> None:
    with pytest.raises(DataError, match=r"a forced prefix of \d+ tokens is longer than the limit of 1"):
        translator.hypotheses(TEXTS[:1], ["le vieux chat dort dans le jardin"], max_length=1)


# Ensembles


def test_an_ensemble_multiplies_nothing_and_averages_probabilities(translator: Translator, other: Translator) -> None:
    """−log of the mean probability of each token, token by token (1e-5: float32)."""
    both = Translator([translator.models[0], other.models[0]], translator.tokenizers, translator.decoding)
    targets = translator.translate(TEXTS)
    scored = [one.score(TEXTS, targets) for one in (both, translator, other)]
    for together, first, second in zip(*scored, strict=True):
        for p, a, b in zip(together.token_log_probs, first.token_log_probs, second.token_log_probs, strict=True):
            assert p == pytest.approx(math.log((math.exp(a) + math.exp(b)) / 2), abs=1e-5)
    best = both.hypotheses(TEXTS)
    assert [one.log_prob for one in both.score(TEXTS, [one[0].text for one in best])] == pytest.approx(
        [one[0].hypothesis.log_prob for one in best], abs=1e-4
    )


def test_an_ensemble_is_loaded_from_several_paths(
    tmp_path_factory: pytest.TempPathFactory, translator: Translator
) -> None:
    run = tiny_run.made(tmp_path_factory).run
    first, *_, last = RunFolder.open(run).checkpoints()
    ensemble = glassformer.load(first, last)
    assert len(ensemble.models) == 2
    twice = glassformer.load(run, run)
    assert twice.translate(TEXTS) == translator.translate(TEXTS)
    assert not any(model.training for model in ensemble.models)


# Attention


def test_rows_of_the_cross_attention_sum_to_one(translator: Translator) -> None:
    attention = translator.cross_attention(TEXTS[1], "elle ne voit pas un arbre")
    source = translator.tokenizers.source.encode(TEXTS[1])
    target = translator.tokenizers.target.encode("elle ne voit pas un arbre")
    assert attention.source == [*translator.tokenizers.source.tokens(source), "</s>"]
    assert attention.target == [*translator.tokenizers.target.tokens(target), "</s>"]
    assert attention.weights.shape == (2, 2, len(target) + 1, len(source) + 1)
    torch.testing.assert_close(attention.weights.sum(-1), torch.ones(2, 2, len(target) + 1), rtol=0, atol=1e-6)
    assert attention.weights.min() >= 0


@pytest.mark.parametrize("target", ["je t'aime", "elle", "le vieux chat, dort", "日本 🙂 x"])
def test_every_target_word_has_one_link(translator: Translator, target: str) -> None:
    for layer in (-1, 0):
        links = translator.align(TEXTS[1], target, layer)
        assert sorted(word for _, word in links) == list(range(len(target.split())))
        assert all(0 <= word < len(TEXTS[1].split()) for word, _ in links)
        assert links == sorted(links)


@pytest.mark.parametrize(("source", "target"), [("", "je"), ("I", ""), ("", "")])
def test_nothing_is_aligned_with_nothing(translator: Translator, source: str, target: str) -> None:
    assert translator.align(source, target) == []


def test_translating_leaves_no_trace(translator: Translator) -> None:
    """No state, no gradient, no random number: the second time is the first time."""
    random = torch.get_rng_state()
    first = translator.hypotheses(TEXTS, n_best=2)
    translator.align(TEXTS[0], "le chat")
    assert translator.hypotheses(TEXTS, n_best=2) == first
    assert translator.hypotheses(TEXTS, sample=True, seed=5) == translator.hypotheses(TEXTS, sample=True, seed=5)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(p.grad is None for p in translator.models[0].parameters())


def test_texts_too_long_are_named(translator: Translator) -> None:
    words = "the " * 1100
    assert translator.too_long(["I", words, "you"]) == [(1, len(translator.tokenizers.source.encode(words)) + 1)]


def test_it_follows_its_model_and_can_be_copied(translator: Translator) -> None:
    changed = copy.deepcopy(translator)
    before = translator.translate(TEXTS)
    assert copy.deepcopy(translator).translate(TEXTS) == before
    assert pickle.loads(pickle.dumps(translator)).translate(TEXTS) == before
    assert changed.translate(TEXTS) == before
    with torch.no_grad():
        for weight in changed.models[0].output_projection.parameters():
            weight.normal_()
    assert changed.translate(TEXTS) == changed.translate(TEXTS, compiled=False) != before
    changed.models[0] = translator.models[0]
    assert changed.translate(TEXTS) == before
    changed.models[0].decoder.layers[0] = copy.deepcopy(changed.models[0].decoder.layers[0])
    with torch.no_grad():  # by a power of two, so that it is undone to the bit: other tests share these weights
        changed.models[0].decoder.layers[0].feed_forward.outer.weight.mul_(-8)
    try:
        assert changed.translate(TEXTS) == changed.translate(TEXTS, compiled=False)
    finally:
        with torch.no_grad():
            changed.models[0].decoder.layers[0].feed_forward.outer.weight.div_(-8)
