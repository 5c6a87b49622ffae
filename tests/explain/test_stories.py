"""The walkthrough of each kind of model: the right steps in order, every number checked, every check able to fail."""

import re
import tomllib
from importlib.resources import files

import pytest
import torch

from explain.small_examples import CLASSES, EXAMPLES, FORMAT, SERIES, TAGS, continuation, series, small_bert, vocabulary
from explain.small_models import small_model
from glassformer import ConfigError, DataError
from glassformer.explain import Example
from glassformer.explain.examples.arrays import examine_pixels, examine_series
from glassformer.explain.examples.text import (
    examine,
    examine_class,
    examine_continuation,
    examine_masked,
    examine_tags,
)
from glassformer.explain.figures.attention import view
from glassformer.explain.report import report
from glassformer.explain.walkthrough import step as walkthrough_step
from glassformer.explain.walkthrough.checks import CHECKS
from glassformer.explain.walkthrough.step import checked
from glassformer.explain.walkthrough.walkthrough import walkthrough
from random_translator import random_translator

ATTENTION, MASKED = "Queries, keys, values: attention", "Masked self-attention"
LAYERS = ["Add & Norm", "Feed-forward", "The stack of 2 layers"]
TEXT, PLACES = "Tokens, one-hot, embedding", "Positions and segments"
TITLES = {
    "gpt": [TEXT, "Positions", MASKED, *LAYERS, "Linear and softmax"],
    "llama": [TEXT, "Positions", MASKED, *LAYERS, "Linear and softmax"],
    "masked": [TEXT, PLACES, ATTENTION, *LAYERS, "The hidden words"],
    "classes": [TEXT, PLACES, ATTENTION, *LAYERS, "The classes"],
    "tags": [TEXT, PLACES, ATTENTION, *LAYERS, "A tag for each word"],
    "vit": ["An image as a sequence of patches", "The class token, and positions", ATTENTION, *LAYERS, "The classes"],
    "series": ["A series as a sequence of patches", "Positions", ATTENTION, *LAYERS, "The forecast"],
    "recurrent": [
        TEXT,
        "Read from both ends",
        "Attention to the source",
        "Context and state together",
        "Linear and softmax",
    ],
}
GIVEN = ("patches", "one_hot")


@pytest.fixture(scope="module", params=EXAMPLES)
def told(request: pytest.FixtureRequest) -> tuple[str, Example]:
    return request.param, EXAMPLES[request.param]()


def test_the_steps_are_those_of_the_model(told: tuple[str, Example]) -> None:
    name, example = told
    steps = walkthrough(example)
    assert [step.title for step in steps] == TITLES[name]
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    for step in steps:
        assert step.what.endswith(".")
        assert step.why.endswith((".", ".)"))
        assert step.formula
        assert step.reference
        assert step.tables
        assert step.passed and step.evaluation is not None and step.evaluation.check.passed, (step.title, step.checks)
        assert any("computed again from their operands" in check.text for check in step.checks)
        assert len({len(row) for row in step.words}) <= 1


def test_a_number_that_was_tampered_with_turns_its_step_red(told: tuple[str, Example]) -> None:
    """Every table of every step: one of its numbers is changed, and the check about them fails."""
    _, example = told
    for step in walkthrough(example):
        for table in {table.name: table for table in step.tables}.values():
            honest = example.trace[table.name]
            example.trace[table.name] = honest.clone()
            place = dict(table.formula(0).place.index)
            value = example.trace[table.name][tuple(place.values())]
            example.trace[table.name][tuple(place.values())] = 0.0 if torch.isinf(value) else value + 0.5
            assert not checked(*step.tables).passed, (step.title, table.name)
            example.trace[table.name] = honest


def test_what_is_said_is_what_the_logits_say() -> None:
    gpt, masked, classes, tags = (EXAMPLES[name]() for name in ("gpt", "masked", "classes", "tags"))
    tokenizer = vocabulary().source
    best = gpt.trace["output_projection.logits"][0, -1].argmax()
    assert tokenizer.tokens([int(best)])[0] in gpt.output or gpt.output == tokenizer.decode([int(best)])
    assert gpt.predicted_ids == [*tokenizer.encode("small dog sees"), int(best)]
    assert masked.tokens("encoder") == ["[CLS]", "a", "[MASK]", "dog", "sees", "the", "[MASK]", "[SEP]"]
    hidden = masked.trace["output_projection.logits"][0, 2].argmax()
    assert masked.predicted_ids[2] == int(hidden)
    assert masked.predicted_ids[3] == tokenizer.encode("dog")[0]
    assert classes.output == CLASSES[int(classes.trace["classes.projection.logits"][0].argmax())]
    assert classes.tokens("encoder") == ["[CLS]", "a", "small", "dog", "[SEP]", "the", "cat", "[SEP]"]
    expected = classes.trace.model.embedding.segment.weight[1]
    assert torch.equal(classes.trace["embedding.segment"][0, 5], expected)
    assert tags.output.split() == [TAGS[i] for i in tags.trace["tags.projection.logits"][0, 1:5].argmax(-1)]


