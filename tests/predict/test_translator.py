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
from glassformer import CheckpointError, ConfigError, DataError, Translator, trace
from glassformer.generate import score_pairs
from glassformer.models.registry import build_model, weights_of
from glassformer.native import Accelerated
from glassformer.native.library import kernels
from glassformer.storage.checkpoint import load_checkpoint, save_checkpoint
from glassformer.storage.run_folder import RunFolder, resolve
from glassformer.text.errors import LongTextWarning

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


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_the_score_of_what_was_found_is_what_was_reported(translator: Translator, engine: str) -> None:
    """By its tokens, since a model of forty steps also finds other segmentations than those of its text."""
    if engine == "native" and kernels() is None:
        pytest.skip("there are no kernels here")
    config = translator.configure(beam_size=3, engine=engine)
    found = [one[0].hypothesis for one in translator.hypotheses(TEXTS, beam_size=3, engine=engine)]
    form, tokens = Accelerated(translator.models[0]).form(config.engine, "float32"), [list(one.tokens) for one in found]
    scored = score_pairs(form, translator._sources(TEXTS), tokens, translator.symbols, config)
    for one, other in zip(found, scored, strict=True):
        assert other.tokens == one.tokens
        assert other.log_prob == pytest.approx(one.log_prob, abs=1e-4)
        assert other.score == pytest.approx(one.score, abs=1e-4)
        assert other.token_log_probs == pytest.approx(one.token_log_probs, abs=1e-4)
        assert other.log_prob == pytest.approx(sum(other.token_log_probs), abs=1e-6)
        assert all(value <= 0 for value in other.token_log_probs)


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_score_scores_the_segmentation_of_its_targets(translator: Translator, engine: str) -> None:
    if engine == "native" and kernels() is None:
        pytest.skip("there are no kernels here")
    config = translator.configure(engine="torch")
    targets = [*translator.translate(TEXTS), "le vieux chat dort", ""]
    sources, ids = [*TEXTS, TEXTS[0], TEXTS[1]], translator.tokenizers.target.encode_batch(targets)
    expected = score_pairs(translator.models[0], translator._sources(sources), ids, translator.symbols, config)
    scored = translator.score(sources, targets, engine=engine)
    for one, other, own in zip(scored, expected, ids, strict=True):
        assert list(one.tokens) == list(own)
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-4)
        assert one.score == pytest.approx(other.score, abs=1e-4)


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
        ({"n_best": 3, "beam_size": 2}, r"^decoding: n_best=3 exceeds beam_size=2; raise beam_size or lower n_best$"),
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
    best = [found[0] for found in both.hypotheses(TEXTS)]
    # The text of an untrained model may have other tokens than those that it was decoded from.
    equal = [i for i, one in enumerate(best) if both.tokenizers.target.encode(one.text) == one.hypothesis.tokens]
    assert equal
    again = both.score([TEXTS[i] for i in equal], [best[i].text for i in equal])
    assert [one.log_prob for one in again] == pytest.approx([best[i].hypothesis.log_prob for i in equal], abs=1e-4)


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


def test_a_copy_and_a_pickle_translate_as_the_original(translator: Translator) -> None:
    before = translator.translate(TEXTS)
    assert copy.deepcopy(translator).translate(TEXTS) == before
    assert pickle.loads(pickle.dumps(translator)).translate(TEXTS) == before


def in_place(model: Any) -> None:
    with torch.no_grad():
        model.output_projection.weight.mul_(-3)


def by_state_dict(model: Any) -> None:
    model.load_state_dict({name: -weight for name, weight in model.state_dict().items()})


def by_an_optimizer(model: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model(torch.tensor([[5, 2]]), torch.tensor([[1, 5]])).square().sum().backward()
    optimizer.step()


def by_another_tensor(model: Any) -> None:
    model.output_projection.weight.data = -3 * model.output_projection.weight.data


def by_another_parameter(model: Any) -> None:
    model.output_projection.weight = torch.nn.Parameter(-3 * model.output_projection.weight.detach())


def by_another_module(model: Any) -> None:
    layer = copy.deepcopy(model.decoder.layers[0])
    with torch.no_grad():
        layer.feed_forward.outer.weight.mul_(-8)
    model.decoder.layers[0] = layer


def through_data(model: Any) -> None:
    model.decoder.layers[0].feed_forward.outer.weight.data.mul_(-8)


def through_numpy(model: Any) -> None:
    model.decoder.layers[0].feed_forward.outer.weight.detach().numpy()[:] *= -8


SIGNED = [in_place, by_state_dict, by_an_optimizer, by_another_tensor, by_another_parameter, by_another_module]
UNSIGNED = [through_data, through_numpy]


@pytest.mark.parametrize("write", [*SIGNED, *UNSIGNED], ids=lambda write: write.__name__)
def test_weights_that_were_written_are_seen_after_refresh(translator: Translator, write: Any) -> None:
    changed = copy.deepcopy(translator)
    before = changed.translate(TEXTS)
    packed = kernels() is not None
    write(changed.models[0])
    if packed and write in SIGNED:
        with pytest.raises(ConfigError, match=r"the weights have changed since .*; call refresh\(\) first"):
            changed.translate(TEXTS)
    elif packed:
        assert changed.translate(TEXTS) == before  # from the copies
    changed.refresh()
    after = changed.hypotheses(TEXTS)
    expected = changed.hypotheses(TEXTS, engine="torch")
    assert [one.text for (one,) in after] == [one.text for (one,) in expected]
    for (one,), (other,) in zip(after, expected, strict=True):
        assert one.hypothesis.log_prob == pytest.approx(other.hypothesis.log_prob, rel=1e-5, abs=1e-3)
    assert [one.text for (one,) in after] != before


def test_a_model_put_into_models_is_seen_at_once(translator: Translator) -> None:
    changed = copy.deepcopy(translator)
    before = changed.translate(TEXTS)
    other = copy.deepcopy(translator.models[0])
    in_place(other)
    changed.models[0] = other
    assert changed.translate(TEXTS) == changed.translate(TEXTS, engine="torch") != before


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_hooks_and_edits_are_seen_at_once(translator: Translator, engine: str) -> None:
    changed = copy.deepcopy(translator)
    before = changed.translate(TEXTS, engine=engine)
    hook = changed.models[0].decoder.register_forward_hook(lambda module, inputs, output: -output)
    hooked = changed.translate(TEXTS, engine=engine)
    hook.remove()
    edits = {"decoder.layers.1.feed_forward_norm.normed": lambda x: -x}
    with trace(changed.models[0], edits=edits):
        edited = changed.translate(TEXTS, engine=engine)
    assert hooked != before
    assert edited != before
    assert changed.translate(TEXTS, engine=engine) == before
