"""Nothing that happened to a checkpoint folder goes unnoticed: not one bit, not one file."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from example_checkpoint import FILES, refusal, save
from glassformer.errors import CheckpointError
from glassformer.storage.checkpoint import load_checkpoint, verify
from glassformer.storage.manifest import VERSION


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("pristine") / "checkpoint")


@pytest.fixture
def copied(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "copied"))


def write_manifest(path: Path, content: dict[str, Any]) -> None:
    """A manifest with a right digest, by the documented rule, written independently of the code under test."""
    content = {key: value for key, value in content.items() if key != "digest"}
    inner = (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()
    content["digest"] = hashlib.sha256(inner).hexdigest()
    (path / "manifest.json").write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_one_flipped_bit_is_refused_and_the_file_named(copied: Path, name: str, place: float, bit: int) -> None:
    sound = (copied / name).read_bytes()
    damaged = bytearray(sound)
    damaged[int(place * len(sound))] ^= 1 << bit
    (copied / name).write_bytes(damaged)
    assert f"{name} is damaged" in refusal(copied)
    (copied / name).write_bytes(sound)
    load_checkpoint(copied)


def test_every_byte_of_the_manifest_counts(copied: Path) -> None:
    sound = (copied / "manifest.json").read_bytes()
    for position in range(len(sound)):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << position % 8
        (copied / "manifest.json").write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"manifest\.json is damaged"):
            verify(copied)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_cut_lengthened_emptied_or_gone_is_named(copied: Path, name: str) -> None:
    sound = (copied / name).read_bytes()
    for damaged in (sound[:-1], sound[: len(sound) // 2], b"", sound + b"\n"):
        (copied / name).write_bytes(damaged)
        assert f"{name} is damaged" in refusal(copied)
    (copied / name).unlink()
    assert f"{name} is missing" in refusal(copied)


@pytest.mark.parametrize("name", ["model.bin", ".DS_Store", "training_state/tensors (1).safetensors"])
def test_a_file_that_the_manifest_does_not_list_is_named(copied: Path, name: str) -> None:
    (copied / name).write_bytes(b"")
    assert f"{name} is not listed" in refusal(copied)


def test_a_newer_format_says_to_upgrade(copied: Path) -> None:
    content = json.loads((copied / "manifest.json").read_text())
    write_manifest(copied, content)
    load_checkpoint(copied)
    write_manifest(copied, {**content, "version": VERSION + 1})
    assert "upgrade glassformer" in refusal(copied)


@pytest.mark.parametrize(
    "change", [{"version": 0}, {"version": "1"}, {"format": "other"}, {"files": []}, {"files": None}]
)
def test_foreign_manifest_is_refused(copied: Path, change: dict[str, Any]) -> None:
    content = json.loads((copied / "manifest.json").read_text())
    write_manifest(copied, {**content, **change})
    assert "manifest.json is not that of a glassformer checkpoint" in refusal(copied)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b"{}\n"])
def test_a_manifest_that_is_no_manifest_is_refused(copied: Path, data: bytes) -> None:
    (copied / "manifest.json").write_bytes(data)
    assert "manifest.json is damaged" in refusal(copied)


def test_a_manifest_nested_too_deep_to_read_or_to_write_is_refused(copied: Path) -> None:
    for depth in [500, 900, 950, 2000, 5000, 100_000]:
        (copied / "manifest.json").write_bytes(b'{"a": ' * depth + b"1" + b"}" * depth)
        assert "manifest.json is damaged" in refusal(copied)


def test_a_manifest_cannot_point_outside_its_folder(copied: Path) -> None:
    content = json.loads((copied / "manifest.json").read_text())
    (copied.parent / "secret").write_text("x")
    content["files"]["../secret"] = {"bytes": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
    write_manifest(copied, content)
    assert "../secret is missing" in refusal(copied)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_listed_file_of_another_kind_is_refused(copied: Path, name: str) -> None:
    (copied / name).write_bytes(b"[1]")
    content = json.loads((copied / "manifest.json").read_text())
    content["files"][name] = {"bytes": 3, "sha256": hashlib.sha256(b"[1]").hexdigest()}
    write_manifest(copied, content)
    refusal(copied)


def test_path_without_checkpoint_has_its_own_error(tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    assert "no such folder" in refusal(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert "manifest.json is missing" in refusal(tmp_path / "empty")
