"""Several runs and their checkpoints at the door: names, menus, and what happens while folders change or vanish."""

import gc
import re
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest

from explain.page_reader import Reader
from glassformer.web.app import create_app
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.runs import explored_runs
from glassformer.web.explorer.selection import Selection
from glassformer.web.explorer.session import MODELS_IN_MEMORY, Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun, run_to_the_end

KEY = "key-of-the-tests"
TEXTS = {"source": "the old cat sleeps", "target": "le vieux chat dort", "mode": "forced"}
FORCED = "?source=the+old+cat+sleeps&target=le+vieux+chat+dort&mode=forced"


@pytest.fixture(scope="module")
def small(tiny: TinyRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the same corpus with one head, another width and another vocabulary."""
    path = tmp_path_factory.mktemp("small") / "small"
    changes = {"model.d_model": 8, "model.n_heads": 1, "text.vocab_size": 120, "train.max_steps": 4}
    run_to_the_end(tiny.config({**changes, "train.save_every": 2, "validation.every": 4}), path)
    return path


@pytest.fixture
def folders(tiny: TinyRun, small: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Copies of both runs, which a test may change."""
    shutil.copytree(tiny.run, tmp_path / "main")
    shutil.copytree(small, tmp_path / "small")
    return tmp_path / "main", tmp_path / "small"


@pytest.fixture
def door(folders: tuple[Path, Path]) -> Any:
    """The application of both runs."""
    testclient = pytest.importorskip("starlette.testclient", reason="httpx is not installed: pip install httpx")
    client = testclient.TestClient(
        create_app(folders[0], WebSettings(token=KEY), [folders[1]]), base_url="http://127.0.0.1"
    )
    client.get("/", params={"token": KEY})
    return client


def view(door: Any, **fields: str) -> Any:
    return door.get("/", params={**TEXTS, **fields}, headers={"x-fragment": "1"})


def chosen(html: str, menu: str) -> str:
    """The selected option of a menu."""
    part = html[html.index(f'<select name="{menu}"') :].partition("</select>")[0]
    found = re.search(r'<option value="([^"]+)" selected', part)
    assert found
    return found[1]


def options(html: str, menu: str) -> list[str]:
    part = html[html.index(f'<select name="{menu}"') :].partition("</select>")[0]
    return re.findall(r'<option value="([^"]+)"', part)


def probabilities(html: str) -> list[str]:
    return re.findall('data-probability="([^"]+)"', html)


def test_runs_of_one_name_are_told_apart_by_the_folders_above(tmp_path: Path) -> None:
    paths = [tmp_path / "a" / "demo", tmp_path / "b" / "demo", tmp_path / "other", tmp_path / "a" / "demo"]
    names = explored_runs(paths)
    assert list(names) == ["a/demo", "b/demo", "other"]
    assert [run.path for run in names.values()] == paths[:3]
    deep = [tmp_path / "x" / "runs" / "demo", tmp_path / "y" / "runs" / "demo", tmp_path / "runs" / "demo"]
    assert len(explored_runs(deep)) == 3


def test_menu_of_runs_leads_to_each_with_its_own_checkpoints(door: Any) -> None:
    first, second = view(door).text, view(door, run="small").text
    assert options(first, "run") == options(second, "run") == ["main", "small"]
    assert (chosen(first, "run"), chosen(second, "run")) == ("main", "small")
    assert len(options(first, "checkpoint")) == 4
    assert options(second, "checkpoint") == ["step_00000002", "step_00000004"]
    assert probabilities(first) != probabilities(second)


def test_single_run_has_no_menu_of_runs(tiny: TinyRun) -> None:
    assert '<select name="run"' not in render_page(Session(tiny.run, WebSettings()), FORCED).html


def test_unknown_run_is_the_most_similar_one_with_a_note(door: Any) -> None:
    answer = view(door, run="smal")
    assert answer.status_code == 200
    assert chosen(answer.text, "run") == "small"
    assert "There is no run 'smal'; this is small." in Reader(answer.text).text
    assert chosen(view(door, run="<script>").text, "run") == "main"


def test_checkpoint_of_another_run_is_the_nearest_one_with_a_note(door: Any) -> None:
    answer = view(door, run="small", checkpoint="step_00000160")
    assert chosen(answer.text, "checkpoint") == "step_00000004"
    assert "There is no checkpoint 'step_00000160'; this is step_00000004." in Reader(answer.text).text


def test_deleted_run_is_a_message_and_the_others_go_on(door: Any, folders: tuple[Path, Path]) -> None:
    assert view(door, run="small").status_code == 200
    shutil.rmtree(folders[1])
    gone = view(door, run="small")
    assert gone.status_code == 422
    assert "there is no such run" in Reader(gone.text).text
    assert "small · deleted" in Reader(gone.text).text
    assert door.get("/checkpoints", params={"run": "small"}).status_code == 422
    assert view(door).status_code == 200
    assert view(door, other_run="small", panel="compare").status_code == 200


def test_run_that_is_deleted_while_it_is_listed_is_a_message(
    door: Any, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert view(door, run="small").status_code == 200

    def vanished(path: Path) -> Any:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "iterdir", vanished)
    assert view(door, run="small").status_code == 422
    assert door.get("/checkpoints", params={"run": "small"}).status_code == 422


def test_checkpoint_that_appears_is_in_the_next_menu(door: Any, folders: tuple[Path, Path]) -> None:
    before = door.get("/checkpoints", params={"run": "small"}).json()
    assert [name for name, _ in before] == ["step_00000002", "step_00000004"]
    saved = folders[1] / "checkpoints"
    shutil.copytree(saved / "step_00000004", saved / "step_00000006")
    after = door.get("/checkpoints", params={"run": "small"}).json()
    assert [label for _, label in after] == ["step 2", "step 4 · used", "step 6"]
    assert options(view(door, run="small").text, "checkpoint") == [name for name, _ in after]
    assert door.get("/checkpoints", params={"run": "nothing"}).json() == door.get("/checkpoints").json()


def test_checkpoint_deleted_under_the_page_is_the_nearest_one(door: Any, folders: tuple[Path, Path]) -> None:
    assert view(door, checkpoint="step_00000040").status_code == 200
    shutil.rmtree(folders[0] / "checkpoints" / "step_00000040")
    answer = view(door, checkpoint="step_00000040")
    assert answer.status_code == 200
    assert chosen(answer.text, "checkpoint") == "step_00000080"
    assert "There is no checkpoint" in answer.text


def test_half_written_newest_checkpoint_is_not_the_default(door: Any, folders: tuple[Path, Path]) -> None:
    saved = folders[1] / "checkpoints"
    (folders[1] / "best.json").unlink()
    shutil.copytree(saved / "step_00000004", saved / "step_00000006")
    (saved / "step_00000006" / "manifest.json").unlink()
    answer = view(door, run="small")
    assert answer.status_code == 200
    assert chosen(answer.text, "checkpoint") == "step_00000004"


def test_truncated_checkpoint_is_a_message_and_the_others_go_on(door: Any, folders: tuple[Path, Path]) -> None:
    weights = folders[0] / "checkpoints" / "step_00000040" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    answer = view(door, checkpoint="step_00000040")
    assert answer.status_code == 422
    assert "model.safetensors" in Reader(answer.text).text
    assert view(door, checkpoint="step_00000080").status_code == 200
    compared = view(door, panel="compare", other_checkpoint="step_00000040")
    assert compared.status_code == 200
    assert "The other side cannot be shown." in compared.text


def test_checkpoint_of_another_size_in_the_same_run_is_shown_as_it_is(door: Any, folders: tuple[Path, Path]) -> None:
    alien = folders[0] / "checkpoints" / "step_00000200"
    shutil.copytree(folders[1] / "checkpoints" / "step_00000004", alien)
    place = {"part": "decoder", "layer": "1", "sublayer": "cross_attention", "head": "1"}
    answer = view(door, checkpoint="step_00000200", **place)
    assert answer.status_code == 200
    assert "head 1 is outside 0 to 0" in answer.text
    assert probabilities(answer.text) == probabilities(view(door, run="small", checkpoint="step_00000004").text)
    compared = view(door, panel="compare", other_checkpoint="step_00000200", **place)
    assert "Head 1 is not among the 1 of decoder layer 1 cross-attention" in Reader(compared.text).text


def test_two_pages_at_different_checkpoints_do_not_disturb_each_other(door: Any) -> None:
    names = ("step_00000040", "step_00000160")
    alone = [probabilities(view(door, checkpoint=name).text) for name in names]
    for _ in range(2):
        for name, expected in zip(names, alone, strict=True):
            answer = view(door, checkpoint=name)
            assert chosen(answer.text, "checkpoint") == name
            assert probabilities(answer.text) == expected
    assert alone[0] != alone[1]


def test_models_in_memory_are_bounded_over_all_runs(tiny: TinyRun, small: Path) -> None:
    session = Session(tiny.run, WebSettings(), [small])
    for run in session.runs.values():
        for one in run.checkpoints():
            assert render_page(session, f"{FORCED}&run={run.name}&checkpoint={one.name}").status == 200
    assert len(session._models) == MODELS_IN_MEMORY
    assert render_page(session, f"{FORCED}&panel=training").status == 200
    assert len(session._models) == MODELS_IN_MEMORY


def test_models_that_are_no_longer_loaded_leave_memory(tiny: TinyRun) -> None:
    session = Session(tiny.run, WebSettings())
    models = []
    for one in session.checkpoints():
        render_page(session, f"?source=the+cat&panel=beam&checkpoint={one.name}")
        models.append(weakref.ref(session.examine(Selection(source="the cat", checkpoint=one.name), []).explored.model))
    gc.collect()
    assert len(models) == 4
    assert [model() is not None for model in models] == [False, True, True, True]
