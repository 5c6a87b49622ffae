"""The page of one sentence: complete, checked, closed to the network, and of a bearable size."""

import base64
import re

import numpy as np
import pytest
import torch

from explain.page_reader import Reader
from glassformer import examine
from glassformer.alignment.attention import one_head, strongest_links
from glassformer.explain.example import Example
from glassformer.explain.formula.formula import trace_back
from glassformer.explain.page import matrices
from glassformer.explain.page.links import alignment_of
from glassformer.explain.page.sheets import palette, stylesheet
from glassformer.explain.page.summary import summary_of
from glassformer.explain.page.wording import direction, length_class
from glassformer.explain.report import report
from glassformer.explain.walkthrough.step import legend
from glassformer.explain.walkthrough.walkthrough import walkthrough
from glassformer.predict.alignment import word_attention
from random_translator import random_translator

LINES = ["a small dog sees the big cat", "der kleine Hund sieht die große Katze"]


@pytest.fixture(scope="module")
def example() -> Example:
    return examine(random_translator(LINES), *LINES)


@pytest.fixture(scope="module")
def page(example: Example) -> str:
    return report(example)


def titled(read: Reader, title: str) -> dict[str, str | None]:
    """The picture of that head."""
    [found] = [head for head in read.having("role", "radio") if head["data-title"] == title]
    return found


def raw(page: str, key: str) -> np.ndarray:
    """The numbers that the page holds under ``key``."""
    found = re.search(rf'id="{key}" data-kind="(\w+)">([^<]+)<', page)
    assert found
    return np.frombuffer(base64.b64decode(found[2]), np.dtype(found[1]).newbyteorder("<"))


def test_the_twelve_steps_are_told_in_order_each_with_its_tables(example: Example, page: str) -> None:
    read = Reader(page)
    sections = [str(attributes["id"]) for tag, attributes in read.tags if tag == "section" and "id" in attributes]
    numbers = [f"step-{number}" for number in range(1, 13)]
    assert sections == ["summary", "model", *numbers[:11], "attention", numbers[11], "alignment"]
    for step in walkthrough(example):
        assert all(text in read.text for text in (step.title, step.what, step.why))
        assert re.sub(r"[_^()]", "", step.formula) in re.sub(r"[_^()]", "", read.text)
        assert all(check.text in read.text for check in step.checks)
        assert all(table.title in read.text or table.title in page for table in step.tables)


def test_every_check_is_counted_and_shown(example: Example, page: str) -> None:
    steps = walkthrough(example)
    assert steps[-1].evaluation is not None
    chain = list(trace_back(example.trace, steps[-1].evaluation))
    formulas = [*(step.evaluation for step in steps[:-1] if step.evaluation is not None), *chain]
    read = Reader(page)
    assert f"All {len(formulas) + sum(len(step.checks) for step in steps)} checks passed" in read.text
    assert all(str(formula.check) in read.text for formula in formulas)
    assert len(read.having("class", "formula")) == len(formulas)
    assert chain[-1].place.name.endswith("one_hot")
    assert not read.having("class", "failed")
    assert "✗" not in read.text


@pytest.mark.parametrize("wrong", [0.25, float("nan")])
def test_a_number_that_was_tampered_with_turns_the_page_red(wrong: float) -> None:
    example = examine(random_translator(LINES), *LINES)
    example.trace["encoder.layers.0.self_attention.weights"][0, 1, 2, 3] = wrong
    read = Reader(report(example))
    assert "checks passed" not in read.text
    assert "of" in read.text
    assert "checks failed" in read.text
    [section] = read.having("id", "step-3")
    assert "failed" in str(section["class"])
    assert len(read.having("class", "wrong")) == 1
    assert "✗" in read.text
    alert = read.having("role", "alert")
    assert len(alert) == 1
    assert "numbers are not what their formula gives" in read.text


