"""A checkpoint gives back what was saved, and a save that fails loses nothing."""

import hashlib
import json
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from example_checkpoint import CONFIG, FILES, TOKENIZER, refusal, save, training, weights, without_root
from glassformer.errors import CheckpointError
from glassformer.storage import checkpoint as module
from glassformer.storage.atomic import clear_leftovers
from glassformer.storage.checkpoint import TrainingState, average, fingerprint, load_checkpoint, verify


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("pristine") / "checkpoint")


# Saved and loaded


def test_checkpoint_is_loaded_bit_for_bit(pristine: Path) -> None:
    loaded = load_checkpoint(pristine, training=True)
    assert loaded.path == pristine
    assert loaded.config == CONFIG
    assert loaded.tokenizer == TOKENIZER
    assert loaded.weights.keys() == weights().keys()
    for name, w in weights().items():
        assert loaded.weights[name].dtype == w.dtype
        assert torch.equal(loaded.weights[name], w)
    assert loaded.training is not None
    assert loaded.training.values == training().values
    assert fingerprint(loaded.training.tensors) == fingerprint(training().tensors)


def test_the_folder_holds_exactly_the_documented_files_and_no_pickle(pristine: Path) -> None:
    assert sorted(item.relative_to(pristine).as_posix() for item in pristine.rglob("*") if item.is_file()) == FILES
    assert [item.name for item in pristine.parent.iterdir()] == ["checkpoint"]
    assert verify(pristine) == [name for name in FILES if name != "manifest.json"]


def test_manifest_has_size_and_sha256_of_each_file(pristine: Path) -> None:
    content = json.loads((pristine / "manifest.json").read_text())
    for name, entry in content["files"].items():
        data = (pristine / name).read_bytes()
        assert entry == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_weights_have_the_permissions_of_the_configuration(pristine: Path) -> None:
    assert len({(pristine / name).stat().st_mode for name in FILES}) == 1


def test_training_state_is_read_on_request_only(pristine: Path, tmp_path: Path) -> None:
    assert load_checkpoint(pristine).training is None
    bare = save(tmp_path / "bare", training=None)
    assert not (bare / "training_state").exists()
    assert load_checkpoint(bare).training is None
    assert "has no training_state, so it can be used but not resumed" in refusal(bare, training=True)


def test_tokenizer_in_bytes_is_written_unchanged(tmp_path: Path) -> None:
    path = save(tmp_path / "c", tokenizer=b'{"a":\t1}')
    assert (path / "tokenizer.json").read_bytes() == b'{"a":\t1}'
    assert load_checkpoint(path).tokenizer == {"a": 1}


@pytest.mark.parametrize("kind", ["transposed", "slice", "expanded", "parameter"])
def test_views_and_parameters_are_saved_by_value(tmp_path: Path, kind: str) -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    view = {
        "transposed": whole.t(),
        "slice": whole[1:3],
        "expanded": torch.ones(1).expand(5),
        "parameter": torch.nn.Parameter(whole),
    }[kind]
    path = save(tmp_path / "c", weights={"view": view, "neighbor": whole[2:] if kind == "slice" else torch.zeros(2)})
    assert torch.equal(load_checkpoint(path).weights["view"], view)
    assert (path / "model.safetensors").stat().st_size < 24 * 4 + 250


@pytest.mark.parametrize("tie", ["itself", "flat"])
def test_one_tensor_under_two_names_is_refused(tmp_path: Path, tie: str) -> None:
    table = torch.zeros(3, 2)
    other = table if tie == "itself" else table.view(-1)
    with pytest.raises(CheckpointError, match=r"^output and embedding are one tensor in memory"):
        save(tmp_path / "c", weights={"embedding": table, "output": other})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"optimizer": {"state": [{0: "x"}]}}, "the key 0 is not text"),
        ({None: 1}, "the key None is not text"),
        ({"step": torch.tensor(1)}, "cannot be written as JSON"),
        ({"name": "\ud800"}, "cannot be written as JSON"),
    ],
)
def test_values_that_json_would_change_are_refused(tmp_path: Path, values: dict[Any, Any], told: str) -> None:
    with pytest.raises(CheckpointError, match=f"^training_state/state.json: {told}"):
        save(tmp_path / "c", training=TrainingState(values))
    assert list(tmp_path.iterdir()) == []


# Saving that fails


def test_an_existing_target_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = save(tmp_path / "c", seed=1)
    with pytest.raises(CheckpointError, match=r"c: exists already; name a new folder$"):
        save(path, seed=2)
    assert fingerprint(load_checkpoint(path).weights) == fingerprint(weights(1))


