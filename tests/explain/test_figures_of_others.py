"""Views of models of one stack: the numbers are the model's, named by what was read."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from explain.small_examples import EXAMPLES
from glassformer import ConfigError
from glassformer.explain.figures.attention import view as view_of
from glassformer.explain.figures.attention import view_names
from glassformer.explain.figures.svg import pixel_colors, reduced
from glassformer.explain.figures.view import save_view, view_as_svg

WHOLE = {
    "gpt": ["positions", "mask", "norms", "logit_lens"],
    "llama": ["positions", "mask", "norms", "logit_lens"],
    "masked": ["positions", "norms", "logit_lens"],
    "vit": ["positions", "norms"],
    "series": ["positions", "norms"],
    "recurrent": [],
}
ATTENTION = {"gpt": "decoder.{}.self_attention", "llama": "decoder.{}.self_attention"}


@pytest.mark.parametrize("name", WHOLE)
def test_every_view_that_is_named_can_be_drawn(name: str) -> None:
    example = EXAMPLES[name]()
    expected = [ATTENTION.get(name, "encoder.{}.self_attention").format(layer) for layer in (0, 1)]
    if name == "vit":
        expected += ["encoder.0.class_attention", "encoder.1.class_attention"]
    if name == "recurrent":
        expected = ["decoder.cross_attention"]
    assert view_names(example) == [*expected, *WHOLE[name]]
    for known in view_names(example):
        if (name, known) == ("llama", "positions"):
            with pytest.raises(ConfigError, match=r"^positions=rotary adds nothing to the embedding"):
                view_of(example, known)
            continue
        view = view_of(example, known)
        assert view.title
        assert all(np.isfinite(matrix.values).all() for matrix in view.matrices)
        ElementTree.fromstring(view_as_svg(view))


def test_attention_is_what_was_recorded_and_named_by_the_text() -> None:
    example = EXAMPLES["gpt"]()
    view = view_of(example, "decoder.1.self_attention", head=2)
    assert np.array_equal(view.matrices[0].values, example.trace["decoder.layers.1.self_attention.weights"][0, 2])
    assert view.matrices[0].rows.texts == view.matrices[0].columns.texts == ["a", "small", "dog", "sees"]
    assert (view.row_axis, view.column_axis) == ("text (query)", "text (key)")
    masked = view_of(EXAMPLES["masked"](), "encoder.0.self_attention", average=True, specials=False)
    assert masked.matrices[0].rows.texts == ["a", "dog", "sees", "the"]
    assert "special tokens left out" in masked.title


def test_the_lens_ends_with_the_probability_of_what_is_predicted() -> None:
    for name in ("gpt", "masked"):
        example = EXAMPLES[name]()
        matrix = view_of(example, "logit_lens").matrices[0]
        ids = example.predicted_ids
        last = example.trace["output_projection.probabilities"][0][range(len(ids)), ids]
        assert matrix.values[-1] == pytest.approx(last.numpy(), abs=1e-9)
        assert len(matrix.rows) == 3


def test_what_the_class_token_looks_at_is_laid_over_the_image(tmp_path: Path) -> None:
    example = EXAMPLES["vit"]()
    view = view_of(example, "encoder.1.class_attention", head=3)
    weights = example.trace["encoder.layers.1.self_attention.weights"][0, 3, 0, 1:]
    assert np.array_equal(view.matrices[0].values, weights.reshape(2, 3))
    assert view.matrices[0].picture is not None
    assert view.matrices[0].picture.shape == (4, 6, 3)
    whole = view_as_svg(view)
    assert whole.count('fill-opacity="0.45"') >= 20
    save_view(view, tmp_path / "class.png")
    assert (tmp_path / "class.png").read_bytes().startswith(b"\x89PNG")
    assert len(view_of(example, "encoder.1.class_attention").matrices) == 4
    without = view_of(example, "encoder.0.self_attention", head=0, specials=False)
    assert without.matrices[0].rows.texts == ["0,0", "0,1", "0,2", "1,0", "1,1", "1,2"]
    with pytest.raises(ConfigError, match="what stands here is no text and has no words; leave words out"):
        view_of(example, "encoder.0.self_attention", words=True)


def test_large_images_are_shown_smaller_and_gray_ones_as_colors() -> None:
    large = np.zeros((130, 65, 1))
    large[:3, :2] = 1.0
    small = reduced(large)
    assert small.shape == (44, 33, 3)
    assert small[0, 0].tolist() == [1.0, 1.0, 1.0]
    assert small[1].sum() == 0
    assert pixel_colors(np.array([[[0.0, 0.5, 1.0]]]))[0][0] == "#0084ff"
