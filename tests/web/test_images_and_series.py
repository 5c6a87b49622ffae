"""Pages of runs of images and of series: inputs by number, patches, weights, curves, files, and missing data."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from glassformer.errors import CheckpointError, DataError
from glassformer.text.decimals import decimal
from glassformer.web.explorer import arrays, learning
from glassformer.web.explorer.arrays import ExploredImages, ExploredSeries
from glassformer.web.explorer.learning import training_series
from glassformer.web.explorer.models import load_explored
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.panels.heads import SMALL_WEIGHTS, head_rows
from glassformer.web.explorer.picture import data_address
from glassformer.web.explorer.runs import version_of
from glassformer.web.explorer.selection import Selection, parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings, check_explorable
from tiny_run import TinyRun
from tiny_tasks import TinyTask, made

PATH = "encoder.layers.0.self_attention"
HEAD = {"part": "encoder", "layer": 0, "sublayer": "self_attention"}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> TinyTask:
    return made(tmp_path_factory, "images")


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> TinyTask:
    return made(tmp_path_factory, "forecasting")


@pytest.fixture(autouse=True)
def _whole_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests measure every checkpoint, however slow the machine is."""
    monkeypatch.setattr(learning, "SECONDS", 600.0)


def weights_in(html: str) -> list[str]:
    return re.findall(r'class="patch".*?data-weight="([^"]*)"', html)


@pytest.mark.parametrize("step", [0, 3])
@pytest.mark.parametrize("head", [None, 1])
def test_attention_over_an_image_is_that_of_the_trace(images: TinyTask, step: int, head: int | None) -> None:
    session = Session(images.run, WebSettings())
    selection = Selection(source="2", step=step, **({**HEAD, "head": head} if head is not None else {}))
    example = session.examine(selection, []).example
    html = render_page(session, selection.address).html
    every = example.trace[f"{PATH}.weights"][0].double().numpy()
    row = (every.mean(0) if head is None else every[head])[step]
    assert weights_in(html) == [f"{value:.2f}" for value in row[1:]]
    assert f"its weight: {row[0]:.2f}" in html
    opacities = np.array([float(one) for one in re.findall(r'fill-opacity="([^"]*)"', html)])
    assert opacities == pytest.approx(0.8 * row[1:] / row[1:].max(), abs=1e-3)
    assert html.count('aria-current="step" aria-label="patch') == (step > 0)


def test_image_page_has_its_classes_and_the_true_one(images: TinyTask) -> None:
    session = Session(images.run, WebSettings())
    for number, name in ((0, "dark"), (1, "light")):
        html = render_page(session, f"?source={number}").html
        assert f"class “{name}” in the data" in html
        assert f"validation image {number}" in html
        probabilities = [float(one) for one in re.findall(r'data-probability="([^"]*)"', html)]
        assert len(probabilities) == 2 and sum(probabilities) == pytest.approx(1)
        assert "class</h2>" in html.lower() or ">Class<" in html
        assert "✗" not in html


def test_pixels_are_those_of_the_data(images: TinyTask) -> None:
    session = Session(images.run, WebSettings())
    example = session.examine(Selection(source="5"), []).example
    with np.load(images.folder / "train.npz") as stored:
        assert example.values is not None
        assert example.values[:, :, 0] == pytest.approx(stored["images"][5] / 255, abs=1e-6)


