"""Special files are refused by name before they are opened."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from glassformer.config import read_toml
from glassformer.data import read_table
from glassformer.data.image_files import read_images
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.storage.regular_files import UnsuitableFileError, open_regular, read_regular
from glassformer.storage.run_folder import RunFolder


def test_read_regular_refuses_files_beyond_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    with pytest.raises(UnsuitableFileError, match=r"^has 5 bytes, more than the limit of 4$"):
        read_regular(tmp_path / "file", 4)


def test_open_regular_follows_links_only_within_the_folder(tmp_path: Path) -> None:
    inside = tmp_path / "folder"
    inside.mkdir()
    for place in (tmp_path, inside):
        (place / "file").write_bytes(b"1")
    (inside / "near").symlink_to("file")
    (inside / "far").symlink_to("../file")
    assert read_regular(inside / "near", 1, inside) == b"1"
    with pytest.raises(UnsuitableFileError, match="is a link out of"):
        open_regular(inside / "far", inside)
    assert read_regular(inside / "far", 1) == b"1"


def table(path: Path) -> None:
    read_table(str(path.rename(path.with_suffix(".csv"))))


def picture(path: Path) -> None:
    folder = path.parent / "pictures" / "cats"
    folder.mkdir(parents=True)
    path.rename(folder / "1.png")
    read_images([str(folder.parent)])


def best(path: Path) -> None:
    run = RunFolder.create(path.parent / "run")
    path.rename(run.path / "best.json")
    run.best()


@pytest.mark.parametrize("read", [read_toml, table, picture, best])
def test_file_readers_refuse_a_pipe(tmp_path: Path, read: Callable[[Path], object]) -> None:
    if read is picture:
        pytest.importorskip("PIL")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises((CheckpointError, ConfigError, DataError), match="is a pipe, not a regular file") as caught:
        read(tmp_path / "pipe")
    assert "\n" not in str(caught.value)
