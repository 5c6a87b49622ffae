"""A part file continues to the same bytes, whatever a crash has left of it, and refuses to continue another job."""

import gzip
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from glassformer.errors import DataError
from glassformer.storage import part_file
from glassformer.storage.part_file import PartFile

JOB = {"command": "translate", "decoding.beam_size": "4"}
WINDOWS = [b"one\n", b"", b"two\nthree\n", b"four\n" * 2]
NAMES = ["out", "out.gz"]


def write(output: Path, windows: int | None = None, head: bytes = b"", job: dict[str, str] = JOB) -> list[int]:
    """Write ``WINDOWS`` or the first ones and a torn one; return the numbers of those that were written now."""
    part = PartFile(output, job, head, compress=output.suffix == ".gz")
    first = 0 if part.state is None else part.state["windows"]
    try:
        for number in range(first, len(WINDOWS)):
            if number == windows:
                part.write(b"torn " * 5)
                part.complete = None  # type: ignore[assignment,method-assign] - a killed process completes nothing
                return list(range(first, number))
            part.write(WINDOWS[number][:3])
            part.write(WINDOWS[number][3:])
            part.complete({"windows": number + 1})
        part.commit(bytes(reversed(head)))
    finally:
        part.close()
    return list(range(first, len(WINDOWS)))


def reference(folder: Path, name: str, head: bytes = b"") -> bytes:
    (folder / "reference").mkdir(exist_ok=True)
    write(folder / "reference" / name, head=head)
    return (folder / "reference" / name).read_bytes()


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


@pytest.mark.parametrize("name", NAMES)
def test_the_output_has_all_windows_and_no_part_is_left(tmp_path: Path, name: str) -> None:
    data = reference(tmp_path, name)
    assert (gzip.decompress(data) if name.endswith(".gz") else data) == b"".join(WINDOWS)
    assert files_of(tmp_path / "reference") == [name]


def damages(part: bytes, journal: bytes) -> Iterator[tuple[bytes, bytes]]:
    """All truncations of each file, and a flipped bit in each byte of the part."""
    header = journal.index(b"\n") + 1
    yield from ((part[:end], journal) for end in range(len(part) + 1))
    yield from ((part, journal[:end]) for end in range(header, len(journal) + 1))
    yield from ((part[:at] + bytes([part[at] ^ 1]) + part[at + 1 :], journal) for at in range(len(part)))


@pytest.mark.parametrize(("name", "head"), [("out", b""), ("out", b"head"), ("out.gz", b"")])
def test_any_truncation_or_flipped_bit_continues_to_equal_bytes(tmp_path: Path, name: str, head: bytes) -> None:
    expected, output = reference(tmp_path, name, head), tmp_path / name
    write(output, 3, head)
    part, journal = output.with_name(f"{name}.part"), output.with_name(f"{name}.part.journal")
    before = part.read_bytes(), journal.read_bytes()
    firsts = set()
    for damaged in damages(*before):
        part.write_bytes(damaged[0])
        journal.write_bytes(damaged[1])
        firsts.add(len(WINDOWS) - len(write(output, head=head)))
        assert output.read_bytes() == expected
        assert files_of(tmp_path) == [name]
        output.unlink()
    assert firsts == {0, 1, 2, 3}


def test_complete_windows_are_not_written_again(tmp_path: Path) -> None:
    assert write(tmp_path / "out", 2) == [0, 1]
    assert write(tmp_path / "out", 3) == [2]
    assert write(tmp_path / "out") == [3]


def test_without_a_complete_window_nothing_is_left(tmp_path: Path) -> None:
    write(tmp_path / "out", 0)
    assert files_of(tmp_path) == []


@pytest.mark.parametrize(
    ("job", "difference"),
    [
        (JOB | {"decoding.beam_size": "5"}, "decoding.beam_size 4, and now it is 5"),
        ({"command": "translate"}, "decoding.beam_size 4, and now it is unset"),
        (JOB | {"shard": "1/2"}, "shard unset, and now it is 1/2"),
    ],
)
def test_a_part_of_another_job_is_refused_by_the_difference(
    tmp_path: Path, job: dict[str, str], difference: str
) -> None:
    write(tmp_path / "out", 2)
    before = [(tmp_path / name).read_bytes() for name in files_of(tmp_path)]
    with pytest.raises(DataError) as refused:
        PartFile(tmp_path / "out", job)
    told = f"{tmp_path}/out.part: was begun with {difference}; use the former, or begin again with --restart"
    assert str(refused.value) == told
    assert [(tmp_path / name).read_bytes() for name in files_of(tmp_path)] == before
    part = PartFile(tmp_path / "out", job, restart=True)
    assert part.state is None
    part.close()
    assert files_of(tmp_path) == []


