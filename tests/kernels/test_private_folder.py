"""Compiled code is loaded only from a folder, and a file, that nobody else can have written."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from glassformer.kernels import native as native_module
from glassformer.kernels.private_folder import NotPrivateError, PrivateFolder, code_folder, read
from own_process import ENVIRONMENT

LOADS = """
import os, sys, warnings
os.umask(int(sys.argv[1], 8))
from glassformer.kernels.native import kernels
print(kernels() is not None)
"""
PLANTED = """
#include <fcntl.h>
#include <stdlib.h>
__attribute__((constructor)) static void planted(void) { creat(getenv("PLANTED"), 0600); }
"""
Load = Callable[..., "subprocess.CompletedProcess[str]"]
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")


@pytest.fixture
def native(tmp_path: Path) -> Path:
    """Where the folder is to be; it is not there yet."""
    return tmp_path / "cache" / "glassformer" / "native"


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads the kernels in a process of its own, whose compiler copies the library of this one."""
    if native_module._kernels.__wrapped__() is None:  # again: an earlier test may have loaded them from another folder
        pytest.skip("there is no C++ compiler here")
    with code_folder() as folder:
        made = max(folder.path.glob("*.so"), key=os.path.getmtime)
    compiler = tmp_path / "compiler"
    compiler.write_text(
        f"#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\ncp '{made}' \"$2\"\necho >>'{tmp_path}/compiled'\n"
    )
    compiler.chmod(0o700)
    places = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "CXX": str(compiler), "PLANTED": str(tmp_path / "planted")}

    def load(umask: int = 0o022, **more: str) -> "subprocess.CompletedProcess[str]":
        command, environment = [sys.executable, "-c", LOADS, oct(umask)], ENVIRONMENT | places | more
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)

    return load


@pytest.fixture
def plant(tmp_path: Path, native: Path, load: Load) -> Callable[[], Path]:
    """Puts a library with its digest where the kernels are, which leaves a file behind when it is loaded."""
    if not (compiler := shutil.which("gcc") or shutil.which("cc")):
        pytest.skip("no C compiler")
    (tmp_path / "planted.c").write_text(PLANTED)
    made = tmp_path / "planted.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, tmp_path / "planted.c"], check=True)

    def plant() -> Path:
        load()
        (library,) = native.glob("*.so")
        shutil.copyfile(made, library)
        library.with_name(f"{library.name}.sha256").write_text(sha256(made.read_bytes()).hexdigest())
        return library

    return plant


def compilations(tmp_path: Path) -> int:
    return len((tmp_path / "compiled").read_text().splitlines())


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_folder_and_files_are_private_under_every_umask(load: Load, native: Path, tmp_path: Path, umask: int) -> None:
    for _ in range(2):
        done = load(umask)
        assert (done.stdout, done.stderr) == ("True\n", "")
    assert compilations(tmp_path) == 1
    assert native.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in native.iterdir()} == {0o600}
    assert len(list(native.iterdir())) == 2


def test_a_planted_library_would_be_loaded_from_a_private_folder(
    load: Load, plant: Callable[[], Path], tmp_path: Path
) -> None:
    """So that the tests below show what they are to show."""
    plant()
    load()
    assert (tmp_path / "planted").exists()


@pytest.mark.parametrize("mode", [0o775, 0o707, 0o777])
def test_a_folder_that_others_can_write_is_refused_with_a_warning(
    load: Load, plant: Callable[[], Path], native: Path, tmp_path: Path, mode: int
) -> None:
    plant()
    native.chmod(mode)
    done = load(0o002)
    assert done.stdout == "True\n"
    assert not (tmp_path / "planted").exists()
    assert done.stderr.count("Warning") == 1
    assert f"{native}: others can write to it (mode {mode:04o}); compiling the kernels again" in done.stderr


@pytest.mark.parametrize("mode", [0o660, 0o606])
def test_a_library_that_others_can_write_is_compiled_again(
    load: Load, plant: Callable[[], Path], tmp_path: Path, mode: int
) -> None:
    library = plant()
    library.chmod(mode)
    done = load()
    assert f"others can write to it (mode {mode:04o}); compiling the kernels again" in done.stderr
    assert not (tmp_path / "planted").exists()
    assert library.stat().st_mode & 0o777 == 0o600
    assert (load().stderr, compilations(tmp_path)) == ("", 2)


