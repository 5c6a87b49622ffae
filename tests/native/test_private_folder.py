"""``GLASSFORMER_ENGINE=jit`` loads code only from folders and files that no other user can write."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from built_kernels import copying_compiler
from glassformer.native.private_folder import NotPrivateError, PrivateFolder, read
from own_process import ENVIRONMENT

LOADS = """
import os, sys, warnings
os.umask(int(sys.argv[1], 8))
from glassformer.native.library import kernels
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
    """Path of the kernel folder, which does not exist yet."""
    return tmp_path / "cache" / "glassformer" / "native"


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load the kernels in a separate process with a fake compiler that copies this process's library."""
    places = {
        "GLASSFORMER_ENGINE": "jit",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "CXX": str(copying_compiler(tmp_path)),
        "PLANTED": str(tmp_path / "planted"),
    }

    def load(umask: int = 0o022, **more: str) -> "subprocess.CompletedProcess[str]":
        command, environment = [sys.executable, "-c", LOADS, oct(umask)], ENVIRONMENT | places | more
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)

    return load


@pytest.fixture
def plant(tmp_path: Path, native: Path, load: Load) -> Callable[[], Path]:
    """Replace the kernel library, with a valid digest, by one that creates a file when it is loaded."""
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
def test_kernel_folder_and_files_are_private_under_every_umask(
    load: Load, native: Path, tmp_path: Path, umask: int
) -> None:
    for _ in range(2):
        done = load(umask)
        assert (done.stdout, done.stderr) == ("True\n", "")
    assert compilations(tmp_path) == 1
    assert native.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in native.iterdir()} == {0o600}
    assert len(list(native.iterdir())) == 2


def test_planted_library_in_a_private_folder_is_loaded(load: Load, plant: Callable[[], Path], tmp_path: Path) -> None:
    """Control for the tests below: without their faults, the planted library is loaded."""
    plant()
    load()
    assert (tmp_path / "planted").exists()


@pytest.mark.parametrize("mode", [0o775, 0o707, 0o777])
def test_kernels_refuse_a_folder_writable_by_others(
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
def test_kernels_recompile_a_library_writable_by_others(
    load: Load, plant: Callable[[], Path], tmp_path: Path, mode: int
) -> None:
    library = plant()
    library.chmod(mode)
    done = load()
    assert f"others can write to it (mode {mode:04o}); compiling the kernels again" in done.stderr
    assert not (tmp_path / "planted").exists()
    assert library.stat().st_mode & 0o777 == 0o600
    assert (load().stderr, compilations(tmp_path)) == ("", 2)


def test_kernels_do_not_follow_links(load: Load, plant: Callable[[], Path], native: Path, tmp_path: Path) -> None:
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
def test_kernels_refuse_files_of_another_user(
    load: Load, plant: Callable[[], Path], native: Path, tmp_path: Path, whose: str
) -> None:
    library = plant()
    os.chown(native if whose == "folder" else library, 12345, -1)
    done = load()
    assert "belongs to another user (12345)" in done.stderr
    assert done.stdout == "True\n"
    assert not (tmp_path / "planted").exists()


def test_private_folder_survives_replacement_in_a_writable_parent(native: Path, tmp_path: Path) -> None:
    """An open folder keeps its descriptor, so a replacement at its path is not used."""
    folder = PrivateFolder(native)
    native.parent.chmod(0o777)
    native.rename(tmp_path / "moved")
    native.mkdir()
    folder.store("library", b"code")
    assert not list(native.iterdir())  # stored in the checked folder
    found = folder.open("library")
    assert found is not None
    assert read(found) == b"code"
    os.close(found)
    folder.close()


@pytest.mark.parametrize("damage", ["cut", "changed", "no digest", "half a digest", "a FIFO"])
def test_private_folder_does_not_open_damaged_files(native: Path, damage: str) -> None:
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


def test_private_folder_reports_a_file_or_link_in_its_place(native: Path) -> None:
    native.parent.mkdir(parents=True)
    native.write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        PrivateFolder(native)
    native.unlink()
    native.symlink_to("/nowhere")
    with pytest.raises(NotPrivateError, match="is a link"):
        PrivateFolder(native)


@pytest.mark.parametrize("home", ["/dev/null", "/proc/nowhere"])
def test_kernels_without_a_home_leave_no_files_or_messages(load: Load, tmp_path: Path, home: str) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = load(XDG_CACHE_HOME="", HOME=home, TMPDIR=str(temporary))
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert not list(temporary.iterdir())


def test_kernels_load_in_concurrent_processes(load: Load, native: Path) -> None:
    with ThreadPoolExecutor(4) as several:
        found = [one.result() for one in [several.submit(load) for _ in range(4)]]
    assert {(done.stdout, done.stderr) for done in found} == {("True\n", "")}
    assert len(list(native.iterdir())) == 2


def test_blank_cxx_is_ignored(load: Load) -> None:
    """The usual compilers are tried; without any, a warning follows."""
    done = load(CXX=" ", PATH="/nowhere")
    assert done.stdout == "False\n"
    assert "no C++ compiler is found" in done.stderr