@pytest.mark.parametrize("variable", ["low", "high"])
def test_series_page_has_the_numbers_of_the_model(series: TinyTask, variable: str) -> None:
    session = Session(series.run, WebSettings())
    traced = session.examine(Selection(source="1", target=variable), [])
    html = render_page(session, traced.selection.address).html
    every = traced.example.trace[f"{PATH}.weights"][0].double().numpy().mean(0)
    assert weights_in(html) == [f"{value:.2f}" for value in every[-1]]
    explored = traced.explored
    assert isinstance(explored, ExploredSeries) and traced.example.forecast is not None
    rows = np.loadtxt(series.folder / "series.csv", delimiter=",", skiprows=1, usecols=(1, 2))
    begin, column = 72 - 24 + 1, ["low", "high"].index(variable)
    seen = explored.restore(traced.selection, traced.example.values[:, 0])  # type: ignore[index]
    assert seen == pytest.approx(rows[begin : begin + 24, column], rel=1e-5)
    assert explored.truth(traced.selection) == pytest.approx(rows[begin + 24 : begin + 30, column], rel=1e-5)
    error = np.abs(
        explored.restore(traced.selection, traced.example.forecast[:, 0]) - rows[begin + 24 : begin + 30, column]
    )
    shown = re.search(r"against what followed is ([0-9.]+)\.", html)
    assert shown is not None and float(shown[1]) == pytest.approx(error.mean(), rel=1e-2)
    assert f"<option selected>{variable}</option>" in html


def test_one_variable_is_forecast_as_among_all(series: TinyTask) -> None:
    import glassformer

    forecaster = glassformer.load(series.run)
    session = Session(series.run, WebSettings())
    rows = np.loadtxt(series.folder / "series.csv", delimiter=",", skiprows=1, usecols=(1, 2))
    both = forecaster.forecast(rows[None, 48:72])[0]
    for column, variable in enumerate(("low", "high")):
        traced = session.examine(Selection(source="0", target=variable), [])
        assert isinstance(traced.explored, ExploredSeries) and traced.example.forecast is not None
        forecast = traced.explored.restore(traced.selection, traced.example.forecast[:, 0])
        assert forecast == pytest.approx(both[:, column], rel=1e-4)


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ("?source=99", "image 99 is outside 0 to 23; this is 23."),
        ("?source=a+dog", "&#39;a dog&#39; is no number of an input; this is image 0."),
        ("?source=" + "9" * 40, "is no number of an input"),
        ("?source=3&part=encoder&layer=7", "layer 7 is outside 0 to 0"),
        ("?source=3&step=77", "step 77 is outside 0 to 4"),
    ],
)
def test_address_of_no_image_gives_the_nearest_with_a_note(images: TinyTask, query: str, note: str) -> None:
    page = render_page(Session(images.run, WebSettings()), query)
    assert page.status == 200
    assert note in page.html


def test_unknown_variable_gets_a_note(series: TinyTask) -> None:
    html = render_page(Session(series.run, WebSettings()), "?source=0&target=sun").html
    assert "There is no variable &#39;sun&#39;; this is low." in html


def test_every_view_of_an_image_and_of_a_series_passes_its_checks(images: TinyTask, series: TinyTask) -> None:
    for tiny in (images, series):
        session = Session(tiny.run, WebSettings())
        base = session.examine(Selection(), [])
        from glassformer.web.explorer.places import select

        for name in base.example.trace:
            page = render_page(session, select(base.selection, base.example, name).address)
            assert page.status == 200, name
            assert "✗" not in page.html, name
        for panel in ("tour", "beam", "lab"):
            assert render_page(session, f"{base.selection.address}&panel={panel}").status == 200


