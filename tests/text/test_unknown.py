"""Unknown text is reported by character or by word."""

import warnings

import pytest
from tokenizers import Tokenizer as Pipeline
from tokenizers import models, normalizers, pre_tokenizers

from glassformer.text import TextConfig, Tokenizer, train_tokenizers
from glassformer.text.errors import TextError, UnknownWarning, listed, warn_of_unknown, without_text_warnings
from glassformer.text.pretrained import PretrainedTokenizer

LINES = ["the old cat sleeps", "she sees a small tree", "the cat, the dog."]
TEXTS = [
    "the cat",
    "Привет 🚀",
    "the 🚀, the cat",
    "zoo ​zoo",
    "",
    " \t",
    "<unk> <s>",
    "a￭b 1",
    "e\u0301 é",
    "👩‍👩‍👧 x\ud800",
    "Ünï cöde.",
]


def vocabulary(kind: str, **values: object) -> Tokenizer:
    config = TextConfig.parse({"kind": kind, "min_frequency": 1, "vocab_size": 200, **values})
    return train_tokenizers(config, lambda: iter(LINES), lambda: iter(LINES)).source


def foreign() -> PretrainedTokenizer:
    names = ["<pad>", "<s>", "</s>", "<unk>", "the", "cat", "sleeps", ","]
    pipeline = Pipeline(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    pipeline.normalizer, pipeline.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    import json

    return PretrainedTokenizer({name: i for i, name in enumerate(names[:4])}, json.loads(pipeline.to_str()))


@pytest.mark.parametrize("kind", ["bpe", "char", "word"])
@pytest.mark.parametrize("values", [{}, {"lowercase": True, "normalization": "nfkc"}, {"pre_tokenizer": "whitespace"}])
@pytest.mark.parametrize("text", TEXTS)
def test_unknown_tokens_map_to_their_text(kind: str, values: dict[str, object], text: str) -> None:
    tokenizer = vocabulary(kind, **values)
    unknown = tokenizer.unknown(text)
    assert len(unknown) == tokenizer.encode(text).count(tokenizer.unknown_id)
    assert all(tokenizer.unknown_id in tokenizer.encode(part) for part in unknown)


def test_unknown_lists_characters_or_words_in_order() -> None:
    assert vocabulary("bpe").unknown("the Привет, the 🚀") == [*"Привет", "🚀"]
    assert vocabulary("char").unknown("Пи the 🚀") == ["П", "и", "🚀"]
    assert vocabulary("word").unknown("the Привет, 🚀!") == ["Привет", "🚀", "!"]
    assert vocabulary("bpe").unknown("the cat sleeps") == []


def test_unknown_of_a_foreign_vocabulary_keeps_the_spelling() -> None:
    assert foreign().unknown("The Dog, Привет cat") == ["Dog", "Привет"]
    assert foreign().unknown("the cat") == []


def warned(texts: list[str]) -> UnknownWarning:
    tokenizer = vocabulary("bpe")
    with pytest.warns(UnknownWarning) as caught:
        warn_of_unknown(tokenizer, "text", [(n, t, tokenizer.encode(t)) for n, t in enumerate(texts, start=1)])
    (one,) = caught
    assert isinstance(one.message, UnknownWarning)
    assert one.filename == __file__
    return one.message


def test_unknown_warning_names_the_first_text_and_counts_others() -> None:
    warning = warned(["the cat", "Привет", "🚀", "the", "🚀🚀"])
    assert warning.found == {2: list("Привет"), 3: ["🚀"], 5: ["🚀"]}
    told = "text 2: not in the vocabulary: 'П', 'р', 'и' and 3 more; read as <unk> (and 2 more texts)"
    assert str(warning) == told
    assert str(warned(["🚀"])) == "text 1: not in the vocabulary: '🚀'; read as <unk>"


def test_unknown_warning_merges_the_parts_of_a_text() -> None:
    tokenizer = vocabulary("bpe")
    pair = [(1, text, tokenizer.encode(text)) for text in ("the 🚀", "🚀 ö")]
    with pytest.warns(UnknownWarning) as caught:
        warn_of_unknown(tokenizer, "text", pair)
    assert [warning.message.found for warning in caught] == [{1: ["🚀", "ö"]}]  # type: ignore[union-attr]


def test_unknown_warning_is_silent_for_known_text() -> None:
    tokenizer = vocabulary("bpe")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_unknown(tokenizer, "text", [(1, "the cat", tokenizer.encode("the cat"))])
        with without_text_warnings():
            warn_of_unknown(tokenizer, "text", [(1, "🚀", tokenizer.encode("🚀"))])


def test_listed_escapes_unprintable_and_cuts_long_text() -> None:
    assert listed(["\x1b", "\u200b"]) == r"'\x1b', '\u200b'"
    assert listed(["x" * 1000]) == f"'{'x' * 20}…'"
    assert str(TextError("text", 3, "is empty")) == "text 3 is empty"
