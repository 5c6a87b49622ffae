"""What is in a picture, and what comes after the rows of a table."""

from pathlib import Path

import numpy as np
import pytest
import torch

from glassformer.data.series_table import read_table
from glassformer.data.time_series import prepare_series
from glassformer.errors import DataError
from glassformer.predict import Forecaster, ImageClassifier
from glassformer.predict.evaluation import EvaluationFiles, evaluate_images
from glassformer.predict.forecaster import continue_dates
from tiny_run import write_lines
from tiny_tasks import TinyTask, made


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> TinyTask:
    return made(tmp_path_factory, "images")


@pytest.fixture(scope="module")
def classifier(pictures: TinyTask) -> ImageClassifier:
    return ImageClassifier.load(pictures.run)


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> TinyTask:
    return made(tmp_path_factory, "forecasting")


@pytest.fixture(scope="module")
def forecaster(series: TinyTask) -> Forecaster:
    return Forecaster.load(series.run)


def test_pictures_have_their_classes_together_as_alone(classifier: ImageClassifier, pictures: TinyTask) -> None:
    with np.load(pictures.folder / "train.npz", allow_pickle=False) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    together = classifier.classify(list(images))
    right = np.mean([one.label == label for one, label in zip(together, labels, strict=True)])
    files = EvaluationFiles("run", [str(pictures.folder / "train.npz")])
    scores = evaluate_images(lambda: classifier, files).scores
    assert scores["accuracy"] == right > 0.9
    assert scores["images"] == 24
    (alone,) = classifier.classify([images[3, :, :, None]])
    assert alone.probabilities == pytest.approx(together[3].probabilities, abs=1e-5)
    pixels = (torch.from_numpy(images[3]).float() / 255 - classifier.format.mean[0]) / classifier.format.deviation[0]
    expected = classifier.model(pixels[None, None])[0].softmax(-1)
    assert together[3].probabilities["dark"] == pytest.approx(expected[0].item(), abs=1e-5)


def test_a_picture_file_is_classified(classifier: ImageClassifier, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.full((16, 20), 230, np.uint8)).save(tmp_path / "light.png")
    image.fromarray(np.full((8, 8), 20, np.uint8)).save(tmp_path / "dark.png")
    found = classifier.classify([tmp_path / "light.png", str(tmp_path / "dark.png")])
    assert [one.label for one in found] == ["light", "dark"]


@pytest.mark.parametrize("shape", [(8, 9), (8, 8, 3), (4, 8, 8, 1)])
def test_a_picture_of_another_shape_is_refused(classifier: ImageClassifier, shape: tuple[int, ...]) -> None:
    with pytest.raises(
        DataError, match=r"picture 2 is uint8 of shape .*; this model reads bytes .*\(8, 8, 1\): height"
    ):
        classifier.classify([np.zeros((8, 8), np.uint8), np.zeros(shape, np.uint8)])


def test_a_forecast_is_the_model_by_hand_in_own_units(forecaster: Forecaster, series: TinyTask) -> None:
    forecast = forecaster.forecast_file(str(series.folder / "series.csv"))
    lines = (series.folder / "series.csv").read_text().splitlines()
    table = np.array([[float(cell) for cell in line.split(",")[1:]] for line in lines[1:]])
    mean, deviation = np.array(forecaster.format.mean), np.array(forecaster.format.deviation)
    seen = torch.from_numpy(((table[-24:] - mean) / deviation).astype(np.float32))[None]
    expected = forecaster.model(seen)[0].detach().double().numpy() * deviation + mean
    np.testing.assert_allclose(forecast.values, expected, rtol=1e-5)
    header, first, *_, last = forecast.rows()
    assert header == ["date", "low", "high"]
    assert (first[0], last[0]) == ("2024-03-03 00:00", "2024-03-03 05:00")
    assert float(first[2]) == pytest.approx(expected[0, 1], rel=1e-6)


def test_columns_may_stand_in_another_order_beside_others(
    forecaster: Forecaster, series: TinyTask, tmp_path: Path
) -> None:
    rows = [line.split(",") for line in (series.folder / "series.csv").read_text().splitlines()]
    path = write_lines(
        tmp_path / "t.csv", [f"{high},{'x' if n else 'note'},{low}" for n, (_, low, high) in enumerate(rows)]
    )
    forecast = forecaster.forecast_file(path, date="")
    assert forecast.rows()[0] == ["high", "low"]
    np.testing.assert_array_equal(forecast.values, forecaster.forecast_file(str(series.folder / "series.csv")).values)