def test_files_of_the_command_line_come_first(images: TinyTask, series: TinyTask, tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pillow.fromarray(np.full((8, 8), 200, np.uint8)).save(tmp_path / "bright.png")
    session = Session(images.run, WebSettings(inputs=(tmp_path / "bright.png",)))
    assert "bright.png" in render_page(session, "").html
    assert "validation image 0" in render_page(session, "?source=1").html
    table = "low,high\n" + "".join(f"{step},{2 * step}\n" for step in range(30))
    (tmp_path / "own.csv").write_text(table, encoding="utf-8")
    session = Session(series.run, WebSettings(inputs=(tmp_path / "own.csv",)))
    traced = session.examine(Selection(target="high"), [])
    assert isinstance(traced.explored, ExploredSeries)
    seen = traced.explored.restore(traced.selection, traced.example.values[:, 0])  # type: ignore[index]
    assert seen == pytest.approx(2 * np.arange(6, 30))
    assert traced.explored.truth(traced.selection) is None
    assert "what followed</li>" not in render_page(session, "").html


def test_series_of_checkpoints_is_that_of_the_chosen_window_and_variable(series: TinyTask) -> None:
    session = Session(series.run, WebSettings())
    for number, variable in ((0, "low"), (5, "low"), (5, "high")):
        selection = Selection(source=str(number), target=variable, panel="training", **HEAD, head=0)
        view = training_series(session, session.examine(selection, []))
        for row, one in zip(view.rows, session.checkpoints(), strict=True):
            at = Selection(source=str(number), target=variable, checkpoint=one.name)
            weights = session.examine(at, []).example.trace[f"{PATH}.weights"][0, 0].double()
            entropy = float(-(weights * weights.log()).sum(-1).mean())
            assert float(row.values[view.columns.index("entropy of a row, nats")]) == pytest.approx(entropy, abs=0.006)
            known = session.snapshots.find((*version_of(one.path), str(number), variable, False, PATH))
            assert known is not None and known.snapshot is not None
            assert known.snapshot.weights[0] == pytest.approx(weights.numpy(), abs=1e-9)


def test_series_of_checkpoints_reads_the_file_of_the_command_line(images: TinyTask, tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pillow.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) * 3).save(tmp_path / "own.png")
    session = Session(images.run, WebSettings(inputs=(tmp_path / "own.png",)))
    traced = session.examine(Selection(panel="training"), [])
    training_series(session, traced)
    known = session.snapshots.find((*version_of(traced.checkpoint), "0", "", False, PATH))
    assert known is not None and known.snapshot is not None
    weights = traced.example.trace[f"{PATH}.weights"][0].double().numpy()
    assert known.snapshot.weights == pytest.approx(weights, abs=1e-9)


def test_missing_data_are_an_error_with_the_way_out(images: TinyTask, tmp_path: Path) -> None:
    shutil.copytree(images.run, tmp_path / "run")
    config = (tmp_path / "run" / "config.toml").read_text(encoding="utf-8")
    (tmp_path / "run" / "config.toml").write_text(config.replace("train.npz", "gone.npz"), encoding="utf-8")
    page = render_page(Session(tmp_path / "run", WebSettings()), "")
    assert page.status == 422
    assert "The validation images of this run cannot be read" in page.html
    assert "name a file with --input FILE" in page.html


