"""Public methods reject arguments that are not texts or lists of texts, by argument name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer
from glassformer.errors import ConfigError, DataError, GlassformerError
from glassformer.predict.encoder import Encoder
from random_translator import random_translator
from tiny_tasks import made

LISTS: dict[str, tuple[str, str, Callable[[Any, Any], Any]]] = {
    "translate": ("translation", "texts", lambda used, texts: used.translate(texts)),
    "hypotheses": ("translation", "texts", lambda used, texts: used.hypotheses(texts)),
    "prefixes": ("translation", "prefixes", lambda used, texts: used.hypotheses(["a dog"], texts or "a")),
    "score sources": ("translation", "sources", lambda used, texts: used.score(texts, ["a"])),
    "score targets": ("translation", "targets", lambda used, texts: used.score(["a"], texts)),
    "too_long": ("translation", "texts", lambda used, texts: used.too_long(texts)),
    "generate": ("language", "prompts", lambda used, texts: used.generate(texts)),
    "continuations": ("language", "prompts", lambda used, texts: used.continuations(texts)),
    "score": ("language", "texts", lambda used, texts: used.score(texts)),
    "fill": ("masked", "texts", lambda used, texts: used.fill(texts)),
    "embed": ("masked", "texts", lambda used, texts: used.embed(texts)),
    "too_long for an encoder": ("masked", "texts", lambda used, texts: used.too_long(texts)),
    "classify": ("classification", "texts", lambda used, texts: used.classify(texts)),
    "tag": ("tagging", "sentences", lambda used, texts: used.tag(texts)),
    "tag probabilities": ("tagging", "sentences", lambda used, texts: used.predictions(texts)),
    "classify pictures": ("images", "pictures", lambda used, texts: used.classify(texts)),
}
"""Task, argument name and call for every method that takes a list."""
ONES: dict[str, tuple[str, str, Callable[[Any, Any], Any]]] = {
    "align source": ("translation", "source", lambda used, text: used.align(text, "a")),
    "align target": ("translation", "target", lambda used, text: used.align("a", text)),
    "attention": ("translation", "source", lambda used, text: used.cross_attention(text, "a")),
    "examine": ("translation", "source", lambda used, text: glassformer.examine(used, text)),
    "examine target": ("translation", "target", lambda used, text: glassformer.examine(used, "a", text or 3)),
    "stream": ("language", "prompt", lambda used, text: next(used.stream(text))),
    "with_prompt": ("language", "text", lambda used, text: used.with_prompt(text)),
}


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    def of_task(task: str) -> Any:
        return (
            random_translator(["a dog runs", "the cat sleeps"])
            if task == "translation"
            else glassformer.load(made(tmp_path_factory, task).run)
        )

    return of_task


@pytest.mark.parametrize("method", LISTS)
def test_list_arguments_reject_a_string_or_none(method: str, used: Callable[[str], Any]) -> None:
    task, name, call = LISTS[method]
    with pytest.raises(DataError, match=rf"^{name} is one string, 'a dog'; give a list, as in \["):
        call(used(task), "a dog")
    if method != "prefixes":  # prefixes=None means no prefixes
        with pytest.raises(DataError, match=rf"^{name} is None; give a list"):
            call(used(task), None)
    with pytest.raises(DataError, match=rf"^{name} is of type int; give a list"):
        call(used(task), 7)


@pytest.mark.parametrize("method", [name for name in LISTS if "pictures" not in name])
def test_list_arguments_reject_none_items_by_index(method: str, used: Callable[[str], Any]) -> None:
    task, name, call = LISTS[method]
    for wrong, shown in ((None, "None"), (3, "of type int")):
        with pytest.raises(DataError, match=rf"^{name}\[1\] is {shown}; give a "):
            call(used(task), ["a dog", wrong])


@pytest.mark.parametrize("method", ONES)
def test_text_arguments_reject_none(method: str, used: Callable[[str], Any]) -> None:
    task, name, call = ONES[method]
    with pytest.raises(DataError, match=rf"^{name} is (None|of type int); give one string"):
        call(used(task), None)


def test_pairs_words_and_pictures_are_checked(used: Callable[[str], Any]) -> None:
    with pytest.raises(DataError, match=r"^texts\[0\] is of type tuple; give a string, or a pair of strings"):
        used("classification").classify([("a", None)])
    with pytest.raises(DataError, match=r"^sentences\[0\]\[1\] is None; give a string"):
        used("tagging").tag([["a", None]])
    with pytest.raises(DataError, match=r"^picture 1 is None; give a file"):
        used("images").classify([None])


def test_tuples_and_generators_are_accepted_as_lists(used: Callable[[str], Any]) -> None:
    translator = used("translation")
    texts = ["a dog runs", "the cat"]
    assert translator.translate(tuple(texts)) == translator.translate(texts)
    assert translator.translate(text for text in texts) == translator.translate(texts)
    encoder = used("masked")
    torch.testing.assert_close(encoder.embed(tuple(texts)), encoder.embed(texts))


def test_translate_and_generate_reject_n_best(used: Callable[[str], Any]) -> None:
    translator, generator = used("translation"), used("language")
    with pytest.raises(ConfigError, match=r"^n_best=3: translate returns one text each; use hypotheses\(…, n_best=3\)"):
        translator.translate(["a dog"], n_best=3)
    with pytest.raises(ConfigError, match=r"^n_best=2: generate returns one text each; use continuations"):
        generator.generate(["the"], n_best=2)
    assert len(translator.hypotheses(["a dog"], n_best=3)[0]) == 3
    assert translator.translate(["a dog"], n_best=1) == translator.translate(["a dog"], beam_size=4)


def test_encoder_rejects_a_string_for_a_list(tmp_path_factory: pytest.TempPathFactory) -> None:
    run: Path = made(tmp_path_factory, "classification").run
    with pytest.raises(GlassformerError, match="texts is one string"):
        Encoder.load(run).embed("a dog")
