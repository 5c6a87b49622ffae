"""The kernels that are built with the package: which variant is loaded, and what is refused with a line."""

import errno
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

import glassformer
from built_kernels import copy_library, copying_compiler
from glassformer.errors import ConfigError
from glassformer.native import instructions, library
from glassformer.native.private_folder import PrivateFolder
from own_process import ENVIRONMENT
from tiny_run import TinyRun, write_lines

X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the variants of other processors are few")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of libraries that holds one for this processor, in place of the package's own."""
    whole = copy_library(tmp_path / "whole.so")
    for name in (library.ENGINE, instructions.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    place = tmp_path / "lib"
    place.mkdir()
    monkeypatch.setattr(library, "FOLDER", place)
    store(whole.read_bytes(), best(place))
    return place


def best(place: Path) -> Path:
    return place / f"kernels-{instructions.usable()[0].name}.so"


def store(data: bytes, path: Path) -> None:
    path.unlink(missing_ok=True)  # a loaded library stays as it is
    path.write_bytes(data)
    path.with_name(f"{path.name}.sha256").write_text(f"{sha256(data).hexdigest()}  {path.name}\n")


def load() -> library.Kernels | None:
    return found if isinstance(found := library.load(), library.Kernels) else None


@pytest.mark.skipif(platform.system() != "Linux" or platform.libc_ver()[0] != "glibc", reason="needs glibc")
@pytest.mark.skipif(not list(library.FOLDER.glob("*.so")), reason="no kernels are built")
def test_built_kernels_load_with_glibc_2_28() -> None:
    """Names of the versions of symbols that a library needs are in it as text (manylinux_2_28, PEP 600)."""
    newest = {b"GLIBC_2": 28, b"GLIBCXX_3.4": 24, b"CXXABI_1.3": 11}
    for path in library.FOLDER.glob("*.so"):
        needed = re.findall(rb"\0(GLIBC_2|GLIBCXX_3\.4|CXXABI_1\.3)\.(\d+)[.\d]*(?=\0)", path.read_bytes())
        assert needed
        assert not [(name, number) for name, number in needed if int(number) > newest[name]], path.name


def test_built_kernels_load_without_a_compiler(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    for name, value in (("PATH", "/nowhere"), ("CXX", "false"), ("XDG_CACHE_HOME", str(tmp_path / "cache"))):
        monkeypatch.setenv(name, value)
    loaded = load()
    assert loaded is not None
    assert loaded.arithmetic == library.loaded().arithmetic
    assert not (tmp_path / "cache").exists()
    assert not recwarn.list


def cut(path: Path) -> None:
    damage(path, path.read_bytes()[:5000])


def flip_a_bit(path: Path) -> None:
    data = path.read_bytes()
    damage(path, data[:70_000] + bytes([data[70_000] ^ 1]) + data[70_001:])


def damage(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def forget_the_digest(path: Path) -> None:
    path.with_name(f"{path.name}.sha256").unlink()


def write_text(path: Path) -> None:
    store(b"no library\n" * 100, path)


def write_another_library(path: Path) -> None:
    import _ctypes

    store(Path(_ctypes.__file__).read_bytes(), path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (cut, "it is damaged"),
        (flip_a_bit, "it is damaged"),
        (forget_the_digest, "No such file"),
        (write_text, "invalid ELF header"),
        (write_another_library, "undefined symbol: sources"),
        (
            Path.unlink,
            r"lib has no kernels for this processor \(.*\); install a C\+\+ compiler and install glassformer again .*, "
            "or set GLASSFORMER_ENGINE=jit to compile",
        ),
    ],
)
def test_damaged_or_foreign_libraries_are_reported(folder: Path, change: Callable[[Path], None], reason: str) -> None:
    change(best(folder))
    with pytest.warns(UserWarning, match=rf"glassformer runs in PyTorch, which is slower, since .*{reason}"):
        assert load() is None


def test_a_library_of_other_sources_is_reported(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(instructions.SOURCES, tmp_path / "csrc")
    monkeypatch.setattr(library, "SOURCES", tmp_path / "csrc")
    assert load() is not None
    with (tmp_path / "csrc" / "simd.h").open("a") as source:
        source.write("// changed\n")
    with pytest.warns(UserWarning, match="built from other sources than those in csrc; install glassformer again"):
        assert load() is None


@pytest.mark.parametrize(
    "content", ["", '{"flags": []', '{"flags": [], "variants": [{"name": "x"}]}', '{"flags": 5, "variants": []}', "[]"]
)
def test_a_damaged_list_of_variants_is_reported(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    (tmp_path / "variants.json").write_text(content)
    monkeypatch.setattr(instructions, "SOURCES", tmp_path)
    with pytest.warns(UserWarning, match=r"since .*variants\.json is damaged \(.*\); install glassformer again"):
        assert load() is None


@pytest.mark.parametrize(
    ("machine", "line", "reason"),
    [
        (
            "x86_64",
            "flags : fpu sse sse2 avx",
            r"none of the instruction sets that the kernels are built for \(.*x86-64-v3\)",
        ),
        ("x86_64", "", "none of the instruction sets that the kernels are built for .*"),
        (
            "aarch64",
            "Features : fp asimd",
            r"none of the instruction sets that the kernels are built for \(armv8.2-a-bf16, .*, armv8.2-a\)",
        ),
        ("riscv64", "", "the kernels are not built for riscv64"),
    ],
)
def test_processors_older_than_every_variant_are_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, machine: str, line: str, reason: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(instructions, "processor_line", lambda: line)
    with pytest.warns(UserWarning, match=f"{reason}$"):
        assert load() is None


V3 = "avx2 fma bmi1 bmi2 f16c abm movbe"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"
BF16 = f"{V4} avx512_vnni avx512_bf16"
ARM = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm"


@pytest.mark.parametrize(
    ("features", "names"),
    [
        (ARM, [""]),
        (f"{ARM} lrcpc dcpop asimddp ssbs", ["-dotprod", ""]),
        (f"{ARM} lrcpc dcpop asimddp sve svebf16 i8mm bf16", ["-bf16", "-dotprod", ""]),
    ],
)
def test_usable_variants_of_an_arm_processor_are_fastest_first(
    monkeypatch: pytest.MonkeyPatch, features: str, names: list[str]
) -> None:
    monkeypatch.delenv(instructions.VARIABLE, raising=False)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(instructions, "processor_line", lambda: f"Features\t: {features}")
    assert [one.name for one in instructions.usable()] == [f"armv8.2-a{name}" for name in names]


@X86
@pytest.mark.parametrize(
    ("features", "names"),
    [
        (V3, ["v3"]),
        (f"{V3} avx512f avx512_bf16", ["v3"]),
        (V4, ["v4", "v3"]),
        (f"{V3} avx_vnni", ["v3-vnni", "v3"]),
        (f"{V4} avx512_vnni", ["v4-vnni", "v4", "v3"]),
        (BF16, ["v4-bf16", "v4-vnni", "v4", "v3"]),
        (f"{BF16} amx_tile amx_int8 amx_bf16 fpu", ["v4-amx", "v4-bf16", "v4-vnni", "v4", "v3"]),
    ],
)
def test_usable_variants_are_those_of_the_processor_fastest_first(
    monkeypatch: pytest.MonkeyPatch, features: str, names: list[str]
) -> None:
    monkeypatch.delenv(instructions.VARIABLE, raising=False)
    monkeypatch.setattr(instructions, "processor_line", lambda: f"flags\t\t: {features}")
    assert [one.name for one in instructions.usable()] == [f"x86-64-{name}" for name in names]


@X86
def test_without_permission_for_its_registers_the_next_variant_is_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = best(folder).read_bytes()
    paths = [folder / f"kernels-x86-64-{name}.so" for name in ("v4-amx", "v4")]
    for path in paths:
        store(data, path)
    loaded = []

    class Recorded(library.Kernels):
        def __init__(self, path: str, digest: str) -> None:
            super().__init__(path, digest)
            loaded.append(path)
            self.has_permission = "amx" not in path

    monkeypatch.setattr(library, "Kernels", Recorded)
    monkeypatch.setattr(instructions, "processor_line", lambda: f"flags : {BF16} amx_tile amx_int8 amx_bf16")
    best(folder).with_name("kernels-x86-64-v4-bf16.so").unlink(missing_ok=True)  # what is not built is left out
    assert load() is not None
    assert loaded == list(map(str, paths))


@X86
def test_instructions_in_the_environment_choose_the_variant(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(best(folder).read_bytes(), folder / "kernels-x86-64-v3.so")
    monkeypatch.setenv(instructions.VARIABLE, "x86-64-v3")
    opened = []
    monkeypatch.setattr(library, "_load", lambda path: opened.append(path.name) or library.loaded())
    load()
    assert opened == ["kernels-x86-64-v3.so"]


@X86
@pytest.mark.parametrize(
    ("name", "reason"), [("avx2", "is not known"), ("x86-64-v4", "is more than this processor can run")]
)
def test_unknown_or_unsupported_instructions_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    monkeypatch.setenv(instructions.VARIABLE, name)
    monkeypatch.setattr(instructions, "processor_line", lambda: f"flags : {V3}")
    with pytest.raises(ConfigError, match=rf"^GLASSFORMER_INSTRUCTIONS='{name}' {reason}; choose from x86-64-v3$"):
        load()


def test_unknown_engine_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.ENGINE, "c++")
    with pytest.raises(ConfigError, match=r"GLASSFORMER_ENGINE='c\+\+' is not known; choose jit or torch, or unset it"):
        load()


def test_engine_torch_in_the_environment_loads_no_kernels_silently(
    folder: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setenv(library.ENGINE, "torch")
    assert library.load() == "GLASSFORMER_ENGINE=torch"
    assert not recwarn.list


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a compiler makes cannot be stored."""

    def write(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name, value in (("CXX", copying_compiler(tmp_path)), (library.ENGINE, "jit"), ("XDG_CACHE_HOME", tmp_path)):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(PrivateFolder, "_write", write)
    with pytest.warns(UserWarning, match=r"cannot be compiled or loaded \(\[Errno 28\] No space left on device\)"):
        assert load() is None


def test_pytorch_translates_where_the_library_is_damaged(tiny: TinyRun, tmp_path: Path) -> None:
    """The whole way: one warning, the reason in ``info``, and the translations of PyTorch."""
    package, text = tmp_path / "src" / "glassformer", write_lines(tmp_path / "text", ["the old cat sleeps", "a dog"])
    shutil.copytree(Path(glassformer.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "lib"))
    (package / "native" / "lib").mkdir()
    (path := best(package / "native" / "lib")).write_bytes(b"\x7fELF")
    path.with_name(f"{path.name}.sha256").write_text("0" * 64)

    def glassformer_(*arguments: object, **more: str) -> "subprocess.CompletedProcess[str]":
        environment = ENVIRONMENT | {"PYTHONPATH": str(package.parent), library.ENGINE: ""} | more
        command = [sys.executable, "-m", "glassformer", *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

    damaged, chosen = (
        glassformer_("translate", tiny.run, text),
        glassformer_("translate", tiny.run, text, GLASSFORMER_ENGINE="torch"),
    )
    reason = f"{path} cannot be loaded: it is damaged (another SHA-256 than beside it); {library.REINSTALL}"
    assert damaged.stderr == f"glassformer: warning: glassformer runs in PyTorch, which is slower, since {reason}\n"
    assert (damaged.returncode, damaged.stdout) == (0, chosen.stdout)
    assert (chosen.returncode, chosen.stderr) == (0, "")
    info = glassformer_("info", tiny.run)
    assert reason in info.stdout.partition("engine in use")[2]
    refused = glassformer_("translate", tiny.run, text, GLASSFORMER_ENGINE="gpu")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert (
        refused.stderr
        == "glassformer: error: GLASSFORMER_ENGINE='gpu' is not known; choose jit or torch, or unset it\n"
    )
