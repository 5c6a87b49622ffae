"""Views of an example: the numbers are the model's, and every file says what it shows."""

import csv
import io
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import glassformer
import tiny_run
from glassformer.errors import ConfigError, DataError
from glassformer.explain import Example, examine
from glassformer.explain.figures.attention import view as view_of
from glassformer.explain.figures.attention import view_names
from glassformer.explain.figures.svg import shade
from glassformer.explain.figures.view import SUFFIXES, View, save_view, view_as_csv, view_as_latex, view_as_svg
from glassformer.explain.matrix import Axis, Label, Matrix, Scale, visible
from glassformer.layers.position import sinusoids
from glassformer.predict.translator import Translator
from glassformer.text.decimals import compact

SOURCE, TARGET = "the old cat doesn't see Straße", "le vieux chat ne voit pas"
CROSS = "decoder.1.cross_attention"
ODD = [
    "<script>alert(1)</script>",
    "שלום",
    "مرحبا",
    "日本語",
    "👩‍👩‍👧",
    "$x^2$ & 50%_#{}~\\",
    "\u202eevil",
    ' "',
    "a" * 300,
]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return tiny_run.made(tmp_path_factory).translator


@pytest.fixture(scope="module")
def example(translator: Translator) -> Example:
    return examine(translator, SOURCE, TARGET)


def odd_view() -> View:
    values = np.linspace(0, 1, len(ODD) ** 2).reshape(len(ODD), len(ODD))
    axes = Axis.of("rows", ODD), Axis.of("columns", ODD)
    return View("odd", "a <b> & 'c'", [Matrix(values, *axes, "<i>", Scale("shade"))])


# Numbers


def test_every_view_that_is_named_can_be_drawn(example: Example) -> None:
    names = view_names(example)
    assert names == [
        "encoder.0.self_attention",
        *(f"decoder.{layer}.{kind}_attention" for layer in (0, 1) for kind in ("self", "cross")),
        *("positions", "mask", "norms", "logit_lens"),
    ]
    for name in names:
        view = view_of(example, name)
        assert view.name == name
        assert view.title
        assert view.row_axis
        assert view.column_axis
        assert view.scale.title
        assert all(np.isfinite(matrix.values).all() for matrix in view.matrices)
        assert all(
            view.scale.low <= matrix.values.min() and matrix.values.max() <= view.scale.high + 1e-6
            for matrix in view.matrices
        )
        ElementTree.fromstring(view_as_svg(view))


def test_attention_is_what_was_recorded_and_says_who_asks(example: Example) -> None:
    weights = example.trace["decoder.layers.1.cross_attention.weights"][0].numpy()
    view = view_of(example, CROSS)
    assert [matrix.title for matrix in view.matrices] == ["head 0", "head 1"]
    assert np.allclose([matrix.values for matrix in view.matrices], weights, atol=0, rtol=0)
    assert (view.matrices[0].rows.texts, view.matrices[0].columns.texts) == (
        example.predicted_tokens,
        example.source_tokens,
    )
    assert (view.row_axis, view.column_axis) == ("target, as predicted (query)", "source (key)")
    assert np.array_equal(view_of(example, CROSS, head=1).matrices[0].values, weights[1])
    assert np.allclose(view_of(example, CROSS, average=True).matrices[0].values, weights.mean(0))
    own = view_of(example, "decoder.0.self_attention").matrices[0]
    assert own.rows.texts == own.columns.texts == example.target_tokens
    assert np.array_equal(own.values, np.tril(own.values))