def test_tables_that_cannot_be_forecast(forecaster: Forecaster, series: TinyTask, tmp_path: Path) -> None:
    header, *rows = (series.folder / "series.csv").read_text().splitlines()
    short = write_lines(tmp_path / "short.csv", [header, *rows[:23]])
    with pytest.raises(DataError, match=r"short.csv: has 23 rows, but the model reads context=24; provide 24 or more"):
        forecaster.forecast_file(short)
    gap = write_lines(tmp_path / "gap.csv", [header, *rows[:30], *rows[31:]])
    with pytest.raises(DataError, match=r"gap.csv, line 32: 1 date is left out before it"):
        forecaster.forecast_file(gap)
    assert forecaster.forecast_file(gap, missing="previous").dates[0] == "2024-03-03 00:00"
    with pytest.raises(DataError, match=r"other.csv: has no column 'high'"):
        forecaster.forecast_file(write_lines(tmp_path / "other.csv", ["date,low", "2024-01-01,1"]))
    with pytest.raises(DataError, match="tables have 1 variables; give the 2 of training, in order: low, high"):
        forecaster.forecast(np.zeros((1, 24, 1)))


@pytest.mark.parametrize("value", ["1e300", "-1e39"])
def test_forecaster_refuses_values_beyond_float32_by_line_and_column(
    forecaster: Forecaster, series: TinyTask, tmp_path: Path, value: str
) -> None:
    header, *rows = (series.folder / "series.csv").read_text().splitlines()
    date, low, _ = rows[-2].split(",")
    path = write_lines(tmp_path / "far.csv", [header, *rows[:-2], f"{date},{low},{value}", rows[-1]])
    for use in (forecaster.forecast_file, forecaster.errors_in_file):
        with pytest.raises(DataError, match=rf"far\.csv, line {len(rows)}, column high: '{value}' exceeds float32"):
            use(path)


@pytest.mark.parametrize("value", [1e300, 1e38, 1e30, -1e25])
def test_forecast_is_finite_or_refused(forecaster: Forecaster, value: float) -> None:
    tables = np.zeros((1, 24, 2))
    tables[0, 5, 1] = value
    try:
        assert np.isfinite(forecaster.forecast(tables)).all()
    except DataError as error:
        assert "the forecast is not a finite number" in str(error)  # noqa: PT017


def test_errors_of_the_test_part_and_of_a_file(forecaster: Forecaster, series: TinyTask, tmp_path: Path) -> None:
    """A file of the rows that the test part's windows see has the same windows."""
    prepared = prepare_series(series.config().data)
    found = forecaster.errors(prepared)
    assert found.windows == len(prepared.windows("test")) == 19
    header, *rows = (series.folder / "series.csv").read_text().splitlines()
    path = write_lines(tmp_path / "test.csv", [header, *rows[96 - 24 :]])
    assert forecaster.errors_in_file(path) == found
    header, *cells = Path(path).read_text().splitlines()
    early, late, _ = cells[30].split(",")[0], *cells[30].split(",")[1:]
    gap = write_lines(tmp_path / "gap.csv", [header, *cells[:30], f"{early},{late},", *cells[31:]])
    with pytest.raises(DataError, match=r"gap.csv, line 32, column high: '' is not a number"):
        forecaster.errors_in_file(gap)
    table = read_table(gap, "date", ["low", "high"], "previous")
    future = np.where(table.known, forecaster.format.standardize(table.values), np.nan)
    pairs = [(table.values[None, n : n + 24], future[n + 24 : n + 30]) for n in range(len(future) - 29)]
    expected = np.nanmean([(forecaster.format.standardize(forecaster.forecast(a)[0]) - b) ** 2 for a, b in pairs])
    assert forecaster.errors_in_file(gap, missing="previous").mse == pytest.approx(expected, rel=1e-4)
    with pytest.raises(DataError, match=r"has 29 rows, but a window has 24 \+ 6; provide 30 or more"):
        forecaster.errors_in_file(write_lines(tmp_path / "t.csv", [header, *rows[:29]]))


@pytest.mark.parametrize(
    ("cells", "after"),
    [
        (["2024-02-27", "2024-02-28"], ("2024-02-29", "2024-03-01")),
        (["2024-11", "2024-12"], ("2025-01", "2025-02")),
        (["2023-07-01", "2023-10-01"], ("2024-01-01", "2024-04-01")),
        (["2024-01-01T22:30", "2024-01-01T23:00"], ("2024-01-01T23:30", "2024-01-02T00:00")),
        (
            ["2024-01-01 00:00:00", "2024-01-01 00:00:10", "2024-01-01 00:00:30"],
            ("2024-01-01 00:00:40", "2024-01-01 00:00:50"),
        ),
        (["2019", "2020"], ("2021", "2022")),
        (["2024-01-31", "2024-02-29", "2024-03-31"], ()),
        (["2024-1-1", "2024-1-2"], ()),
        (["monday", "tuesday"], ()),
        (["2024-01-01"], ()),
    ],
)
def test_dates_go_on_as_they_were(cells: list[str], after: tuple[str, ...]) -> None:
    assert continue_dates(cells, 2) == after