def test_table_with_other_columns_is_an_error_with_the_way_out(series: TinyTask, tmp_path: Path) -> None:
    shutil.copytree(series.run, tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    table = (series.folder / "series.csv").read_text(encoding="utf-8")
    config.write_text(config.read_text(encoding="utf-8").replace(f"{series.folder}", f"{tmp_path}"), encoding="utf-8")
    for first, second in (("low", "high"), ("high", "low")):
        (tmp_path / "series.csv").write_text(table.replace("low,high", f"{first},{second}"), encoding="utf-8")
        page = render_page(Session(tmp_path / "run", WebSettings()), "")
        assert page.status == (200 if first == "low" else 422)
    assert "the table has other columns than that of the training" in page.html


def test_held_out_images_of_another_shape_are_an_error_with_the_way_out(images: TinyTask, tmp_path: Path) -> None:
    shutil.copytree(images.run, tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    text = config.read_text(encoding="utf-8").replace(f"{images.folder}", f"{tmp_path}")
    text = re.sub(r"validation_share = .*", "validation_share = 0.25", text)
    config.write_text(re.sub(r"\bvalidation = \[[^]]*\]", "validation = []", text), encoding="utf-8")
    with np.load(images.folder / "train.npz") as stored:
        labels, pixels = stored["labels"], stored["images"]
    for size, status in ((8, 200), (4, 422)):
        np.savez(tmp_path / "train.npz", images=pixels[:, :size, :size], labels=labels)
        page = render_page(Session(tmp_path / "run", WebSettings()), "")
        assert page.status == status
    assert "the images have another shape or other classes than those of the training" in page.html


def test_checkpoint_of_a_run_finds_the_data_too(images: TinyTask) -> None:
    folder = next(images.run.glob("checkpoints/step_*"))
    assert render_page(Session(folder, WebSettings()), "?source=1").status == 200


def test_files_are_refused_where_texts_are_read(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    run = made(tmp_path_factory, "language").run
    with pytest.raises(DataError, match="a run of language reads texts, not files; type the text into the page"):
        load_explored(run, (tmp_path,))
    with pytest.raises(DataError, match="reads texts, not files"):
        check_explorable(run, "language", (tmp_path,))
    with pytest.raises(DataError, match="there is no such file; name an image or a table"):
        check_explorable(run, "images", (tmp_path / "nothing.png",))
    with pytest.raises(CheckpointError, match="task='chess' cannot be explored; known: translation"):
        check_explorable(run, "chess")


def test_pages_of_classes_have_no_sliders_of_sampling(images: TinyTask) -> None:
    assert 'class="sliders"' not in render_page(Session(images.run, WebSettings()), "").html


@pytest.mark.parametrize(("task", "reader"), [("images", "read_images"), ("forecasting", "prepare_series")])
def test_checkpoints_of_a_run_read_its_data_once(
    task: str, reader: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made(tmp_path_factory, task).run, tmp_path / "run")
    first = next((tmp_path / "run" / "checkpoints").glob("step_*"))
    shutil.copytree(first, first.with_name("step_00009999"))
    calls = []
    original = getattr(arrays, reader)
    monkeypatch.setattr(arrays, reader, lambda *given: calls.append(given) or original(*given))
    session = Session(tmp_path / "run", WebSettings())
    traced = session.examine(Selection(source="1", checkpoint="step_00009999"), [])
    while training_series(session, traced).missing:
        pass
    other = session.examine(Selection(source="1", checkpoint=first.name), [])
    assert other.explored is not traced.explored
    assert len(calls) == 1


@pytest.mark.parametrize("task", ["images", "forecasting"])
def test_other_data_are_read_anew(task: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = made(tmp_path_factory, task).run
    shutil.copytree(run, tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text(encoding="utf-8").replace("batch_size = 8", "batch_size = 4"), encoding="utf-8")
    first, same, other = (
        load_explored(next((folder / "checkpoints").glob("step_*"))) for folder in (run, run, tmp_path / "run")
    )
    assert isinstance(first, ExploredImages | ExploredSeries)
    assert first.field
    for one, shared in ((same, True), (other, False)):
        assert isinstance(one, ExploredImages | ExploredSeries)
        one.share_data([first])
        assert any(name in vars(one) for name in first.read_once) == shared


def test_course_of_images_has_no_loss_of_a_text_and_its_own_scale(images: TinyTask) -> None:
    session = Session(images.run, WebSettings())
    traced = session.examine(Selection(source="1"), [])
    view = training_series(session, traced)
    assert [chart.title for chart in view.charts] == ["entropy of a row, nats"]
    head = int(view.title.rpartition(" ")[2])
    largest = float(traced.example.trace[f"{PATH}.weights"][0, head].max())
    assert view.axes.endswith(f"colors from 0 to {decimal(largest)}")


def test_pictures_of_small_weights_have_a_stated_scale(images: TinyTask, tiny: TinyRun) -> None:
    for folder, query in ((images.run, "?source=1"), (tiny.run, "?source=the+old+cat+sleeps")):
        traced = Session(folder, WebSettings()).examine(parse_address(query)[0], [])
        for row in head_rows(traced.example, traced.selection):
            path = parse_address(row.address)[0].path
            weights = traced.example.trace[f"{path}.weights"][0].double().numpy()
            small = weights.max() < SMALL_WEIGHTS
            assert (f"colors from 0 to {decimal(float(weights.max()))}" in row.note) == small
            brightest = weights.max() if small else 1.0
            assert row.brightest == brightest
            assert [one.picture for one in row.heads] == [
                data_address(one / brightest, "weights", 64) for one in weights
            ]