@pytest.mark.parametrize("name", [CROSS, "decoder.0.self_attention", "encoder.0.self_attention"])
def test_words_are_sums_of_asked_and_means_of_asking_pieces(example: Example, name: str) -> None:
    pieces, words = view_of(example, name, head=0), view_of(example, name, head=0, words=True)
    source = (*SOURCE.split(), "</s>")
    matrix, whole = pieces.matrices[0], words.matrices[0]
    assert len(matrix.columns) > len(whole.columns)
    assert whole.values.sum(1) == pytest.approx(1, abs=1e-6)
    if name != "decoder.0.self_attention":
        assert whole.columns.texts == list(source)
    if name == CROSS:
        assert whole.rows.texts == [*TARGET.split(), "</s>"]
        tokenizers = example.translator.tokenizers
        columns = np.array([*tokenizers.source.word_of(example.source_ids[:-1]), 6])
        rows = np.array([*tokenizers.target.word_of(example.predicted_ids[:-1]), 6])
        for i, j in np.ndindex(7, 7):
            by_hand = matrix.values[rows == i][:, columns == j].sum(1).mean()
            assert whole.values[i, j] == pytest.approx(by_hand, abs=1e-9)


def test_without_special_tokens_nothing_is_scaled_up_and_the_title_says_so(example: Example) -> None:
    whole, less = view_of(example, CROSS, head=0), view_of(example, CROSS, head=0, specials=False)
    assert np.allclose(less.matrices[0].values, whole.matrices[0].values[:-1, :-1])
    assert less.matrices[0].columns.texts == example.source_tokens[:-1]
    assert "special tokens left out, so rows sum to less than 1" in less.title
    both = view_of(example, "decoder.1.self_attention", head=0, words=True, specials=False)
    assert both.matrices[0].rows.texts == both.matrices[0].columns.texts == TARGET.split()


def test_views_of_the_whole_model(example: Example) -> None:
    ids = example.predicted_ids
    mask = view_of(example, "mask").matrices[0]
    assert np.array_equal(mask.values, np.tri(len(ids)))
    assert mask.rows.texts == example.target_tokens
    positions = view_of(example, "positions").matrices[0]
    length = max(len(example.source_ids), len(ids))
    assert np.allclose(positions.values, sinusoids(torch.arange(length).double(), 16), atol=1e-6)
    lens = view_of(example, "logit_lens").matrices[0]
    probabilities = example.trace["output_projection.probabilities"][0]
    assert lens.rows.texts == ["embedding", "layer 0", "layer 1"]
    assert lens.columns.texts == example.predicted_tokens
    assert lens.values[-1] == pytest.approx(probabilities[range(len(ids)), ids].numpy(), abs=1e-6)
    encoder, decoder = view_of(example, "norms").matrices
    assert encoder.values.shape == (2, len(example.source_ids))
    assert decoder.values.shape == (3, len(ids))
    last = example.trace["decoder.layers.1.feed_forward_norm.normed"][0].norm(dim=-1)
    assert decoder.values[-1] == pytest.approx(last.numpy(), rel=1e-6)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_positions_of_other_kinds(translator: Translator, make_model, positions: str) -> None:
    size = translator.tokenizers.source.vocab_size
    model = make_model(positions=positions, vocab_size=size, tie_embeddings=False)
    one = examine(Translator([model], translator.tokenizers, translator.decoding), "the cat", "le chat")
    if positions == "rotary":
        with pytest.raises(ConfigError, match=r"^positions=rotary adds nothing to the embedding: .*rotated_q"):
            view_of(one, "positions")
    else:
        view = view_of(one, "positions")
        assert [matrix.title for matrix in view.matrices] == ["source", "target"]
        assert -view.scale.low == view.scale.high == max(abs(matrix.values).max() for matrix in view.matrices)
    assert view_of(one, "norms").matrices[1].values.shape[0] == 3


# Files


