"""A run folder stays usable whatever kills the training, and one process at a time trains in it."""

import json
import re
import warnings
from pathlib import Path

import pytest

from example_checkpoint import save_step, without_root
from glassformer.errors import CheckpointError
from glassformer.storage.run_folder import Best, RunFolder, resolve, step_of


def damage(checkpoint: Path, name: str = "model.safetensors") -> None:
    data = bytearray((checkpoint / name).read_bytes())
    data[-1] ^= 1
    (checkpoint / name).write_bytes(data)


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def names(run: RunFolder) -> list[str]:
    return sorted(item.name for item in run.checkpoints_path.iterdir())


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs" / "first")


# Created and opened


def test_a_run_is_created_once_and_opened_again(run: RunFolder) -> None:
    assert RunFolder.open(run.path).path == run.path
    assert RunFolder.create(run.path).latest() is None  # nothing in it yet
    run.config_path.write_text("seed = 1\n")
    with pytest.raises(CheckpointError, match=r"first: holds a run already; go on with --resume, or .* with --run$"):
        RunFolder.create(run.path)
    assert run.config_path.read_text() == "seed = 1\n"


def test_a_run_with_checkpoints_only_is_not_empty(run: RunFolder) -> None:
    save_step(run, 1)
    with pytest.raises(CheckpointError, match="holds a run already"):
        RunFolder.create(run.path)


def test_missing_run_error_names_the_nearest_run(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"fist: no run is there; did you mean {run.path}\?$"):
        RunFolder.open(run.path.with_name("fist"))
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"file: cannot be created: file exists$"):
        RunFolder.create(tmp_path / "file")


def test_run_without_permission_is_a_one_line_error(tmp_path: Path) -> None:
    with without_root(), pytest.raises(CheckpointError, match=r"^/first: cannot be created: permission denied$"):
        RunFolder.create("/first")


# Checkpoints


def test_the_latest_is_the_one_of_the_highest_step(run: RunFolder) -> None:
    assert run.latest() is None
    steps = [0, 500, 99_999_999, 100_000_000]  # the last needs a ninth digit
    for step in steps:
        path = save_step(run, step)
        assert run.latest() == (path, step, [])
    assert [step_of(path) for path in run.checkpoints()] == steps
    assert names(run)[:2] == ["step_00000000", "step_00000500"]


def test_a_damaged_latest_falls_back_and_says_so(run: RunFolder) -> None:
    first, second, third = (save_step(run, step) for step in (1, 2, 3))
    damage(third)
    (second / "manifest.json").unlink()
    (run.checkpoints_path / ".tmp-step_00000004-1-ab").mkdir()
    latest = run.latest()
    assert latest is not None
    assert (latest.path, latest.step) == (first, 1)
    assert [line.partition(";")[0] for line in latest.warnings] == [
        f"{third}: model.safetensors is damaged: its size or SHA-256 is not the one in manifest.json",
        f"{second}: manifest.json is missing, so the checkpoint is incomplete",
    ]
    damage(first, "config.json")
    with pytest.raises(CheckpointError, match=r"none of its 3 checkpoints is intact; .*step_00000003: model\.saf"):
        run.latest()


def test_damaged_checkpoints_never_count_as_newest_after_a_fallback(run: RunFolder) -> None:
    for step in (1, 2, 4, 6):
        path = save_step(run, step)
    run.set_best(path, "bleu", 30.0)
    damage(path)
    (run.checkpoints_path / "step_00000004" / "manifest.json").unlink()
    assert step_of(run.latest().path) == 2
    save_step(run, 4)  # the resumed run comes by the step that was damaged
    run.keep(last=1)
    assert run.latest() == (run.checkpoints_path / "step_00000004", 4, [])
    assert run.best() is None
    assert [name.rpartition("_")[0] for name in names(run)] == ["abandoned_step_00000006", "step"]


def test_keeping_the_last_spares_the_best(run: RunFolder) -> None:
    for step in range(1, 7):
        path = save_step(run, step)
        if step == 2:
            run.set_best(path, "loss", 1.5)
        run.keep(last=2)
    assert names(run) == ["step_00000002", "step_00000005", "step_00000006"]
    with pytest.raises(CheckpointError, match="last=0: at least the newest"):
        run.keep(last=0)


def test_best_checkpoint_is_the_last_recorded(run: RunFolder) -> None:
    assert run.best() is None
    for step, value in ((1, 12.5), (2, 13.0)):
        path = save_step(run, step)
        run.set_best(path, "bleu", value)
        assert run.best() == Best(path, "bleu", value)
    recorded = json.loads((run.path / "best.json").read_text())
    assert len(recorded.pop("digest")) == 64
    assert recorded == {"checkpoint": "step_00000002", "metric": "bleu", "value": 13.0}
    assert sorted(item.name for item in run.path.iterdir()) == ["best.json", "checkpoints"]


def test_a_best_that_cannot_be_is_refused(run: RunFolder) -> None:
    with pytest.raises(CheckpointError, match="is not a checkpoint of"):
        run.set_best(run.checkpoints_path / "step_00000001", "bleu", 1.0)
    with pytest.raises(CheckpointError, match="bleu=nan: is not finite"):
        run.set_best(save_step(run, 1), "bleu", float("nan"))
    for content, told in [
        ('{"checkpoint": "step_00000009", "metric": "bleu", "value": 1}', "names step_00000009, which does not exist"),
        (
            '{"checkpoint": "../checkpoints", "metric": "bleu", "value": 1}',
            "names ../checkpoints, which does not exist",
        ),
        ('{"checkpoint": 7}', "is damaged"),
        ("{", "is damaged"),
    ]:
        (run.path / "best.json").write_text(content)
        with pytest.raises(CheckpointError, match=f"best.json: {told}"):
            run.best()


