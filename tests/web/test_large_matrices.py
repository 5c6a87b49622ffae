"""Large tensors on a canvas: raw numbers of a region, exact or pooled, and what the page says of them."""

import struct
from urllib.parse import urlencode

import numpy as np
import pytest
from numpy.typing import NDArray

from glassformer.errors import DataError
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.panels.canvas import LARGEST_SIDE, WHOLE, MatrixRegion, canvas_of
from glassformer.web.explorer.picture import pooled
from glassformer.web.explorer.places import resolve_selection
from glassformer.web.explorer.selection import parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun

LONG = "le " * 300  # 300 words
PLACE = {"source": "the old cat", "mode": "forced", "part": "decoder", "layer": 1, "sublayer": "self_attention"}


@pytest.fixture(scope="module")
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings())


def address(**fields: object) -> str:
    return "?" + urlencode({**PLACE, "target": LONG, "head": 1, "stage": "weights", **fields})


def numbers(session: Session, **fields: object) -> NDArray[np.float32]:
    return np.frombuffer(session.matrix(address(**fields)), "<f4")


def recorded(session: Session, stage: str = "weights") -> NDArray[np.float32]:
    selection, notes = parse_address(address())
    values: NDArray[np.float32] = (
        session.examine(selection, notes).example.trace[f"decoder.layers.1.self_attention.{stage}"][0, 1].numpy()
    )
    assert min(values.shape[:1]) > LARGEST_SIDE
    return values


@pytest.mark.parametrize("stage", ["weights", "masked_scores", "q"])
def test_region_has_the_numbers_of_the_trace(session: Session, stage: str) -> None:
    values = recorded(session, stage)
    found = numbers(session, stage=stage, top=70, left=3, height=40, width=5).reshape(40, 5)
    assert (found == values[70:110, 3:8]).all()


def test_large_region_has_the_largest_number_of_each_block(session: Session) -> None:
    values = recorded(session)
    rows, columns = values.shape
    down, across = MatrixRegion(0, 0, rows, columns).block
    assert (down, across) == (2, 2)
    found = numbers(session, top=0, left=0, height=rows, width=columns).reshape(-(-rows // 2), -(-columns // 2))
    for row in (0, 1, 77, len(found) - 1):
        for column in (0, 5, found.shape[1] - 1):
            assert found[row, column] == values[2 * row : 2 * row + 2, 2 * column : 2 * column + 2].max()


def test_pooling_keeps_the_largest_absolute_value_and_leaves_hidden_scores_out() -> None:
    infinite = float("inf")
    values = np.array([[1.0, -3.0, -infinite, 2.0], [0.5, 2.0, -5.0, -infinite], [-infinite, -infinite, 1, 4]])
    assert pooled(values, 2, 2).tolist() == [[-3.0, -5.0], [-infinite, 4.0]]
    assert np.isnan(pooled(np.array([[1.0, float("nan")]]), 1, 2)).all()
    assert pooled(values, 1, 1) is values


def test_region_beyond_the_edge_is_cut_and_outside_refused(session: Session) -> None:
    values = recorded(session)
    assert len(numbers(session, top=len(values) - 2, left=0, height=50, width=1)) == 2
    with pytest.raises(DataError, match=r"rows from 9,999 and columns from 0 are outside 3\d\d × 3\d\d"):
        numbers(session, top=9999, left=0, height=1, width=1)
    for bad in ("-1", "x", "", "²", "9" * 30):
        with pytest.raises(DataError, match="is no number of rows or columns; give a whole number"):
            numbers(session, top=bad, left=0, height=1, width=1)
    with pytest.raises(DataError, match="this view is no matrix; choose a tensor with rows and columns"):
        session.matrix(f"?{urlencode(PLACE)}&target=chat")


def test_small_tensors_and_vocabularies_have_no_canvas(session: Session) -> None:
    for fields, drawn in (
        ({}, True),
        ({"target": "le chat"}, False),
        ({"part": "output_projection", "stage": "logits", "layer": "", "sublayer": ""}, False),
    ):
        selection, notes = parse_address(address(**fields))
        traced = session.examine(selection, notes)
        one = canvas_of(traced.example, resolve_selection(traced.selection, traced.example, notes))
        assert (one is not None) == drawn
        assert one is None or max(one.rows, one.columns) > WHOLE


def test_page_states_that_the_view_is_pooled(session: Session) -> None:
    html = render_page(session, address()).html
    rows, columns = recorded(session).shape
    assert (
        f"{rows:,} × {columns:,} numbers; each block of 2 × 2 shows its largest one. Zoom in for every number." in html
    )
    assert html.count('<td class="w') == 32 * 32
    assert 'class="overview' not in html


@pytest.mark.parametrize("text", ["chat " * 5000, "le " * 700])
def test_input_beyond_the_limits_is_refused_with_the_limit(session: Session, text: str) -> None:
    page = render_page(session, "?" + urlencode({**PLACE, "target": text}))
    assert page.status == 422
    limit = (
        "this page reads at most 4,000: shorten it" if len(text) > 4000 else "this page shows at most 512: shorten it"
    )
    assert limit in page.html


def test_bytes_are_little_endian(session: Session) -> None:
    value = float(recorded(session)[299, 7])
    assert session.matrix(address(top=299, left=7, height=1, width=1)) == struct.pack("<f", value)