def test_the_next_word_is_chosen_behind_the_last_one() -> None:
    example = EXAMPLES["gpt"]()
    last = walkthrough(example)[-1]
    assert last.evaluation is not None
    assert dict(last.evaluation.place.index)["position"] == 3
    assert last.words[-1][:2] == ("sees", "?")
    assert last.words[1][:2] == ("a", "small")
    attention = walkthrough(example)[2]
    scores = next(table for table in attention.tables if table.name.endswith("masked_scores"))
    assert scores.values[0, 1:].tolist() == [-torch.inf] * 3
    assert any("later word is exactly 0" in check.text for check in attention.checks)


def test_groups_of_heads_rotation_and_gates_are_told() -> None:
    steps = walkthrough(EXAMPLES["llama"]())
    assert "Groups of 2 heads share keys" in steps[2].what
    assert "50^(2i/d_k)" in steps[1].formula
    assert "Nothing is added" in steps[1].what
    assert "RMSNorm" in steps[3].formula
    assert "root mean square of 1" in steps[3].what
    assert "⊙" in steps[4].formula
    assert any(table.name.endswith("product") for table in steps[4].tables)


def test_a_model_without_positional_encodings_has_no_step_about_them() -> None:
    """It is not taken for one with rotary positions."""
    tokenizer = vocabulary().source
    model = small_model("gpt", vocab_size=tokenizer.vocab_size)
    model.embedding.position = None
    example = examine_continuation(model, tokenizer, "a small dog sees")
    steps = walkthrough(example)
    assert all(step.passed for step in steps)
    assert [step.title for step in steps[:2]] == [step.title for step in walkthrough(continuation("gpt"))[::2][:2]]
    page = report(example)
    assert "no positions" in page
    assert "rotary" not in page
    with pytest.raises(ConfigError, match="the decoder has no positional encoding; choose another view"):
        view(example, "positions")


def test_a_sparse_pattern_is_told() -> None:
    """Not only later words are hidden then; where the text is shorter than the window, only those."""
    tokenizer, told = vocabulary().source, {}
    for span in (2, 9):
        model = small_model("gpt", vocab_size=tokenizer.vocab_size, attention={"pattern": "window", "span": span})
        told[span] = walkthrough(examine_continuation(model, tokenizer, "a small dog sees"))[2]
    assert "some of those before it" in told[2].what
    assert told[2].formula.endswith("above the diagonal and outside the pattern")
    assert "pattern" not in told[9].what + told[9].formula
    assert told[9].formula.endswith("above the diagonal")
    assert all(step.passed for step in told.values())


def test_what_leaves_a_stack_is_compared_with_what_comes_after_it() -> None:
    """Of GPT with the logits, of the others with the memory; a pre-norm stack ends in a normalization."""
    for name, after in (("gpt", "output_projection.logits"), ("llama", "output_projection.logits"), ("vit", "memory")):
        example = EXAMPLES[name]()
        step = walkthrough(example)[5]
        norm = "RMSNorm" if name == "llama" else "LayerNorm"
        assert step.passed
        assert f"a last {norm} follows" in step.what
        assert step.formula.startswith(f"x = {norm}(Layer_2(")
        example.trace[after] = example.trace[after] + 0.5
        assert not walkthrough(example)[5].checks[1].passed, name
    masked = walkthrough(EXAMPLES["masked"]())[5]
    assert "follows" not in masked.what
    assert masked.formula == "x = Layer_2(… Layer_1(x))"
    assert masked.checks[1].text == "this is what leaves the last layer, bit for bit"


def test_a_series_that_was_not_read_so_turns_the_first_step_red() -> None:
    """The patches are computed again from the series itself, mean and deviation with them."""
    example = series()
    first = walkthrough(example)[0]
    assert any("the patches are the series" in check.text for check in first.checks)
    assert first.passed
    example.trace["embedding.patches"][1, 2, 0] += 0.01
    assert not walkthrough(example)[0].passed
    words = walkthrough(example)[-1].words
    assert words[0][1:] == (*(f"−{step}" for step in range(7, 0, -1)), "0", *(f"+{step}" for step in range(1, 6)))