def test_markup_in_a_token_is_text() -> None:
    """Nothing that a text or a vocabulary holds becomes an element."""
    evil = [
        "<script>alert(1)</script> <img/src=x/onerror=alert(1)> \"'><b> {{7*7}} </style>",
        "<!-- &amp; ]]> </svg> <i>",
    ]
    page = report(examine(random_translator(evil), *evil))
    read = Reader(page)
    plain = Reader(report(examine(random_translator(LINES), *LINES)))
    assert {tag for tag, _ in read.tags} <= {tag for tag, _ in plain.tags}
    assert not any(name.startswith("on") for _, attributes in read.tags for name in attributes)
    assert "alert" not in "".join(re.findall(r"<script>(.*?)</script>", page, re.DOTALL))
    for text in (*evil, "<script>alert(1)</script>", "{{7*7}}", "</style>", "]]>"):
        assert text in read.text


def test_nothing_leaves_the_file(page: str) -> None:
    urls = set(re.findall(r"\w+=[\"']?\w+://[^\"' >]*", page)) | set(re.findall(r"https?://[^\"' >]*", page))
    assert {url.removeprefix('xmlns="') for url in urls} <= {"http://www.w3.org/2000/svg"}
    asking = r"@import|\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|EventSource|importScripts|\bimport\b"
    assert not re.search(asking, page)
    assert set(re.findall(r"url\(([^)]*)\)", page)) <= {"#tip-1", "#tip-2"}
    read = Reader(page)
    ids = {f"#{attributes['id']}" for _, attributes in read.tags if "id" in attributes}
    for tag, attributes in read.tags:
        assert tag not in ("link", "iframe", "object", "embed", "img", "form", "base")
        assert not {"src", "action", "srcset", "data", "poster"} & set(attributes)
        assert attributes.get("href", "#story") in ids
    [policy] = [attributes["content"] for tag, attributes in read.tags if attributes.get("http-equiv")]
    assert str(policy).startswith("default-src 'none'")


def test_the_same_sentence_gives_the_same_page(page: str) -> None:
    assert report(examine(random_translator(LINES), *LINES)) == page


def test_the_page_holds_every_weight_in_full(example: Example, page: str) -> None:
    read = Reader(page)
    heads = read.having("role", "radio")
    assert len(heads) == 2 * 2 + 2 * 2 * 2 + 2 + 2  # all attention, and steps 3 and 9
    weights = example.trace["decoder.layers.1.cross_attention.weights"][0, 1]
    button = titled(read, "decoder attends to the source, layer 1 · head 1")
    start = int(str(button["data-start"]))
    values = raw(page, str(button["data-numbers"]))[start : start + weights.numel()]
    assert torch.equal(torch.tensor(values.copy()).reshape(weights.shape), weights)


def test_a_page_that_grows_too_large_is_written_in_float16_and_says_so(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrices, "MAX_BYTES", 100)
    page = report(example)
    read = Reader(page)
    assert "written in float16" in read.text
    button = titled(read, "decoder attends to the source, layer 1 · head 0")
    weights = example.trace["decoder.layers.1.cross_attention.weights"][0, 0]
    values = raw(page, str(button["data-numbers"]))[: weights.numel()]
    assert values.dtype == np.float16
    assert np.allclose(values, weights.flatten(), atol=5e-4)


def test_a_sentence_longer_than_the_tables_is_pooled_and_says_so() -> None:
    source = " ".join(LINES[0].split() * 10)
    example = examine(random_translator(LINES), source, LINES[1])
    page = report(example)
    read = Reader(page)
    assert "The source has 71 tokens, more than fit: tables show the first 64" in read.text
    assert "These matrices have 71 × 71 cells" in read.text
    assert "rows no longer sum to 1" in read.text
    weights = example.trace["encoder.layers.0.self_attention.weights"][0, 0]
    button = titled(read, "encoder attends to the source, layer 0 · head 0")
    pooled = raw(page, str(button["data-numbers"]))[: 36 * 36].reshape(36, 36)
    assert pooled[0, 0] == weights[:2, :2].max()
    assert pooled[35, 35] == weights[70, 70]
    assert [label["data-span"] for label in read.having("data-position", "70") if "data-span" in label] == []
    assert any(label.get("data-span") == "2" for label in read.having("data-position", "68"))


