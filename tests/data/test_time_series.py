"""Series: every cell accounted for, windows that see no future, a scale that sees no test."""

import gzip
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import torch

from glassformer.data import series_table
from glassformer.data.config import SeriesDataConfig
from glassformer.data.series_table import read_table
from glassformer.data.time_series import PARTS, SeriesFormat, prepare_series, series_batches
from glassformer.errors import ConfigError, DataError

START = datetime(2016, 2, 28, 22)
VALUES = np.random.default_rng(0).normal(size=(60, 2)).round(3)


def text(values: np.ndarray = VALUES, header: str = "date,a,b") -> str:
    lines = [f"{START + timedelta(hours=hour)},{','.join(map(str, row))}" for hour, row in enumerate(values)]
    return "\n".join([header, *lines]) + "\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def write(content: str | bytes = "", name: str = "x.csv") -> str:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else (content or text()).encode())
        return str(tmp_path / name)

    return write


@pytest.fixture
def make(write) -> Callable[..., SeriesDataConfig]:
    def make(**values: object) -> SeriesDataConfig:
        small = {"file": write(), "context": 5, "horizon": 3, "split": [40, 10, 10], "batch_size": 4}
        return SeriesDataConfig.parse({**small, **values})

    return make


def test_a_table_is_read_whole_and_in_the_order_asked_for(write) -> None:
    plain = read_table(write())
    assert plain.columns == ("a", "b")
    assert (plain.values == VALUES).all()
    assert plain.lines.tolist() == list(range(2, 62))
    assert (read_table(write(), columns=["b"]).values == VALUES[:, 1:]).all()
    assert (read_table(write(), columns=["b", "a"]).values == VALUES[:, ::-1]).all()
    packed = write(gzip.compress(b"\xef\xbb\xbf" + text().replace("\n", "\r\n").encode()), "x.csv.gz")
    assert (read_table(packed).values == VALUES).all()


class Name(str):
    """A column name that counts comparisons."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_read_table_looks_up_columns_in_linear_time(write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of comparisons is linear in the number of columns."""
    n = 2_000
    header = [Name(f"column {number}") for number in range(n)]
    lines = [(1, header), (2, [str(number) for number in range(n)])]
    monkeypatch.setattr(series_table, "_csv_lines", lambda *_: iter(lines))
    columns = [f"column {number}" for number in reversed(range(n))]
    for chosen, expected in (([], list(range(n))), (columns, list(range(n))[::-1])):
        Name.compared = 0
        table = read_table("wide.csv", "", list(map(Name, chosen)))
        assert table.values[0].tolist() == expected
        assert Name.compared < 20 * n


def test_series_value_far_from_the_training_rows_is_named(make, write) -> None:
    """1e38 is finite in float32; in standard deviations it is not."""
    values = VALUES[:, :1].repeat(2, axis=1) * [1.0, 1e-9]
    values[55, 1] = 1e38
    with pytest.raises(
        DataError, match=r"far\.csv, line 57, column b: 1e\+38 is 1e\+47 standard deviations from the mean"
    ):
        prepare_series(make(file=write(text(values), "far.csv")))


@pytest.mark.parametrize(
    "dates",
    [
        ["1949-01", "1949-02", "1949-03", "1949-04", "1949-05"],
        ["1", "3", "5", "7", "9"],
        ["2016-03-26T23:00+01:00", "2016-03-27T00:00+01:00", "2016-03-27T01:00+01:00"],
        ["2016-03-27T01:00+01:00", "2016-03-27T03:00+02:00", "2016-03-27T04:00+02:00", "2016-03-27T05:00+02:00"],
        ["2015", "2016", "2017"],
    ],
)
def test_dates_a_step_apart(write, dates: list[str]) -> None:
    table = read_table(write("date,v\n" + "".join(f"{date},1\n" for date in dates)))
    assert table.values.tolist() == [[1.0]] * len(dates)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r"is empty; give a table with a header"),
        ("date,a\n", r"has no line of numbers"),
        ("date\n2016-01-01\n", r"has no column but 'date'"),
        (
            "time,a\n2016-01-01,1\n",
            r"has no column 'date' \(did you mean time[?]\); correct data\.date, or set data\.date=''",
        ),
        ("date,a,a\n2016-01-01,1,2\n", r"column 'a' occurs more than once"),
        (
            "date,a,b\n2016-01-01,1,2\n2016-01-02,1,-1e300\n",
            r"x\.csv, line 3, column b: '-1e300' exceeds float32 \(up to",
        ),
        ("date,a\n2016-01-01,3.5e38\n", r"line 2, column a: '3\.5e38' exceeds float32 \(up to 3\.4e\+38\); fix it, or"),
        ("date,a\n-1e308,1\n1e308,2\n", r"line 2, column date: '-1e308' is not a date"),
        ("date,a\n2016-01-01,1\n\n2016-01-02,x\n", r"line 4, column a: 'x' is not a number; fix it, or name"),
        ("date,a\n2016-01-01,1\n2016-01-02,\n", r"line 3, column a: '' is not a number; .*missing=previous"),
        ("date,a\n2016-01-01,NaN\n", r"line 2, column a: 'NaN' is not a number; .*missing=previous"),
        ("date,a\n2016-01-01,-inf\n", r"line 2, column a: '-inf' is not finite"),
        ("date,a\n2016-01-01,1_0\n", r"line 2, column a: '1_0' is not a number"),
        ("date,a\n2016-01-01,1,2\n", r"line 2: has 3 cells, and the header 2"),
        ("date,a\n01.02.2016,1\n", r"line 2, column date: '01\.02\.2016' is not a date"),
        ("date,a\n2016-01-01,1\n2016-01-02,1\n2016-01-02,1\n", r"line 4: its date is not a step later"),
        ("date,a\n2016-01-03,1\n2016-01-02,1\n2016-01-01,1\n", r"line 3: its date is not a step later"),
        ("date,a\n1,1\n2,1\n3,1\n6,1\n", r"line 5: 2 dates are left out before it; .*missing=previous"),
        ("date,a\n1,1\n2,1\n3,1\n5,1\n", r"line 5: 1 date is left out before it"),
        ('date,a\n1,"1\n', r"line 2: not valid CSV \(unexpected end of data\); close the quotes"),
        (b"date,a\n1,\xff\n", r"not valid UTF-8"),
    ],
)
def test_what_cannot_be_used_is_refused(write, content: str | bytes, said: str) -> None:
    path = write(content) if content else write(b"", "x.csv")
    with pytest.raises(DataError, match=said) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)
    assert path in str(caught.value)