def test_an_image_has_its_picture_and_its_patches() -> None:
    example = EXAMPLES["vit"]()
    image = walkthrough(example)[0].image
    assert image is not None
    assert image.values.shape == (4, 6, 3)
    assert image.patch == 2
    assert 0 <= image.values.min() < image.values.max() <= 1
    assert example.tokens("encoder") == ["[CLS]", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2"]


def test_long_texts_are_cut_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walkthrough_step, "MAX_LABELS", 3)
    steps = walkthrough(continuation("gpt"))
    assert "the first 3 of 4" in steps[0].tables[0].rows.title
    assert all(step.passed for step in steps)


def test_what_cannot_be_followed_says_why() -> None:
    tokenizer, bert = vocabulary().source, small_bert(masked_tokens=False, n_classes=0)
    with pytest.raises(DataError, match="the text is empty; give one with at least one word"):
        examine_continuation(small_model("gpt"), tokenizer, "  ")
    with pytest.raises(DataError, match=r"there is no \[MASK\] in the text; write \[MASK\] in place of one word"):
        examine_masked(small_bert(), tokenizer, "a dog")
    with pytest.raises(ConfigError, match="this model has no head for hidden tokens; train one for that task"):
        examine_masked(bert, tokenizer, "a [MASK]")
    with pytest.raises(ConfigError, match="this model has no head for classes"):
        examine_class(bert, tokenizer, ["a dog"], CLASSES)
    with pytest.raises(DataError, match="the series has 11 rows and the model sees 12; give at least those"):
        examine_series(small_model("series"), SERIES, torch.zeros(11, 2).numpy())
    with pytest.raises(DataError, match="an image is 3 × 4 × 4, but this model reads 3 × 4 × 6"):
        examine_pixels(small_model("vit"), FORMAT, torch.zeros(1, 3, 4, 4), "x.png")
    with pytest.raises(DataError, match="the text is empty"):
        examine_tags(small_bert(), tokenizer, "", TAGS)


UNKNOWN = {
    "translation": lambda pair, bert: examine(pair, "a Жук dog", "the 🚀 runs"),
    "language": lambda pair, bert: continuation("gpt", "a Жук 🚀 dog"),
    "masked": lambda pair, bert: examine_masked(bert, vocabulary().source, "a [MASK] Жук 🚀"),
    "classification": lambda pair, bert: examine_class(bert, vocabulary().source, ["a Жук", "🚀 dog"], CLASSES),
    "tagging": lambda pair, bert: examine_tags(bert, vocabulary().source, "a Жук 🚀", TAGS),
}


@pytest.mark.parametrize("task", UNKNOWN)
def test_walkthrough_shows_the_text_of_unknown_tokens(task: str) -> None:
    """In labels, in terminal tables and in the token chips of the report."""
    lines = ["a small dog sees the big cat", "the cat runs"]
    example = UNKNOWN[task](random_translator(lines), small_bert())
    tokens = [*example.tokens("encoder"), *example.tokens("decoder")]
    assert {token for token in tokens if "unk" in token} == {"<unk> Жук", "<unk> 🚀"}
    tokens_step = next(step for step in walkthrough(example) if step.title.startswith("Tokens"))
    assert "<unk> Жук" in [row[0] for row in tokens_step.words]
    assert "<unk> Жук" in tokens_step.tables[0].rows.texts
    page = report(example)
    assert re.search(r'data-side="\w+" data-position="\d+"[^>]*>(<bdi>)?&lt;unk&gt; Жук<', page)
    assert "&lt;unk&gt; 🚀" in page


def test_walkthrough_toml_names_known_checks_and_replaces_known_fields() -> None:
    """A misspelt key of a variant would leave the step as it is, in silence."""
    text = files("glassformer.explain.walkthrough").joinpath("walkthrough.toml").read_text(encoding="utf-8")
    needed = {"title", "what", "why", "formula", "reference"}
    used = set[str]()
    for name, step in tomllib.loads(text).items():
        own = {key: value for key, value in step.items() if not isinstance(value, dict)}
        assert needed <= set(own), name
        variants = [value for value in step.values() if isinstance(value, dict)]
        for variant in variants:
            known = {*own, "checks", *(key for one in variants for key in one if key == "outside")}
            assert {key.removeprefix("more_") for key in variant} <= known, name
        used |= {check for one in (own, *variants) for check in one.get("checks", [])}
    assert used == set(CHECKS)
