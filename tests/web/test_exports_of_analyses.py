"""Files of the analyses have the numbers of their views, and scripts that give them again."""

import csv
import io
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from xml.dom import minidom

import numpy as np
import pytest
import torch

from glassformer.errors import DataError
from glassformer.explain.analysis.lens import logit_lens
from glassformer.explain.analysis.word_links import example_attention
from glassformer.web.explorer.page import export_panel, render_page
from glassformer.web.explorer.selection import parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun
from web.test_exports import FORCED, PLACE, run_script

OFF = {"edit": "decoder.layers.1.cross_attention.1:zero"}
VIEWS: dict[str, tuple[str, dict[str, Any]]] = {
    "lens": ("stage", {"panel": "lens"}),
    "attribution": ("stage", {"panel": "attribution", "step": 2}),
    "alignment": ("stage", {"panel": "alignment", "reading": "1.0.naive"}),
    "compare": ("stage", {**PLACE, "panel": "compare", "other_checkpoint": "step_00000040"}),
    "training": ("stage", {**PLACE, "panel": "training"}),
    "vectors": ("stage", {"panel": "vectors", "position": 2}),
    "atlas": ("stage", {"panel": "atlas", "n": 2}),
    "tour": ("stage", {"panel": "tour"}),
    "before and after": ("before", {"panel": "lab", **OFF}),
    "patches": ("patches", {"panel": "lab", "donor": "the old dog sleeps"}),
    "number": ("cell", {**PLACE, "stage": "weights", "row": 2, "column": 1}),
    "steps": ("timeline", {}),
}


@pytest.fixture(scope="module")
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings())


def opened(session: Session, fields: dict[str, Any]) -> str:
    """The complete page: checkpoints and sentences come one after the other."""
    query = f"?{urlencode({**FORCED, **fields})}"
    while "data-again" in (page := render_page(session, query).html):
        pass
    while session.jobs.step():
        pass
    return page


def file_of(session: Session, view: str, name: str) -> bytes:
    panel, fields = VIEWS[view]
    opened(session, fields)
    return b"".join(export_panel(session, f"?{urlencode({**FORCED, **fields, 'of': panel})}", name).pieces)


def rows_of(session: Session, view: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file_of(session, view, "csv").decode())))


def values_of(session: Session, view: str) -> list[float]:
    return [float(row["value"]) for row in rows_of(session, view)]


def example_at(session: Session, view: str) -> Any:
    return session.examine(parse_address(f"?{urlencode({**FORCED, **VIEWS[view][1]})}")[0], []).example


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_has_a_picture_and_a_table(session: Session, view: str) -> None:
    panel, fields = VIEWS[view]
    page = opened(session, fields)
    for name in ("svg", "csv", "tex"):
        assert f'"export/{name}?' in page
        assert f"of={panel}" in page
        assert file_of(session, view, name)
    picture = file_of(session, view, "svg")
    assert minidom.parseString(picture).documentElement.tagName == "svg"
    assert b"data-" not in picture
    assert b'href="?' not in picture


def test_lens_and_vectors_are_those_of_the_trace(session: Session) -> None:
    example = example_at(session, "lens")
    lens = logit_lens(example.trace, torch.tensor([example.predicted_ids]))
    expected = [
        float(lens.logits[layer, 0, step].double().softmax(0)[target])
        for layer in range(len(lens.places))
        for step, target in enumerate(example.predicted_ids)
    ]
    assert values_of(session, "lens") == pytest.approx(expected, abs=1e-12)
    rows = rows_of(session, "vectors")
    for name in ("tokens", "positioned"):
        found = [float(row["value"]) for row in rows if row["row_label"] == name]
        assert found == example.trace[f"source_embedding.{name}"][0, 2].double().tolist()


