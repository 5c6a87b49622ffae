"""Comparison and course of attention: known answers, and the picture of a head over a training."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny_run
from explain.small_examples import EXAMPLES
from glassformer.alignment.attention import strongest_links
from glassformer.errors import ConfigError, DataError
from glassformer.explain import ExampleInput
from glassformer.explain.analysis.comparison import (
    attention_matrix,
    compare,
    match_tokens,
    same_vocabulary,
    token_losses,
    variation,
)
from glassformer.explain.analysis.learning import HeadSnapshot, best_head, best_reading, snapshot
from glassformer.explain.figures.learning import LearningCourse, learning_course, learning_svg
from glassformer.explain.matrix import Axis, Matrix
from glassformer.predict.alignment import word_attention
from glassformer.storage.run_folder import resolve, step_of
from tiny_run import TinyRun

TEXT, TARGET = "the old cat sleeps", "le vieux chat dort"
CROSS = "decoder.layers.1.cross_attention"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return tiny_run.made(tmp_path_factory)


@pytest.mark.parametrize(
    ("first", "second", "replaced", "expected"),
    [
        ("a b c", "a b c", True, ((0, 1, 2), (0, 1, 2))),
        ("a b c", "a x c", True, ((0, 1, 2), (0, 1, 2))),
        ("a b c", "a x c", False, ((0, 2), (0, 2))),
        ("a b c", "a x b c", True, ((0, 1, 2), (0, 2, 3))),
        ("a b c d", "a c d", True, ((0, 2, 3), (0, 1, 2))),
        ("a b", "x y z", True, ((), ())),
    ],
)
def test_tokens_are_matched_in_order(first: str, second: str, replaced: bool, expected: Any) -> None:
    assert match_tokens(first.split(), second.split(), replaced) == expected


def matrix(values: Any, rows: str, columns: str) -> Matrix:
    return Matrix(np.array(values, float), Axis.of("query", rows.split()), Axis.of("key", columns.split()))


def test_difference_is_that_of_matched_rows_and_columns() -> None:
    first = matrix([[0.7, 0.1, 0.2], [0.2, 0.3, 0.5]], "p q", "a b c")
    second = matrix([[0.4, 0.6], [0.9, 0.1]], "p r", "a c")
    found = compare(first, second)
    assert np.allclose(found.difference.values, [[-0.3, 0.4], [0.7, -0.4]])
    assert found.difference.rows.texts == ["p", "q / r"]
    assert found.difference.columns.texts == ["a", "c"]
    assert found.unmatched == 1
    assert found.difference.scale.low == -found.difference.scale.high == pytest.approx(-0.7)
    with pytest.raises(DataError, match="only 1 of 3 tokens of the key correspond"):
        compare(first, matrix([[1.0], [1.0]], "p q", "c"))


def test_variation_is_0_for_equal_rows_and_1_for_disjoint_ones() -> None:
    assert variation(np.zeros((3, 4))) == 0
    assert variation(np.array([[1.0, -1.0, 0.0]])) == 1
    assert variation(np.array([[0.5, -0.5], [0.0, 0.0]])) == 0.25


@pytest.mark.parametrize("kind", EXAMPLES)
def test_matrices_and_losses_of_every_kind_of_model(kind: str) -> None:
    example = EXAMPLES[kind]()
    names = [name for name in example.trace if name.endswith("attention.weights")]
    for name in names:
        path = name.removesuffix(".weights")
        values = attention_matrix(example, path, 0)
        assert torch.equal(torch.from_numpy(values.values), example.trace[name][0, 0].double())
        assert not compare(values, values).difference.values.any()
        assert snapshot(example, path).weights.shape == tuple(example.trace[name][0].shape)
    losses = token_losses(example)
    if losses is not None:
        assert len(losses.labels) == len(losses.values)
        rows = example.trace["output_projection.log_probabilities"][0].double()
        expected = [-float(rows[place, token]) for place, token in enumerate(example.predicted_ids)]
        assert losses.values.tolist() == expected[: len(losses.values)]
    assert same_vocabulary(example, example)


def test_snapshot_reads_words_as_alignment_does(tiny: TinyRun) -> None:
    from glassformer.explain import examine

    found = snapshot(examine(tiny.translator, TEXT, TARGET), CROSS)
    expected = word_attention(tiny.translator, TEXT, TARGET)
    assert found.words is not None
    assert np.allclose(found.words[0], expected.naive[1], atol=1e-6)
    assert np.allclose(found.words[1], expected.shifted[1], atol=1e-6)
    assert found.links(1, 1) == set(strongest_links(expected.shifted[1, 1]))


def test_perfect_head_has_weight_1_and_error_rate_0() -> None:
    words = np.zeros((2, 2, 3, 3))
    words[0, 0], words[1, 0] = np.eye(3)[[1, 2, 0]], np.eye(3)
    words[:, 1] = 1 / 3
    weights = np.stack([np.eye(4), np.full((4, 4), 0.25)])
    one = HeadSnapshot(weights, words, 0.5)
    links = frozenset({(0, 0), (1, 1), (2, 2)})
    assert (one.on(links, 0, 1), one.error_rate(links, 0, 1), best_reading(one, links, 0)) == (1.0, 0.0, 1)
    assert one.on(links, 1, 0) == pytest.approx(1 / 3)
    assert one.error_rate(links, 0, 0) == 1.0
    assert best_head([one], links) == 0
    assert one.entropy.tolist() == pytest.approx([0.0, np.log(4)])


def test_picture_names_every_word_and_the_course(tiny: TinyRun) -> None:
    course = learning_course(tiny.run, ExampleInput(TEXT, TARGET), "decoder.1.cross_attention", 1, shifted=True)
    assert course.steps == (40, 80, 120, 160)
    assert (course.source, course.target) == (tuple(TEXT.split()), tuple(TARGET.split()))
    svg = learning_svg(course)
    assert svg.count("<rect") == 1 + 4 * 16
    assert len(re.findall("<circle", svg)) == 4
    for word in (*TEXT.split(), *TARGET.split(), "step 160", "logarithmic"):
        assert word in svg
    rows = word_attention(tiny.translator, TEXT, TARGET).shifted[1, 1]
    at = course.steps.index(step_of(resolve(tiny.run)))
    assert np.allclose(course.matrices[at], rows, atol=1e-6)


def test_panels_are_first_last_and_equal_parts_of_the_way() -> None:
    from glassformer.explain.figures.learning import _panels

    weights = (0.1, 0.1, 0.1, 0.28, 0.3, 0.46, 0.64, 0.82, 0.9, 1.0)
    empty = tuple(np.zeros((1, 1)) for _ in weights)
    course = LearningCourse("", ("a",), ("b",), tuple(range(1, 11)), empty, weights)
    assert _panels(course) == [0, 3, 5, 6, 7, 9]


def test_run_without_two_checkpoints_names_the_settings(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(ConfigError, match=r"train with a small train\.save_every"):
        learning_course(tmp_path, ExampleInput(TEXT), "decoder.1.cross_attention", 0, shifted=False)
