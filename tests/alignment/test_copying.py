"""Unknown tokens of a translation are replaced with the attended source text."""

from typing import Any

import pytest
import torch

from explain.small_models import small_model
from glassformer import ConfigError, Translator
from glassformer.alignment.attention import HeadReading, copies
from glassformer.generate import DecodingConfig
from glassformer.predict.generator import Generator
from glassformer.text import TextConfig, Tokenizer, train_tokenizers
from glassformer.text.errors import LongTextWarning, UnknownWarning
from random_translator import random_translator

LINES = ["the old cat sleeps", "she sees a small tree"]
SOURCE = "the cat Жук sees 🚀 tree"
pytestmark = pytest.mark.filterwarnings("ignore:.* not in the vocabulary")


def vocabulary(kind: str) -> Tokenizer:
    config = TextConfig.parse({"kind": kind, "min_frequency": 1, "vocab_size": 100})
    return train_tokenizers(config, lambda: iter(LINES), lambda: iter(LINES)).source


def attending(tokenizer: Tokenizer, source: str, target: list[int], looks: dict[int, int]) -> dict[int, str]:
    """Copies if decoder step i attends mostly to source token ``looks[i]``."""
    ids = tokenizer.encode(source)
    weights = torch.full((len(target) + 1, len(ids) + 1), 0.01)
    for step, token in looks.items():
        weights[step, token] = 0.9
    naive = copies(weights, (tokenizer, source, ids), (tokenizer, target))
    later = torch.cat([torch.zeros(1, len(ids) + 1), weights[:-1]])
    assert copies(later, (tokenizer, source, ids), (tokenizer, target), shifted=True) == naive
    return naive


def test_copy_replaces_an_unknown_word_with_the_attended_word() -> None:
    tokenizer = vocabulary("word")
    unknown, tree = tokenizer.unknown_id, tokenizer.encode("tree")[0]
    found = attending(tokenizer, SOURCE, [unknown, tree, unknown, unknown], {0: 4, 1: 5, 2: 2, 3: 1})
    assert found == {0: "🚀", 2: "Жук", 3: "cat"}
    assert tokenizer.decode([unknown, tree, unknown, unknown], found) == "🚀 tree Жук cat"
    assert tokenizer.decode([unknown, tree, unknown]) == "tree"


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_copy_replaces_a_run_of_unknown_characters_with_the_attended_run(kind: str) -> None:
    tokenizer = vocabulary(kind)
    source, target = tokenizer.encode(SOURCE), tokenizer.encode("the ЖЖ, tree 🚀🚀"[: None if kind == "char" else -1])
    rocket = max(place for place, id in enumerate(source) if id == tokenizer.unknown_id)
    word = [place for place, id in enumerate(source) if id == tokenizer.unknown_id][:3]
    runs = [place for place, id in enumerate(target) if id == tokenizer.unknown_id]
    looks = {place: rocket if place < runs[0] + 2 else word[1] for place in runs}
    found = attending(tokenizer, SOURCE, target, looks)
    assert found[runs[0]] == "🚀"
    assert found[runs[0] + 1] == ""
    assert found[runs[-1]] in ("Жук", "")
    assert "Жук" in tokenizer.decode(target, found)
    assert tokenizer.decode(target, found).startswith("the 🚀")


def test_copy_drops_unknown_tokens_if_the_source_has_none() -> None:
    tokenizer = vocabulary("bpe")
    assert attending(tokenizer, "the cat", [tokenizer.unknown_id], {0: 0}) == {}
    assert attending(tokenizer, SOURCE, tokenizer.encode("the cat"), {}) == {}


def unknown_translator(**values: Any) -> Translator:
    """A translator that generates only unknown tokens."""
    translator = random_translator(LINES, output_bias=True, **values)
    with torch.no_grad():
        for model in translator.models:
            model.output_projection.bias[translator.tokenizers.target.unknown_id] = 100
    return translator


@pytest.mark.parametrize("reading", [HeadReading(), HeadReading(0, 1, True), HeadReading(-1, 0, False)])
@pytest.mark.parametrize("search", [{"beam_size": 1}, {"beam_size": 3, "n_best": 2}, {"sample": True}])
def test_translator_copies_with_the_head_used_by_align(reading: HeadReading, search: dict[str, Any]) -> None:
    translator = unknown_translator()
    translator.reading = reading
    found = translator.hypotheses([SOURCE], max_length=3, unknown="copy", **search)[0]
    weights = translator.cross_attention(SOURCE, "Ы Ы Ы").weights[reading.layer]
    weights = weights.mean(0) if reading.head is None else weights[reading.head]
    steps = weights[1:] if reading.shifted else weights[:-1]
    expected = [SOURCE.split()[best] for best in steps[:, :-1].argmax(1).tolist()]
    assert found[0].text == " ".join(expected)
    assert found[0].copied == dict(enumerate(expected))


def test_translator_drops_unknown_words_by_default() -> None:
    translator = unknown_translator()
    (plain,) = translator.hypotheses([SOURCE], max_length=3)[0]
    (copied,) = translator.hypotheses([SOURCE], max_length=3, unknown="copy")[0]
    assert plain.text == ""
    assert plain.copied == {}
    assert copied.hypothesis == plain.hypothesis
    assert len(copied.text.split()) == 3
    together = translator.hypotheses(["the cat", SOURCE, "", "a Жук"], max_length=3, unknown="copy")
    assert together[1] == [copied]


def test_copy_leaves_known_tokens_unchanged() -> None:
    translator = random_translator(LINES)
    assert translator.hypotheses(LINES, unknown="copy") == translator.hypotheses(LINES)


def test_recurrent_translator_copies_with_its_attention() -> None:
    pair = random_translator(LINES).tokenizers
    model = small_model("recurrent", vocab_size=pair.source.vocab_size).float()
    translator = Translator([model], pair, DecodingConfig())
    (found,) = translator.hypotheses([SOURCE], ["Ы"], max_length=1, unknown="copy")[0]
    weights = translator.cross_attention(SOURCE, "Ы").weights[0, 0]
    assert found.text == SOURCE.split()[int(weights[0, :-1].argmax())]


def test_translator_copies_in_pieces_and_in_ensembles() -> None:
    translator = unknown_translator()
    with pytest.warns(LongTextWarning):
        (whole,) = translator.hypotheses([f"{SOURCE}. {SOURCE}"], max_source=8, max_length=2, unknown="copy")[0]
    assert whole.text == " ".join(piece.text for piece in whole.pieces)
    tokens, unknown = whole.hypothesis.tokens, translator.tokenizers.target.unknown_id
    assert list(whole.copied) == [place for place, id in enumerate(tokens) if id == unknown]
    assert " ".join(whole.copied.values()) == whole.text
    alone = translator.hypotheses([SOURCE], max_length=3, unknown="copy")
    translator.models *= 2
    twice = translator.hypotheses([SOURCE], max_length=3, unknown="copy")
    assert twice[0][0].text == alone[0][0].text


def test_language_model_refuses_unknown_copy() -> None:
    generator = Generator(None, vocabulary("bpe"), DecodingConfig(), 8)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^decoding: unknown key unknown; known: "):
        generator.configure(unknown="copy")
    with pytest.raises(ConfigError, match=r"^decoding: unknown='mark': input should be 'drop' or 'copy'$"):
        unknown_translator().translate(["a"], unknown="mark")
    with pytest.warns(UnknownWarning):
        unknown_translator().translate([SOURCE], max_length=3, unknown="copy")