def test_files_that_are_none_are_refused(write, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv: cannot be read \(No such file"):
        read_table(str(tmp_path / "none.csv"))
    with pytest.raises(DataError, match="not a complete gzip file"):
        read_table(write(gzip.compress(text().encode())[:-9], "y.csv.gz"))
    with pytest.raises(
        DataError, match=r"has no column 'c' \(known: a, b, date\); add or rename it, or name others in data\.columns"
    ):
        read_table(write(), columns=["c"])


def test_what_is_missing_is_the_previous_value(write) -> None:
    """Never a later one: a context that ends in a gap would be told what comes."""
    path = write("date,a,b\n1,1,0\n2,2,NA\n3,,\n4,3,6\n7,6,nan\n8,7,6\n")
    table = read_table(path, missing="previous")
    assert table.values[:, 0].tolist() == [1, 2, 2, 3, 3, 3, 6, 7]
    assert table.values[:, 1].tolist() == [0, 0, 0, 6, 6, 6, 6, 6]
    assert table.lines.tolist() == [2, 3, 4, 5, 0, 0, 6, 7]
    assert table.known.T.astype(int).tolist() == [[1, 1, 0, 1, 0, 0, 1, 1], [1, 0, 0, 1, 0, 0, 0, 1]]
    for content, said in (
        ("date,a\n1,x\n", "'x' is not a number"),
        ("date,a\n1,\n2,\n", "column a: has no number at all"),
        ("date,a,b\n1,1,\n2,2,2\n", "line 2, column b: is missing, and no value is before it; fill it in, or begin"),
        ("date,a\n1,1\n2,2\n3,3\n99,4\n", "line 5: 95 dates are left out before it; more are left out than are there"),
    ):
        with pytest.raises(DataError, match=said):
            read_table(write(content), missing="previous")


def test_a_line_to_the_future_is_refused(make) -> None:
    with pytest.raises(ConfigError, match=r"missing='interpolate': a line to the next known .*; set it to previous$"):
        make(missing="interpolate")


def test_what_is_missing_is_no_answer(make, write) -> None:
    """Rows 20 to 29 are missing whole, and one cell of row 52."""
    cells = VALUES.astype(object)
    cells[20:30], cells[52, 1] = "", ""
    series = prepare_series(make(file=write(text(cells), "gaps.csv"), missing="previous"))
    whole = prepare_series(make())
    assert np.allclose(series.format.restore(series.values[20:30]), VALUES[19])
    left_out = set(whole.windows("train")) - set(series.windows("train"))
    assert left_out == set(range(15, 23))  # those whose three rows of future lie within rows 20 to 29
    for part in PARTS:
        for batch in series.ordered(part, 4):
            rows = batch.examples[:, None] + np.arange(5, 8)
            gap = (rows >= 20) & (rows < 30)
            missing = np.stack([gap, gap | (rows == 52)], axis=-1)
            assert (batch.future.isnan().numpy() == missing).all()
            assert batch.context.isfinite().all()
            assert batch.n_targets == (~missing).sum() > 0
    filled = cells.copy()
    filled[20:30], filled[52, 1] = VALUES[19], VALUES[51, 1]
    config = make(file=write(text(filled), "filled.csv"))
    assert series.fingerprint != prepare_series(config).fingerprint


def test_without_a_date_every_line_is_a_step(write) -> None:
    path = write("a,b\n1,2\n3,4\n")
    assert read_table(path, date="").values.tolist() == [[1, 2], [3, 4]]


def test_the_scale_is_that_of_training_rows_alone(make, write) -> None:
    series = prepare_series(make())
    assert series.format.mean == pytest.approx(VALUES[:40].mean(0))
    assert series.format.deviation == pytest.approx(VALUES[:40].std(0))
    assert np.allclose(series.format.restore(series.values), VALUES, atol=1e-6)
    assert SeriesFormat.parse(series.format.model_dump(mode="json")) == series.format
    changed = VALUES.copy()
    changed[40:] = 1e6
    assert prepare_series(make(file=write(text(changed), "y.csv"))).format == series.format
    still = VALUES.copy()
    for value in (7, 0.1):  # the deviation of forty 0.1 is, by rounding, 1e-17
        still[:40, 0] = value
        assert prepare_series(make(file=write(text(still), f"{value}.csv"))).format.deviation[0] == 1.0


def test_windows_are_all_there_is_and_no_more(make) -> None:
    series = prepare_series(make())
    assert [len(series.windows(part)) for part in PARTS] == [40 - 5 - 3 + 1, 10 - 3 + 1, 10 - 3 + 1]
    seen: dict[str, set[int]] = {part: set() for part in PARTS}
    for part in PARTS:
        batches = list(series.ordered(part, 4))
        assert np.concatenate([batch.examples for batch in batches]).tolist() == series.windows(part).tolist()
        for batch in batches:
            for start, context, future in zip(batch.examples, batch.context, batch.future, strict=True):
                assert (context.numpy() == series.values[start : start + 5]).all()
                assert (future.numpy() == series.values[start + 5 : start + 8]).all()
                seen[part] |= set(range(start + 5, start + 8))
    assert seen == {"train": set(range(5, 40)), "validation": set(range(40, 50)), "test": set(range(50, 60))}


@pytest.mark.parametrize(
    ("split", "bounds"),
    [
        ([0.7, 0.1, 0.2], (0, 42, 48, 60)),
        ([30, 10, 10], (0, 30, 40, 50)),
        ([0.5, 0.0, 0.2], (0, 30, 30, 42)),
        ([60, 0, 0], (0, 60, 60, 60)),
    ],
)
def test_parts_are_counts_or_shares(make, split: list[float], bounds: tuple[int, ...]) -> None:
    assert prepare_series(make(split=split)).bounds == bounds


def test_parts_that_cannot_be_are_refused(make) -> None:
    for values, said in (
        ({"split": [0.7, 0.2, 0.2]}, "more than 1 together"),
        ({"split": [40, 0.1, 0.2]}, "mixes counts and shares"),
        ({"split": [0, 1, 1]}, "greater than 0"),
        ({"columns": ["a", "a"]}, "named twice"),
        ({"columns": ["date"]}, "is the date and in columns"),
    ):
        with pytest.raises(ConfigError, match=said):
            make(**values)
    for values, said in (
        ({"split": [50, 10, 10]}, r"has 60 rows, and the split asks for 70; lower data.split=\[50, 10, 10\]"),
        ({"context": 38}, "the 40 rows for train hold no window of 41"),
        ({"split": [40, 2, 10]}, "the 2 rows for validation hold no window of 3"),
    ):
        with pytest.raises(DataError, match=said):
            prepare_series(make(**values))


def test_an_epoch_holds_every_training_window_once(make) -> None:
    series = prepare_series(make())
    batches = series_batches(series, 4, seed=1)
    epochs = [np.concatenate([batches.next().examples for _ in range(len(batches))]) for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(33))
    assert (epochs[0] != epochs[1]).any()
    batch = batches.largest()
    assert (len(batch), batch.source_tokens, batch.n_targets) == (4, 4 * 5 * 2, 4 * 3 * 2)
    assert batch.describe() == "4 windows of 5 + 3 rows × 2 variables"
    assert batch.context.dtype == torch.float32
    assert batch.to("meta").future.device.type == "meta"
    assert batches.padding_share == 0


@pytest.mark.parametrize("stop", [1, 8, 9, 20])
def test_a_restored_stream_goes_on(make, stop: int) -> None:
    stopped, restored = (series_batches(prepare_series(make()), 4, seed=2) for _ in range(2))
    for _ in range(stop):
        stopped.next()
    restored.restore(stopped.state())
    for _ in range(10):
        one, other = stopped.next(), restored.next()
        assert torch.equal(one.context, other.context)
        assert torch.equal(one.future, other.future)
    assert stopped.fingerprint == restored.fingerprint


def test_the_fingerprint_is_that_of_values_and_settings(make, write) -> None:
    changed = VALUES.copy()
    changed[59, 1] += 1
    others = [make(file=write(text(changed), "y.csv")), make(context=6), make(split=[40, 10, 9]), make(columns=["a"])]
    prints = {series_batches(prepare_series(config), 4, 1).fingerprint for config in [make(), *others]}
    prints |= {series_batches(prepare_series(make()), size, seed).fingerprint for size, seed in ((5, 1), (4, 2))}
    assert len(prints) == 7
    assert prepare_series(make(file=write(name="renamed.csv"))).fingerprint == prepare_series(make()).fingerprint
