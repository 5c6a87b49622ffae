"""What importing and loading read of libraries is let go when a model is loaded, and nothing else."""

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import pytest

import tiny_run
from glassformer.allocator import release_libraries

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux is asked to let pages go")

LOADED = """
import sys
from pathlib import Path
import glassformer.translator

def pages():
    told = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in told if line.startswith("RssFile")), 0)

before = pages()
translator = glassformer.translator.Translator.load(sys.argv[1])
print(before, pages(), *translator.translate(["a"]))
"""


def test_loading_a_model_gives_back_what_importing_and_loading_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    command = [sys.executable, "-c", LOADED, str(tiny_run.made(tmp_path_factory).run)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    before, after = map(int, told[:2])
    if before == 0:
        pytest.skip("this system does not tell the pages of files")
    assert after < 0.35 * before  # 0.12 to 0.17; 0.4 to 0.65 when only importing is followed by it


def test_code_that_was_changed_in_memory_stays_as_it_is(tmp_path: Path) -> None:
    """Such as where a debugger stops: read from the file again, it would run on."""
    file = tmp_path / "code"
    file.write_bytes(b"a" * 2 * mmap.PAGESIZE)
    with file.open("r+b") as opened:
        code = mmap.mmap(opened.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    code[0] = ord("b")
    start = ctypes.addressof(ctypes.c_char.from_buffer(code))
    read_and_run = mmap.PROT_READ | mmap.PROT_EXEC
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), ctypes.c_size_t(len(code)), read_and_run) != 0:
        pytest.skip("nothing may be run from this folder")
    release_libraries.__wrapped__("test")  # which is done once in a process
    assert ctypes.string_at(start, 2) == b"ba"