def test_of_twenty_words_and_six_layers_the_page_is_under_two_megabytes() -> None:
    words = [f"word{number}" for number in range(20)]
    wide = {"d_model": 512, "n_heads": 8, "n_encoder_layers": 6, "n_decoder_layers": 6, "d_ff": 512}
    example = examine(random_translator([" ".join(words)], **wide), " ".join(words), " ".join(words))
    assert len(report(example).encode()) < 2_000_000


@pytest.mark.parametrize(
    ("values", "held", "lacking"),
    [
        ({}, ["Add & Norm", "E is one matrix", "Positions"], ["pre-norm"]),
        ({"norm_order": "pre"}, ["pre-norm", "Norm", "Add"], ["Add & Norm: step"]),
        ({"positions": "rotary"}, ["they turn the queries and keys"], ["Positions, +"]),
        ({"scale_embeddings": False, "norm_embeddings": True}, ["| Norm, width 16"], ["√16"]),
        ({"norm_embeddings": True}, ["| Norm, width 16", "× √16"], []),
        ({"tie_embeddings": False}, ["a matrix of their own each", "E source", "W"], ["E is one matrix"]),
    ],
)
def test_figure_1_is_drawn_to_the_configuration(values: dict[str, object], held: list[str], lacking: list[str]) -> None:
    page = report(examine(random_translator(LINES, n_encoder_layers=3, **values), *LINES))
    read = Reader(page)
    parts = " | ".join(str(a.get("aria-label")) for tag, a in read.tags if tag == "a") + read.text
    assert "3 ×" in read.text
    assert "2 ×" in read.text
    assert all(text in parts for text in held)
    assert not any(text in parts for text in lacking)
    boxes = read.having("class", "box")
    assert len(boxes) % 2 == 0  # one diagram for wide windows, one for narrow windows
    assert len(boxes) // 2 == {"pre": 21, "post": 14}[str(values.get("norm_order", "post"))] + 2 * (
        (values.get("positions") != "rotary") + ("norm_embeddings" in values)
    )


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_normalized_embedding_is_told_as_it_is(scaled: bool, positions: str) -> None:
    """In steps 1, 2 and 7, whose every number is checked, and in the formula that leads down to the one-hot."""
    example = examine(
        random_translator(LINES, scale_embeddings=scaled, norm_embeddings=True, positions=positions), *LINES
    )
    steps = walkthrough(example)
    assert all(step.passed for step in steps)
    assert ("√d_model" in steps[0].formula) == scaled == (steps[0].tables[-1].name == "source_embedding.scaled")
    assert "LayerNorm(x + PE)" in steps[1].formula if positions == "learned" else "LayerNorm(x)" in steps[1].formula
    assert "normalized" in steps[1].what
    assert steps[1].tables[-1].name == "source_embedding.normed"
    assert steps[6].tables[0].name == "target_embedding.normed"
    assert steps[-1].evaluation is not None
    chain = [formula.place.name for formula in trace_back(example.trace, steps[-1].evaluation)]
    assert chain[-1] == "target_embedding.one_hot" or chain[-1] == "source_embedding.one_hot"


def test_last_step_shows_logits_and_probabilities_of_the_top_five(example: Example) -> None:
    last = walkthrough(example)[-1]
    best = example.trace["output_projection.probabilities"][0, 0].topk(5).indices
    for table, tap in zip(last.tables, ("logits", "probabilities"), strict=True):
        assert list(table.columns.indices) == best.tolist()
        assert table.columns.texts == example.translator.tokenizers.target.tokens(best.tolist())
        expected = example.trace[f"output_projection.{tap}"][0][:, best].double()
        assert torch.equal(torch.from_numpy(table.values), expected)
        assert all(check.passed for check in table.checks())