def test_what_looks_like_markup_is_text_in_every_file(tmp_path: Path) -> None:
    view = odd_view()
    svg = view_as_svg(view)
    assert view._repr_html_() == svg
    assert "<script" not in svg
    assert "&lt;script&gt;" in svg
    assert "\u202e" not in svg
    assert "[U+202E]evil" in svg
    texts = [element.text or "" for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]
    assert {"שלום", "مرحبا", "日本語", "👩‍👩‍👧", "a <b> & 'c'", "<i>", Label("a" * 300).short} <= set(texts)
    latex = view_as_latex(view)
    assert r"\texttt{\$x\textasciicircum{}2\$ \& 50\%\_\#\{\}\textasciitilde{}\textbackslash{}}" in latex
    assert not re.search(r"(?<!\\)[%#_&](?=.*\\texttt\{\\textless)", latex.splitlines()[4].split(" & ")[0])
    rows = list(csv.reader(io.StringIO(view_as_csv(view))))
    assert rows[0] == ["panel", "row", "row_label", "column", "column_label", "value"]
    assert [row[4] for row in rows[1 : len(ODD) + 1]] == ODD
    assert [float(row[5]) for row in rows[1:]] == view.matrices[0].values.ravel().tolist()
    for suffix in (".png", ".pdf"):
        save_view(view, tmp_path / f"odd{suffix}")  # a sign that no font has would be a warning, which is an error here


def test_labels_name_the_input_and_the_position_of_their_token(example: Example) -> None:
    """Cross-attention's rows are the tokens that follow those which the decoder reads; a group begins at its first."""

    def places(axis: Axis) -> list[tuple[str, int, int]]:
        return [(label.side, label.position, label.span) for label in axis.labels]

    cross, own = (view_of(example, name).matrices[0] for name in (CROSS, "decoder.0.self_attention"))
    n_source, n_target = len(example.source_ids), len(example.target_ids)
    assert places(cross.columns) == [("source", place, 1) for place in range(n_source)]
    assert places(cross.rows) == [("target", place + 1, 1) for place in range(n_target)]
    assert places(own.rows) == places(own.columns) == [("target", place, 1) for place in range(n_target)]
    pooled = cross.pooled(1, 3).columns
    assert places(pooled)[1] == ("source", 3, 3)
    assert pooled.texts[1] == f"{example.source_tokens[3]}…{example.source_tokens[5]}"
    words = places(view_of(example, CROSS, words=True).matrices[0].columns)
    assert [place for _, place, _ in words] == [sum(span for _, _, span in words[:n]) for n in range(len(words))]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_view_is_the_same_file(example: Example, tmp_path: Path, suffix: str) -> None:
    begins = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<svg ", ".csv": b"panel,", ".tex": b"\\begin{table}"}
    for name in ("a", "b"):
        save_view(view_of(example, CROSS), tmp_path / f"{name}{suffix.upper()}")
    first, second = ((tmp_path / f"{name}{suffix.upper()}").read_bytes() for name in ("a", "b"))
    assert first == second
    assert first.startswith(begins[suffix])


def test_a_picture_has_its_titles_a_color_bar_and_numbers_where_they_have_room(example: Example) -> None:
    one = view_of(example, CROSS, head=0, words=True)
    svg = view_as_svg(one)
    assert 'viewBox="0 0 ' in svg
    assert "prefers-color-scheme: dark" in svg
    for text in (one.title, one.row_axis, one.column_axis, ">attention<", ">0.00<", ">0.50<", ">1.00<"):
        assert text in svg
    written = re.findall(r">(\d\.\d\d)</text>", svg)
    assert len(written) == one.matrices[0].values.size + 3
    assert shade(0.0) in svg and shade(1.0) == "#fee838"
    axes = Axis.of("r", "r"), Axis.of("c", "abcdefghij" * 6)
    many = View("many", "many", [Matrix(np.ones((1, 60)), *axes, scale=Scale("v"))])
    assert len(re.findall(r">\d\.\d\d</text>", view_as_svg(many))) == 3


