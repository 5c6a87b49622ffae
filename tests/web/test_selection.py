"""The selection and the address of the page are two forms of one thing."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.web.explorer.selection import KEYS, LARGEST_INDEX, MODES, Selection, parse_address

NUMBERS = st.none() | st.integers(0, LARGEST_INDEX - 1)
SELECTIONS = st.builds(
    Selection,
    run=st.text(),
    checkpoint=st.text(),
    source=st.text(),
    target=st.text(),
    mode=st.sampled_from(MODES),
    part=st.text(),
    layer=NUMBERS,
    sublayer=st.text(),
    head=NUMBERS,
    stage=st.text(),
    row=NUMBERS,
    column=NUMBERS,
    step=NUMBERS,
    interventions=st.lists(st.text(), max_size=4).map(tuple),
    panel=st.text(),
    donor=st.text(),
    grid=st.text(),
    other_run=st.text(),
    other_checkpoint=st.text(),
    other_source=st.text(),
    reading=st.text(),
    gold=st.text(),
    sentences=NUMBERS,
    texts=st.text(),
    order=st.text(),
    side=st.text(),
    position=NUMBERS,
    dimension=NUMBERS,
    merge=NUMBERS,
    beam=NUMBERS,
)


@given(SELECTIONS)
def test_address_and_selection_are_inverse(selection: Selection) -> None:
    assert parse_address(selection.address) == (selection, [])


def test_every_field_has_a_row_in_the_table_of_the_address() -> None:
    assert [field.name for field in fields(Selection)] == list(KEYS)
    assert len({key.name for key in KEYS.values()}) == len(KEYS)


@given(SELECTIONS)
def test_going_up_ends_at_the_model_in_five_steps(selection: Selection) -> None:
    levels, current = [], selection
    while (above := current.above) is not None:
        levels.append(current.level)
        current = above
    assert current.level == "model"
    assert len(levels) <= 6
    assert current.source == selection.source


@pytest.mark.parametrize(
    "query",
    ["layer=x", "layer=-1", "layer=99999999999", "mode=fast", "row=1.5", "head=", "layer=1_0", "step=²", "row=+1"],
)
def test_unreadable_values_are_ignored_with_a_note(query: str) -> None:
    selection, notes = parse_address(f"?source=a&{query}")
    assert selection == Selection(source="a")
    assert len(notes) == 1
    assert query.partition("=")[0] in notes[0]