def test_last_step_fails_if_the_second_best_logit_changes() -> None:
    example = examine(random_translator(LINES), *LINES)
    second = example.trace["output_projection.logits"][0, 0].topk(2).indices[1]
    example.trace["output_projection.logits"][0, 0, second] += 0.25
    assert not walkthrough(example)[-1].passed


def test_summary_names_the_top_words_and_their_source_words(example: Example, page: str) -> None:
    steps, alignment = walkthrough(example), alignment_of(example)
    assert alignment is not None
    summary = summary_of(steps, [False] * len(steps), alignment)
    assert [step.title for step, _ in summary.steps] == [step.title for step in steps]
    values = example.trace["output_projection.probabilities"][0, 0].topk(5).values
    assert [one.probability for one in summary.candidates] == pytest.approx(values.tolist())
    weights = word_attention(example.translator, *LINES).naive
    links = strongest_links(one_head(weights, len(weights) - 1, None))
    source, target = (line.split() for line in LINES)
    pairs = {(target[t], source[s]) for s, t in links}
    assert {(to.text, of.text) for to, of in summary.links} == pairs
    assert "Summary" in Reader(page).text


def test_summary_marks_a_tampered_step_as_failed() -> None:
    example = examine(random_translator(LINES), *LINES)
    example.trace["encoder.layers.0.self_attention.weights"][0, 1, 2, 3] = 0.25
    page = report(example)
    summary = page[page.index('id="summary"') : page.index('id="model"')]
    assert summary.count("checks failed") >= 1
    assert re.search(r'<li class="failed"><a href="#step-3">', summary)


@pytest.mark.parametrize(("length", "name"), [(60, ""), (61, "long"), (161, "longer"), (481, "longest")])
def test_headline_class_follows_its_length(length: int, name: str) -> None:
    assert length_class("x" * length) == name


def test_legend_explains_only_word_boundary_marks_in_use() -> None:
    assert legend(["dog</w>", "￭."]) == (
        "</w> ends a word: a space follows, or the text ends. ￭ joins: there is no space on that side."
    )
    assert legend(["dog", "."]) == ""


def test_the_alignment_is_that_of_the_model(example: Example) -> None:
    alignment = alignment_of(example)
    assert alignment is not None
    attention = word_attention(example.translator, *LINES)
    for layer in alignment.layers:
        for reading, weights in zip(layer.readings, (attention.naive, attention.shifted), strict=True):
            expected = strongest_links(one_head(weights, layer.layer, None))
            assert sorted((link.source, link.target) for link in reading.links) == expected
            assert reading.pharaoh == " ".join(f"{s}-{t}" for s, t in expected)


def test_a_target_without_words_is_told_without_an_alignment(example: Example) -> None:
    assert "so there is nothing to align" in report(examine(example.translator, LINES[0], ""))


TEXTS = {"שלום dog": "rtl", "مرحبا": "rtl", "…1 犬 שלום": "ltr", "": "ltr"}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_set_in_its_own_direction(text: str) -> None:
    assert direction(text) == TEXTS[text]


def test_scripts_of_the_world_stand_as_they_are() -> None:
    lines = ["הכלב רואה חתול", "犬は 猫を 見る 👩‍👧"]
    read = Reader(report(examine(random_translator(lines), *lines)))
    assert all(line in read.text for line in lines)
    assert [a["dir"] for a in read.having("class", "tokens")] == ["rtl", "ltr"]


def test_numbers_are_readable_on_every_shade() -> None:
    """WCAG 2.2, 1.4.3: a contrast of 4.5 at least, on light and on dark."""
    pairs = re.findall(r"\.w\d+\{background:(#\w+);color:(#\w+)\}", stylesheet())
    assert len(pairs) == len(palette())
    for grounds, inks in re.findall(r"background:light-dark\((.*?)\);color:light-dark\((.*?)\)", stylesheet()):
        pairs += list(zip(grounds.split(","), inks.split(","), strict=True))
    assert all(contrast(*pair) >= 4.5 for pair in pairs)
    assert len(pairs) > 60


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(color: str) -> float:
    digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
    parts = [int(digits[start : start + 2], 16) / 255 for start in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