def test_replacing_puts_the_new_one_in_place_of_the_old(tmp_path: Path) -> None:
    path = save(tmp_path / "c", seed=1)
    save(path, seed=2, replace=True, training=None)
    assert fingerprint(load_checkpoint(path).weights) == fingerprint(weights(2))
    assert [item.name for item in tmp_path.iterdir()] == ["c"]


def test_only_a_checkpoint_is_ever_replaced(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match="is no checkpoint, so it is not replaced"):
        save(tmp_path / "home", replace=True)
    assert (tmp_path / "home" / "thesis.tex").read_text() == "years of work"


def fsyncs_of_a_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    counted: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", counted.append)
        save(tmp_path / "counted")
    shutil.rmtree(tmp_path / "counted")
    return len(counted)


@pytest.mark.parametrize("replace", [False, True])
def test_full_disk_at_any_flush_preserves_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: bool
) -> None:
    total = fsyncs_of_a_save(tmp_path, monkeypatch)
    assert total >= len(FILES) + 3  # every file, both folders, the parent
    old = save(tmp_path / "old", seed=1)
    for failing in range(total):
        calls = iter(range(total))

        def full(descriptor: int, calls: Iterator[int] = calls, failing: int = failing) -> None:
            if next(calls) == failing:
                raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(CheckpointError, match="cannot be saved: the disk is full; free some space"):
                save(old if replace else tmp_path / "new", seed=2, replace=replace)
        assert [item.name for item in tmp_path.iterdir()] == ["old"]
        assert fingerprint(load_checkpoint(old, training=True).weights) == fingerprint(weights(1))


def test_short_write_in_any_file_preserves_the_checkpoint(tmp_path: Path, pristine: Path) -> None:
    """The limit on the size of a file stands in for the disk's end: the kernel itself fails the write."""
    old = save(tmp_path / "old", seed=1)
    sizes = sorted({(pristine / name).stat().st_size for name in FILES})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in [0, *(size - 1 for size in sizes)]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(CheckpointError, match=r"new: cannot be saved: file too large$"):
                save(tmp_path / "new")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert [item.name for item in tmp_path.iterdir()] == ["old"]
    assert fingerprint(load_checkpoint(old).weights) == fingerprint(weights(1))


def test_interrupted_save_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "save_file", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


def test_a_replacement_killed_between_its_two_renames_is_undone(tmp_path: Path) -> None:
    path = save(tmp_path / "c", seed=1)
    path.rename(tmp_path / ".old-c")
    save(tmp_path / ".tmp-c-1-x", seed=2)
    clear_leftovers(tmp_path)
    assert [item.name for item in tmp_path.iterdir()] == ["c"]
    assert fingerprint(load_checkpoint(path).weights) == fingerprint(weights(1))