def test_a_link_in_place_of_folder_or_library_is_not_followed(
    load: Load, plant: Callable[[], Path], native: Path, tmp_path: Path
) -> None:
    library = plant()
    library.rename(tmp_path / "elsewhere.so")
    library.symlink_to(tmp_path / "elsewhere.so")
    assert load().stdout == "True\n"
    assert not library.is_symlink()
    native.rename(tmp_path / "elsewhere")
    native.symlink_to(tmp_path / "elsewhere")
    done = load()
    assert f"{native}: is a link; compiling the kernels again" in done.stderr
    assert done.stdout == "True\n"
    assert not (tmp_path / "planted").exists()


@as_root
@pytest.mark.parametrize("whose", ["folder", "library"])
def test_what_belongs_to_another_user_is_not_loaded(
    load: Load, plant: Callable[[], Path], native: Path, tmp_path: Path, whose: str
) -> None:
    library = plant()
    os.chown(native if whose == "folder" else library, 12345, -1)
    done = load()
    assert "belongs to another user (12345)" in done.stderr
    assert done.stdout == "True\n"
    assert not (tmp_path / "planted").exists()


def test_a_parent_that_others_can_write_does_not_open_the_folder(native: Path, tmp_path: Path) -> None:
    """Whoever moves the folder away and puts a link, or another's folder, in its place is refused."""
    folder = PrivateFolder(native)
    native.parent.chmod(0o777)
    native.rename(tmp_path / "moved")
    native.mkdir()
    folder.store("library", b"code")
    assert not list(native.iterdir())  # it went into the folder that was checked
    found = folder.open("library")
    assert found is not None
    assert read(found) == b"code"
    os.close(found)
    folder.close()


@pytest.mark.parametrize("damage", ["cut", "changed", "no digest", "half a digest", "a FIFO"])
def test_a_damaged_file_is_not_opened(native: Path, damage: str) -> None:
    folder = PrivateFolder(native)
    folder.store("library", b"code")
    library, digest = native / "library", native / "library.sha256"
    match damage:
        case "cut":
            os.truncate(library, 3)
        case "changed":
            library.write_bytes(b"code"[::-1])
        case "no digest":
            digest.unlink()
        case "half a digest":
            os.truncate(digest, 32)
        case "a FIFO":
            library.unlink()
            os.mkfifo(library, 0o600)
    if damage == "a FIFO":
        with pytest.warns(UserWarning, match="neither a folder nor a file"):
            assert folder.open("library") is None
    else:
        assert folder.open("library") is None
    folder.close()


def test_a_file_in_the_way_is_an_error(native: Path) -> None:
    native.parent.mkdir(parents=True)
    native.write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        PrivateFolder(native)
    native.unlink()
    native.symlink_to("/nowhere")
    with pytest.raises(NotPrivateError, match="is a link"):
        PrivateFolder(native)


@pytest.mark.parametrize("home", ["/dev/null", "/proc/nowhere"])
def test_without_a_home_nothing_stays_behind_and_nothing_is_said(load: Load, tmp_path: Path, home: str) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = load(XDG_CACHE_HOME="", HOME=home, TMPDIR=str(temporary))
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert not list(temporary.iterdir())


def test_two_processes_at_once_both_load(load: Load, native: Path) -> None:
    with ThreadPoolExecutor(4) as several:
        found = [one.result() for one in [several.submit(load) for _ in range(4)]]
    assert {(done.stdout, done.stderr) for done in found} == {("True\n", "")}
    assert len(list(native.iterdir())) == 2


def test_a_compiler_of_blanks_counts_as_none(load: Load) -> None:
    """One of the usual ones is taken, or where there is none it is said."""
    done = load(CXX=" ", PATH="/nowhere")
    assert done.stdout == "False\n"
    assert "no C++ compiler is found" in done.stderr