def test_attribution_sums_to_its_numbers(session: Session) -> None:
    example, rows = example_at(session, "attribution"), rows_of(session, "attribution")
    target = example.predicted_ids[2]
    parts = sum(float(row["value"]) for row in rows if not row["of"].endswith("token"))
    assert parts == pytest.approx(float(example.trace["output_projection.logits"][0, 2, target]), abs=1e-4)
    later = [float(row["value"]) for row in rows if row["of"] == "target token"][3:]
    assert later == [0.0] * len(later)
    assert len(later) > 0


def test_alignment_is_the_attention_by_words(session: Session) -> None:
    attention = example_attention(example_at(session, "alignment"))
    assert attention is not None
    assert values_of(session, "alignment") == pytest.approx(attention.naive[1, 0].flatten().tolist(), abs=1e-12)


def test_difference_of_a_comparison_is_that_of_its_sides(session: Session) -> None:
    rows = rows_of(session, "compare")
    panels = dict.fromkeys(row["panel"] for row in rows)
    sides = [np.array([float(row["value"]) for row in rows if row["panel"] == panel]) for panel in panels]
    assert len(sides) == 3
    assert sides[2] == pytest.approx(sides[1] - sides[0], abs=1e-12)
    assert np.abs(sides[2]).max() > 0.01


def test_training_has_the_numbers_of_this_checkpoint(session: Session) -> None:
    rows = rows_of(session, "training")
    query = f"?{urlencode({**FORCED, **VIEWS['training'][1]})}"
    number = int(session.examine(parse_address(query)[0], []).checkpoint.name.removeprefix("step_"))
    [last] = [row for row in rows if row["checkpoint"] == f"step {number:,}"]
    weights = example_at(session, "training").trace["decoder.layers.1.cross_attention.weights"][0, 1].double()
    entropy = float(-(weights * weights.clamp(min=1e-300).log()).sum(-1).mean())
    assert float(last["entropy of a row, nats"]) == pytest.approx(entropy, abs=1e-6)


def test_atlas_has_every_head(session: Session) -> None:
    rows = rows_of(session, "atlas")
    model = example_at(session, "atlas").model
    assert len(rows) == model.config.n_heads * (model.config.n_encoder_layers + 2 * model.config.n_decoder_layers)
    assert all(float(row["entropy"]) >= 0 for row in rows)


def test_before_and_after_are_both_distributions(session: Session) -> None:
    rows = rows_of(session, "before and after")
    for side in ("before", "after"):
        assert sum(float(row["value"]) for row in rows if row["column_label"] == side) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("view", ["lens", "alignment", "attribution", "vectors"])
@pytest.mark.parametrize("edits", [{}, OFF])
def test_script_gives_the_numbers_of_the_view(
    session: Session, tmp_path: Path, view: str, edits: dict[str, str]
) -> None:
    query = urlencode({**FORCED, **VIEWS[view][1], **edits, "of": "stage"})
    values, example = run_script(session, query, tmp_path)
    rows = list(csv.DictReader(io.StringIO(b"".join(export_panel(session, f"?{query}", "csv").pieces).decode())))
    numbers = [float(row["value"]) for row in rows]
    if view == "attribution":
        found = [*values.source.tolist(), *values.target.tolist()]
        assert numbers[: len(found)] == pytest.approx(found, abs=1e-5)
    elif view == "alignment":
        assert numbers == pytest.approx(values.flatten().tolist(), abs=1e-9)
    elif view == "vectors":
        assert numbers == [one for vector in values.values() for one in vector.double().flatten().tolist()]
    else:
        target = torch.tensor(example.predicted_ids)[:, None]
        found = values.logits[-1, 0].double().softmax(-1).gather(-1, target)[:, 0].tolist()
        assert numbers[-len(found) :] == pytest.approx(found, abs=1e-9)


def test_panel_without_its_input_says_what_is_missing(session: Session) -> None:
    for panel in ("before", "patches"):
        with pytest.raises(DataError, match="has no panel"):
            export_panel(session, f"?{urlencode({**FORCED, 'panel': 'lab', 'of': panel})}", "csv")
