"""Data errors: the message from its parts, and the advice that fits whoever prints it."""

import pickle
from pathlib import Path

import pytest

import glassformer
from glassformer.cli.remedies import REMEDIES, WITHOUT
from glassformer.errors import DataError

SOURCES = "".join(file.read_text() for file in Path(glassformer.__file__).parent.glob("data/*.py"))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "is empty"),
        ({"where": "x.csv"}, "x.csv: is empty"),
        ({"where": "x.csv", "remedy": "fill it in"}, "x.csv: is empty; fill it in"),
        ({"remedy": "fill it in", "setting": "data.missing", "advice": "set it"}, "is empty; fill it in, or set it"),
        ({"setting": "data.missing", "advice": "set it"}, "is empty; set it"),
    ],
)
def test_message_is_the_place_the_fault_and_the_ways_out(parts: dict[str, str], message: str) -> None:
    assert str(DataError("is empty", **parts)) == message


def test_message_for_a_command_has_its_own_advice_or_none() -> None:
    error = DataError("is empty", where="x", remedy="fill it in", setting="data.missing", advice="set it")
    assert error.message({"data.missing": "give --missing"}) == "x: is empty; fill it in, or give --missing"
    assert error.message({"data.date": "give --date"}) == "x: is empty; fill it in"


def test_error_at_an_outer_place_names_both_and_keeps_its_parts() -> None:
    error = DataError("is empty", where="line 3", setting="data.missing", advice="set it")
    assert str(error.at("x.csv")) == "x.csv, line 3: is empty; set it"
    assert error.at("x.csv").message({}) == "x.csv, line 3: is empty"
    assert str(DataError("is empty").at("x.csv")) == "x.csv: is empty"


def test_pickled_error_keeps_message_and_parts() -> None:
    error = DataError("is empty", where="x", setting="data.missing", advice="set it")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert copy.message({}) == "x: is empty"


def test_commands_advise_only_about_settings_that_errors_concern() -> None:
    for advice in (WITHOUT, *REMEDIES.values()):
        for setting in advice:
            assert f'"{setting}"' in SOURCES or setting == "data.date", setting