def test_the_next_save_also_undoes_a_killed_replacement(tmp_path: Path) -> None:
    path = save(tmp_path / "c", seed=1)
    path.rename(tmp_path / ".old-c")
    with pytest.raises(CheckpointError, match="exists already"):
        save(path, seed=2)
    assert fingerprint(load_checkpoint(path).weights) == fingerprint(weights(1))
    path.rename(tmp_path / ".old-c")
    save(path, seed=3, replace=True)
    assert [item.name for item in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize("hidden", [".", "config.json", "training_state"])
def test_folder_without_permission_is_a_one_line_error(tmp_path: Path, hidden: str) -> None:
    path = save(tmp_path / "c")
    (path / hidden).chmod(0)
    with without_root():
        assert "cannot be read: permission denied" in refusal(path)
    (path / hidden).chmod(0o755)
    load_checkpoint(path)
    tmp_path.chmod(0o500)
    with without_root(), pytest.raises(CheckpointError, match=r"new: cannot be saved: permission denied$"):
        save(tmp_path / "new")
    tmp_path.chmod(0o700)
    assert [item.name for item in tmp_path.iterdir()] == ["c"]


# Averages and fingerprints


def test_the_average_is_the_arithmetic_mean_and_can_be_saved(tmp_path: Path) -> None:
    paths = [save(tmp_path / str(seed), seed=seed) for seed in range(5)]
    mean = average(paths, tmp_path / "mean")
    for name, w in mean.items():
        each = [weights(seed)[name] for seed in range(5)]
        expected = torch.stack(each).double().mean(0).to(w.dtype) if w.is_floating_point() else each[0]
        assert w.dtype == each[0].dtype
        assert torch.allclose(w, expected, rtol=1e-7 if w.dtype != torch.bfloat16 else 1e-2, atol=0)
    saved = load_checkpoint(tmp_path / "mean")
    assert fingerprint(saved.weights) == fingerprint(mean)
    assert (saved.config, saved.tokenizer) == (CONFIG, TOKENIZER)


def test_the_average_of_a_checkpoint_with_itself_is_itself(tmp_path: Path) -> None:
    path = save(tmp_path / "c", weights={name: w for name, w in weights().items() if w.dtype != torch.float64})
    stored = load_checkpoint(path).weights
    assert fingerprint(average([path] * 3)) == fingerprint(stored)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"weights": {**weights(), "extra": torch.zeros(1)}}, "extra is in only one of this and"),
        (
            {"weights": {**weights(), "positions": torch.arange(6)}},
            r"positions is torch.int64 \[6\], not torch.int64 \[5\]",
        ),
        ({"weights": {**weights(), "positions": torch.arange(1, 6)}}, "positions is not floating point and differs"),
        ({"tokenizer": {"joint": False}}, "the tokenizer differs from"),
        ({"config": {**CONFIG, "model": {**CONFIG["model"], "d_model": 4}}}, r"model\.d_model=4, not 8 as in"),
        ({"config": {**CONFIG, "labels": ["b", "a"]}}, "labels is not the same as in"),
        ({"config": {**CONFIG, "task": "language"}}, "task='language', not 'translation' as in"),
    ],
)
def test_checkpoints_that_do_not_match_are_not_averaged(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    first = save(tmp_path / "a", config=CONFIG | {"task": "translation", "labels": ["a", "b"]})
    second = save(tmp_path / "b", **change)
    with pytest.raises(CheckpointError, match=f"b: {told}.*{first}"):
        average([first, second], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_average_ignores_settings_that_change_during_training(tmp_path: Path) -> None:
    """A step, how text is decoded, and a setting that only a later version writes."""
    later = {"model": CONFIG["model"] | {"bias": True}, "step": 9, "decoding": {"beam_size": 2}, "new": 1}
    first = save(tmp_path / "a", config=CONFIG | {"step": 8, "decoding": {"beam_size": 5}})
    average([first, save(tmp_path / "b", config=later)], tmp_path / "mean")
    assert load_checkpoint(tmp_path / "mean").config["step"] == 8


def test_average_of_no_checkpoints_is_refused() -> None:
    with pytest.raises(CheckpointError, match="nothing to average"):
        average([])


@pytest.mark.parametrize(
    "other",
    [
        {"b": torch.zeros(2, 3)},
        {"a": torch.zeros(3, 2)},
        {"a": torch.zeros(2, 3, dtype=torch.int32)},
        {"a": -torch.zeros(2, 3)},
        {"a": torch.zeros(2, 3), "b": torch.empty(0)},
        {},
    ],
)
def test_the_fingerprint_tells_names_shapes_types_and_bits_apart(other: dict[str, Tensor]) -> None:
    assert fingerprint({"a": torch.zeros(2, 3)}) != fingerprint(other)


def test_the_fingerprint_does_not_depend_on_order_or_strides() -> None:
    w = torch.arange(6.0).reshape(2, 3)
    assert fingerprint({"a": w, "b": w.t()}) == fingerprint({"b": w.t().contiguous(), "a": w.clone()})


# Weights that are not finite


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_load_checkpoint_names_the_tensor_that_is_not_finite(tmp_path: Path, value: float) -> None:
    table = weights()["encoder.q.weight"].clone()
    table[0, 5] = table[3, 2] = value
    path = save(tmp_path / "c", weights={**weights(), "encoder.q.weight": table})
    told = ": encoder.q.weight has 2 values that are not finite (first at [0, 5]); use an earlier checkpoint"
    assert refusal(path).startswith(told)
    one = torch.tensor([1.0, value]).bfloat16()
    assert "norm.scale has 1 value that is not finite (first at [1])" in refusal(
        save(tmp_path / "d", weights={"norm.scale": one})
    )


def test_load_checkpoint_accepts_finite_weights_whose_sum_overflows(tmp_path: Path) -> None:
    large = {"large": torch.full((4, 4), 3e38), "mixed": torch.tensor([3e38, 3e38, -3e38, -3e38])}
    assert fingerprint(load_checkpoint(save(tmp_path / "c", weights=large)).weights) == fingerprint(large)
