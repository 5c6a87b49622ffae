"""Display of objects: ``repr``, notebook HTML and ``help``."""

import html.parser
import pydoc
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer
import tiny_run
from glassformer.errors import CheckpointError, DataError
from glassformer.explain.tour import Page, Steps
from glassformer.predict.translator import CrossAttention, Translator
from glassformer.tasks import TASKS
from random_translator import random_translator
from tiny_run import TinyRun
from tiny_tasks import EXAMPLES, made

CODE = "<script>alert(1)</script>"


class Balanced(html.parser.HTMLParser):
    """HTML parser that requires closed elements, and none that loads or runs anything."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(document)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        assert tag not in ("script", "link", "img", "object")
        assert not any(name == "src" or name.startswith("on") for name, _ in attributes)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def translator() -> Translator:
    return random_translator(["a dog runs", "the cat sleeps", f"{CODE} & more"])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return tiny_run.made(tmp_path_factory)


@pytest.mark.parametrize("task", EXAMPLES)
def test_predictor_repr_describes_the_model(task: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = made(tmp_path_factory, task).run
    shown = repr(glassformer.load(run))
    example, kinds = EXAMPLES[task], "|".join(TASKS[task].settings)
    assert re.search(rf"^<{example.predictor}: ({kinds}), [\d,]+ parameters, {example.shown}, .*>$", shown)
    assert str(run) in shown


def test_translator_repr_describes_the_model(tiny: TinyRun, translator: Translator) -> None:
    loaded = repr(Translator.load(tiny.run))
    assert re.search(r"^<Translator: encoder_decoder, [\d,]+ parameters, vocabulary of \d+, ", loaded)
    assert str(tiny.run) in loaded
    assert "ensemble of 2" in repr(Translator.load(tiny.run, tiny.run))
    assert repr(translator).endswith(f"vocabulary of {translator.tokenizers.source.vocab_size}>")


def test_example_and_attention_repr_give_sizes(translator: Translator) -> None:
    example = glassformer.examine(translator, "a dog runs", "the cat")
    tensors = len(example.trace)
    assert repr(example) == f"<Example: 'a dog runs' → 'the cat', 4 source and 3 target tokens, {tensors} tensors>"
    attention = translator.cross_attention("a dog runs", "the cat")
    assert repr(attention) == "<CrossAttention: 2 layers × 2 heads, 3 target × 4 source tokens>"


def test_notebook_html_is_escaped_and_balanced(translator: Translator) -> None:
    example = glassformer.examine(translator, f"{CODE} & more", "the cat")
    attention = translator.cross_attention(f"{CODE} & more", CODE)
    for shown in (translator, example, attention):
        assert CODE not in shown._repr_html_()
        Balanced(shown._repr_html_())
    assert CODE in Balanced(example._repr_html_()).words
    assert CODE in Balanced(attention._repr_html_()).words


def test_notebook_attention_is_the_mean_of_the_last_layer(translator: Translator) -> None:
    attention = translator.cross_attention("a dog runs", "the cat")
    cells = [float(word) for word in Balanced(attention._repr_html_()).words if re.fullmatch(r"\d\.\d\d", word)]
    expected = attention.weights[-1].mean(0)
    torch.testing.assert_close(torch.tensor(cells).reshape(expected.shape), expected, atol=0.0051, rtol=0)


def test_notebook_writes_a_weight_of_exactly_zero_as_such() -> None:
    weights = torch.tensor([[[[0.004, 0.0], [1.0, 0.25]]]])
    html = CrossAttention(["a", "b"], ["c", "d"], weights)._repr_html_()
    assert Balanced(html).words[-6:] == ["c", "0.00", "0", "d", "1.00", "0.25"]


def test_notebook_html_cuts_and_counts_long_texts() -> None:
    words = [f"w{number}" for number in range(90)]
    shown = CrossAttention(words, words[:50], torch.full((1, 1, 50, 90), 1 / 90))._repr_html_()
    assert "10 further rows and 50 further columns" in shown
    assert len(shown) < 300_000
    assert "w39" in shown
    assert "w41" not in shown


def test_example_without_attention_has_notebook_html(translator: Translator) -> None:
    example = glassformer.examine(translator, "a dog", "the cat", keep="memory")
    Balanced(example._repr_html_())


def test_walkthrough_accepts_a_translator_an_example_and_a_run(tiny: TinyRun, tmp_path: Path) -> None:
    translator = Translator.load(tiny.run)
    text = "the dog runs"
    steps = glassformer.walkthrough(translator, text)
    assert isinstance(steps, Steps)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert steps.passed
    assert len(repr(steps).splitlines()) == len(steps)
    assert repr(steps) == repr(glassformer.walkthrough(tiny.run, text))
    assert repr(steps) == repr(glassformer.walkthrough(glassformer.examine(translator, text)))
    page = glassformer.report(tiny.run, text)
    assert isinstance(page, Page)
    assert page.save(tmp_path / "report.html").read_text(encoding="utf-8") == page
    assert "<script" not in page._repr_html_()
    assert "characters" in repr(page)


def test_walkthrough_accepts_a_classification_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    run = made(tmp_path_factory, "classification").run
    assert len(glassformer.walkthrough(run, "the dog runs.")) == 7
    assert len(glassformer.walkthrough(run, "the dog runs.", "the cat sleeps.")) == 7


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda translator: glassformer.walkthrough(translator), "given is None; give one string"),
        (lambda translator: glassformer.walkthrough(translator, "  "), "given is empty"),
        (lambda translator: glassformer.report(translator, "a dog", ["x"]), "second is of type list"),
        (lambda translator: glassformer.report(7), "of=7 is not a run, translator or example"),
        (
            lambda translator: glassformer.walkthrough(glassformer.examine(translator, "a dog", "the"), "a dog"),
            "of is an example, which has its texts",
        ),
    ],
)
def test_walkthrough_and_report_reject_invalid_inputs(
    call: Callable[[Any], Any], message: str, translator: Translator
) -> None:
    with pytest.raises(DataError, match=message):
        call(translator)


def test_walkthrough_rejects_a_missing_run(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="none"):
        glassformer.walkthrough(tmp_path / "none", "a dog")


def test_help_starts_with_a_guide_and_lists_public_names() -> None:
    shown = pydoc.plain(pydoc.render_doc(glassformer))
    guide = shown.split("PACKAGE CONTENTS")[0]
    assert 'glassformer.load("runs/multi30k")' in guide
    assert "hypotheses" in guide
    for name in ("class Translator", "class Generator", "examine(", "walkthrough(", "report(", "load(", "trace("):
        assert name in shown, f"help(glassformer) does not show {name}"


@pytest.mark.parametrize("name", glassformer.__all__)
def test_public_names_have_docstrings(name: str) -> None:
    found = getattr(glassformer, name)
    assert found.__doc__
    assert not found.__doc__.startswith(f"{name}("), "a dataclass without a docstring shows its signature"