def test_a_part_with_another_compression_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "out", 2)
    with pytest.raises(DataError, match=r"was begun with compression unset, and now it is gzip; use the former"):
        PartFile(tmp_path / "out", JOB, compress=True)


def test_a_head_cannot_be_compressed(tmp_path: Path) -> None:
    """``commit`` replaces the head in place."""
    with pytest.raises(ValueError, match="has no head that can be replaced"):
        PartFile(tmp_path / "out", JOB, b"head", compress=True)
    assert files_of(tmp_path) == []


@pytest.mark.parametrize("call", ["os.replace", "glassformer.storage.part_file.sync"])
def test_an_interruption_after_the_output_is_replaced_leaves_no_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    module, name = (os, "replace") if call == "os.replace" else (part_file, "sync")
    function, part = getattr(module, name), PartFile(tmp_path / "out", JOB)
    part.write(b"one\n")
    part.complete({"windows": 1})

    def interrupted(*paths: Path) -> None:
        function(*paths)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(call, interrupted)
        with pytest.raises(KeyboardInterrupt):
            part.commit()
    assert (part.committed, part.closed) == (True, False)
    part.close()
    assert (files_of(tmp_path), (tmp_path / "out").read_bytes()) == (["out"], b"one\n")


def test_a_part_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out.part").write_bytes(b"a download")
    with pytest.raises(DataError, match=r"has no journal, so it may be another's file; move it, or begin again"):
        PartFile(tmp_path / "out", JOB)
    assert (tmp_path / "out.part").read_bytes() == b"a download"
    (tmp_path / "out.part.journal").write_bytes(b"not a journal\n")
    with pytest.raises(DataError, match=r"out\.part\.journal: is damaged; restore it, or begin again"):
        PartFile(tmp_path / "out", JOB)
    later = b'{"format": "glassformer part", "version": 2, "job": {}}'
    (tmp_path / "out.part.journal").write_bytes(b"%08x %s\n" % (zlib.crc32(later), later))
    with pytest.raises(DataError, match=r"has format version 2, not 1; use the version of glassformer that began it"):
        PartFile(tmp_path / "out", JOB)
    (tmp_path / "pipe.part").mkdir()
    with pytest.raises(OSError, match="directory"):
        PartFile(tmp_path / "pipe", JOB)


def test_one_process_at_a_time_writes_a_part(tmp_path: Path) -> None:
    part = PartFile(tmp_path / "out", JOB)
    script = f"""
from pathlib import Path
from glassformer.storage.part_file import PartFile
PartFile(Path({str(tmp_path / "out")!r}), {JOB!r})
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "out.part: is being written by another process; wait for it, or name another output" in found.stderr
    part.close()
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode == 0


def test_the_mode_of_a_replaced_output_is_kept(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_bytes(b"before")
    output.chmod(0o600)
    write(output)
    assert (output.read_bytes(), output.stat().st_mode & 0o777) == (b"".join(WINDOWS), 0o600)


def test_a_gzip_output_does_not_depend_on_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = reference(tmp_path, "out.gz")
    monkeypatch.setattr("time.time", lambda: 1e9)
    assert reference(tmp_path, "out.gz") == first
    assert first[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    assert first.count(first[:10]) == len(WINDOWS)
    empty = PartFile(tmp_path / "empty.gz", JOB, compress=True)
    empty.commit()
    assert gzip.decompress((tmp_path / "empty.gz").read_bytes()) == b""
    assert (tmp_path / "empty.gz").stat().st_size > 0


def test_windows_are_flushed_to_the_disk_once_in_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed, seconds = list[int](), [0.0]
    monkeypatch.setattr(part_file, "monotonic", lambda: seconds[0])
    part = PartFile(tmp_path / "out", JOB)
    monkeypatch.setattr("os.fsync", flushed.append)
    for number, moment in enumerate([0.1, 0.9, 1.1, 1.2, 2.2]):
        seconds[0] = moment
        part.complete({"windows": number})
    assert len(flushed) == 2 * 2
    part.close()