@pytest.mark.parametrize("suffix", [".svg", ".png", ".tex"])
def test_a_long_sentence_is_pooled_and_the_title_says_so(translator: Translator, tmp_path: Path, suffix: str) -> None:
    one = examine(translator, "the cat " * 75, "le chat", keep="*.weights")
    length = len(one.source_ids)
    view = view_of(one, "encoder.0.self_attention")
    assert view.matrices[0].values.shape == (length, length)
    assert "pooled" not in view.title
    pooled = view.pooled()
    size = -(-length // 64)
    assert f" · {length} × {length} pooled by max, {size} × {size} to a cell" in pooled.title
    assert max(pooled.matrices[0].values.shape) <= 64
    for i, j in ((0, 0), (3, 7)):
        block = view.matrices[0].values[i * size : (i + 1) * size, j * size : (j + 1) * size]
        assert pooled.matrices[0].values[i, j] == block.max()
    assert len(view_as_csv(view).splitlines()) == 1 + 2 * length**2
    assert view_of(one, CROSS, head=0).pooled().matrices[0].rows.texts == one.predicted_tokens
    pooled_file = tmp_path / f"long{suffix}"
    save_view(view, pooled_file)
    if suffix != ".png":
        assert "pooled by max" in pooled_file.read_text(encoding="utf-8")


def test_without_matplotlib_the_way_out_is_told(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "glassformer.explain.figures.matplotlib", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"^\.png files are drawn by matplotlib, .*pip install 'glassformer\[plot\]'"):
        save_view(view_of(example, "mask"), tmp_path / "mask.png")
    save_view(view_of(example, "mask"), tmp_path / "mask.svg")
    assert [file.name for file in tmp_path.iterdir()] == ["mask.svg"]


@pytest.mark.parametrize(
    ("token", "seen"),
    [("a b", "a b"), (" ", "␣"), ("  x ", "␣␣x␣"), ("\n", "[U+000A]"), ("", "∅"), ("\u200f", "[U+200F]"), ("é", "é")],
)
def test_tokens_that_cannot_be_seen_are_shown(token: str, seen: str) -> None:
    assert visible(token) == seen


@pytest.mark.parametrize(
    ("value", "text"), [(-float("inf"), "−∞"), (0.123, "0.12"), (-1.0, "−1.00"), (12.34, "12.3"), (1234.5, "1234")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert compact(value) == text


# What cannot be


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        (
            "decoder.1.cross_atention",
            {},
            r"'decoder\.1\.cross_atention' is no view; did you mean decoder\.1\.cross_att",
        ),
        ("", {}, r"'' is no view; known: decoder\.0\.cross_attention, .*, positions$"),
        ("encoder.0.cross_attention", {}, r"is no view; did you mean decoder\.0\.cross_attention\?"),
        ("decoder.2.cross_attention", {}, r"^layer=2 is outside the decoder; choose from 0 to 1$"),
        ("encoder.1.self_attention", {}, r"^layer=1 is outside the encoder; choose from 0 to 0$"),
        (CROSS, {"head": 2}, rf"^head=2 is outside {CROSS}; choose from 0 to 1$"),
        (CROSS, {"head": -1}, rf"^head=-1 is outside {CROSS}; choose from 0 to 1$"),
        (CROSS, {"head": 0, "average": True}, r"^one head and the average of all exclude each other; leave one out$"),
        ("norms", {"words": True}, r"^norms has neither heads nor words; leave out what goes with attention$"),
    ],
)
def test_views_that_there_are_not(example: Example, name: str, options: dict[str, bool], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        view_of(example, name, **options)


def test_texts_and_files_that_cannot_be(translator: Translator, example: Example, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the sentence is empty"):
        examine(translator, " \t")
    empty = glassformer.examine(translator, "the cat", "")
    assert view_of(empty, CROSS).matrices[0].rows.texts == ["</s>"]
    with pytest.raises(DataError, match="there is nothing to show: every token is left out"):
        view_of(empty, CROSS, specials=False)
    with pytest.raises(ConfigError, match=r"f\.jpg: \.jpg is no kind of figure; known: \.csv \.pdf \.png \.svg \.tex"):
        save_view(view_of(example, CROSS), tmp_path / "f.jpg")
    with pytest.raises(ConfigError, match=r"f: no suffix says what kind of figure it is; end it in one of \.csv "):
        save_view(view_of(example, CROSS), tmp_path / "f")
    assert not list(tmp_path.iterdir())