def test_best_checkpoint_record_detects_every_flipped_bit(run: RunFolder) -> None:
    for step in (1, 2, 3):
        run.set_best(save_step(run, step), "bleu", 12.5 + step)
    path = run.path / "best.json"
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        path.write_bytes(flipped(whole, bit))
        with pytest.raises(CheckpointError, match=r"best\.json: is damaged; delete it to use the newest checkpoint"):
            run.best()


def test_best_checkpoint_record_without_a_digest_is_read(run: RunFolder) -> None:
    path = save_step(run, 1)
    (run.path / "best.json").write_text('{"checkpoint": "step_00000001", "metric": "bleu", "value": 30.0}\n')
    assert run.best() == Best(path, "bleu", 30.0)


# Metrics


def test_metrics_are_lines_that_resuming_writes_again_identically(run: RunFolder) -> None:
    lines = [{"step": step, "loss": 1 / step, "note": "Größe"} for step in range(1, 11)]
    assert run.metrics() == []
    run.truncate_metrics(0)
    for line in lines:
        run.append_metrics(line)
    whole = run.metrics_path.read_bytes()
    assert whole.count(b"\n") == 10
    run.metrics_path.write_bytes(whole + b'{"step": 11, "lo')
    assert run.metrics() == lines
    run.truncate_metrics(6)
    assert run.metrics() == lines[:6]
    for line in lines[6:]:
        run.append_metrics(line)
    assert run.metrics_path.read_bytes() == whole


def test_truncation_keeps_metrics_without_step_before_the_cut(run: RunFolder) -> None:
    lines = [{"event": "start"}, {"step": 1}, {"event": "validated"}, {"step": 2}, {"event": "stopped"}]
    for line in lines:
        run.append_metrics(line)
    run.truncate_metrics(1)
    assert run.metrics() == lines[:3]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_line_cut_anywhere_is_dropped(run: RunFolder, cut: int) -> None:
    run.append_metrics({"step": 1})
    line = b'{"step": 2}\n'
    run.metrics_path.write_bytes(run.metrics_path.read_bytes() + line[:cut])
    run.truncate_metrics(2)
    run.append_metrics({"step": 3})
    assert [values["step"] for values in run.metrics()] == ([1, 3] if cut < 11 else [1, 2, 3])


def test_metrics_report_every_flipped_bit_that_matters(run: RunFolder) -> None:
    lines = [{"event": "progress", "step": step, "loss": 1 / (step + 2)} for step in range(3)]
    for line in lines:
        run.append_metrics(line)
    whole, effects = run.metrics_path.read_bytes(), 0
    for bit in range(8 * len(whole)):
        run.metrics_path.write_bytes(flipped(whole, bit))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = run.metrics()
        if told:
            assert re.search(
                r"metrics\.jsonl, line [123]: is damaged and skipped; copy the file again", str(told[0].message)
            )
            assert all(line in lines for line in found)
            effects += 1
        else:
            assert found == lines
    assert effects > 6 * len(whole)


def test_metrics_without_checksums_are_read_and_rewritten(run: RunFolder) -> None:
    old = [{"event": "progress", "step": step} for step in (1, 2)]
    run.metrics_path.write_text("".join(json.dumps(line) + "\n" for line in old))
    run.append_metrics({"event": "progress", "step": 3})
    run.truncate_metrics(2)
    assert run.metrics() == old


# What a path means


def test_run_path_resolves_to_best_or_newest_checkpoint(run: RunFolder) -> None:
    with pytest.raises(CheckpointError, match="has saved no checkpoint yet"):
        resolve(run.path)
    first, second = save_step(run, 1), save_step(run, 2)
    assert resolve(run.path) == second
    run.set_best(first, "bleu", 30.0)
    assert resolve(str(run.path)) == first
    assert resolve(second) == second
    (second / "manifest.json").unlink()
    assert resolve(second) == second  # loading says what is wrong with it


def test_unknown_path_error_names_the_nearest_run(run: RunFolder, tmp_path: Path) -> None:
    alone = tmp_path / "nothing beside it" / "folder"
    alone.mkdir(parents=True)
    for path, told in [
        (run.path.with_name("frist"), rf"there is no such run or checkpoint; did you mean {run.path}\?$"),
        (run.path.with_name("zzz"), "there is no such run or checkpoint; known: first"),
        (tmp_path / "no" / "where", "there is no such run or checkpoint; name the folder of"),
        (alone, "is neither a run nor a checkpoint; name the folder of"),
    ]:
        with pytest.raises(CheckpointError, match=f"^{path}: {told}"):
            resolve(path)


def test_nearest_run_is_named_by_its_relative_path(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run.path.parent
    for place, before in [(folder, ""), (folder.parent, f"{folder.name}/")]:
        monkeypatch.chdir(place)
        with pytest.raises(
            CheckpointError, match=rf"^{before}frist: there is no such .*; did you mean {before}first\?$"
        ):
            resolve(f"{before}frist")
