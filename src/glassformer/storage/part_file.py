"""Output that can be continued after an interruption: a part file, and a journal of its complete windows.

``OUT.part`` holds the bytes written so far. Each line of ``OUT.part.journal`` describes one window of them: its end,
the CRC-32 of its bytes, and the state of the caller at its end. After a crash, all windows before the first incomplete
or damaged one are used again, and the rest is cut off.
"""

import json
import os
import stat
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO

from glassformer.errors import DataError
from glassformer.storage.manifest import parse_object, sync
from glassformer.storage.regular_files import MEGABYTE, open_locked

FORMAT, VERSION = "glassformer part", 1
SYNC_SECONDS = 1.0
"""Minimum time between two flushes to the disk. Checksums find what a power failure has lost since the last one."""
BEGIN_AGAIN = "or begin again with --restart"


def part_path(output: Path) -> Path:
    """The file that holds the bytes of ``output`` until it is complete."""
    return output.with_name(f"{output.name}.part")


class PartFile:
    """An unfinished output, locked for this process.

    ``job`` describes what decides the bytes of the output, as text by name; a part of another job is refused. ``head``
    are the first bytes of the output, which ``commit`` can replace. With ``compress``, each window is one gzip member,
    and there can be no ``head``.

    Raises:
        ValueError: Both ``head`` and ``compress`` are given.
        DataError: The part is of another job, is damaged, or is being written by another process.
        OSError: It cannot be read or written.
    """

    def __init__(
        self, output: Path, job: dict[str, str], head: bytes = b"", restart: bool = False, compress: bool = False
    ) -> None:
        if head and compress:
            raise ValueError("a compressed output has no head that can be replaced; give head=b'' or compress=False")
        if compress:
            job = {**job, "compression": "gzip"}
        self.output = output
        self.path = part_path(output)
        self.journal_path = output.with_name(f"{output.name}.part.journal")
        self.state: dict[str, Any] | None = None
        """State of the caller after the last complete window; None if no window is complete."""
        self._head = head
        self._end, self._crc = len(head), 0
        self._member = _GzipMember() if compress else None
        busy = f"{self.path}: is being written by another process; wait for it, or name another output"
        self._file = open_locked(self.path, busy)
        self._journal: BinaryIO | None = None
        empty = not os.fstat(self._file.fileno()).st_size
        try:
            self._journal = self._begin(job) if empty or restart else self._continue(job)
        except BaseException:
            if empty:
                self.path.unlink()
            self._file.close()
            raise
        self._synced = monotonic()

    def write(self, data: bytes) -> None:
        """Append ``data`` to the current window."""
        self._append(data if self._member is None else self._member.compress(data))

    def complete(self, state: dict[str, Any]) -> None:
        """End the current window: from now on a continued output begins after it, with ``state``."""
        assert self._journal is not None
        if self._member is not None:
            self._append(self._member.finish())
        self._file.flush()
        self._journal.write(_journal_line({"end": self._end, "crc32": self._crc, "state": state}))
        self._journal.flush()
        self.state, self._crc = state, 0
        if monotonic() - self._synced >= SYNC_SECONDS:
            os.fsync(self._file.fileno())
            os.fsync(self._journal.fileno())
            self._synced = monotonic()

    def commit(self, head: bytes | None = None) -> None:
        """Replace the output by the part, which begins with ``head`` if that is not None, of the same length."""
        if self._member is not None and self.state is None:
            self._append(self._member.finish())  # no file of gzip has zero bytes
        self._file.flush()
        if head is not None:
            assert len(head) == len(self._head)
            os.pwrite(self._file.fileno(), head, 0)
        if self.output.exists():
            os.fchmod(self._file.fileno(), stat.S_IMODE(self.output.stat().st_mode))
        os.fsync(self._file.fileno())
        os.replace(self.path, self.output)
        self.journal_path.unlink()
        sync(self.output.parent)
        self._close()

    @property
    def closed(self) -> bool:
        """True after ``commit`` and after ``close``."""
        return self._file.closed

    @property
    def committed(self) -> bool:
        """True if the open part has replaced the output: Ctrl-C interrupted ``commit`` after that."""
        try:
            return os.path.samestat(self.output.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Release the part; without a complete window it is removed. Does nothing after ``commit``.

        If ``commit`` was interrupted after it replaced the output, the journal is removed.
        """
        if self._file.closed:
            return
        with suppress(OSError):
            if self.committed:
                self.journal_path.unlink(missing_ok=True)
            elif self.state is None:
                self.path.unlink()
                self.journal_path.unlink()
        self._close()

    def _close(self) -> None:
        for file in (self._file, self._journal):
            if file is not None:
                with suppress(OSError):  # an earlier error has reported the cause
                    file.close()

    def _append(self, data: bytes) -> None:
        self._file.write(data)
        self._end += len(data)
        self._crc = zlib.crc32(data, self._crc)

    def _begin(self, job: dict[str, str]) -> BinaryIO:
        """Begin an empty part. The journal exists before the part has any byte."""
        self._file.truncate(0)
        unfinished = self.journal_path.with_name(f".{self.journal_path.name}.unfinished")
        try:
            unfinished.write_bytes(_journal_line({"format": FORMAT, "version": VERSION, "job": job}))
            sync(unfinished)
            os.replace(unfinished, self.journal_path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        self._file.write(self._head)
        return self.journal_path.open("ab")

    def _continue(self, job: dict[str, str]) -> BinaryIO:
        """Cut off what is incomplete, and go to the end of the last complete window."""
        if not self.journal_path.exists():
            raise DataError(f"{self.path}: has no journal, so it may be another's file; move it, {BEGIN_AGAIN}")
        journal = self.journal_path.open("r+b")
        try:
            self._check_job(_parse_line(journal.readline()), job)
            complete = journal.tell()
            for line in iter(journal.readline, b""):
                entry = _parse_line(line)
                if entry is None or not self._matches(entry):
                    break
                self.state, self._end, complete = entry["state"], entry["end"], journal.tell()
            journal.truncate(complete)
            journal.seek(complete)
        except BaseException:
            journal.close()
            raise
        self._file.truncate(self._end)
        if self.state is None:  # the head may be cut too
            self._file.seek(0)
            self._file.write(self._head)
        self._file.seek(self._end)
        return journal

    def _check_job(self, header: dict[str, Any] | None, job: dict[str, str]) -> None:
        if header is None or header.get("format") != FORMAT or not isinstance(header.get("job"), dict):
            raise DataError(f"{self.journal_path}: is damaged; restore it, {BEGIN_AGAIN}")
        if header.get("version") != VERSION:
            raise DataError(
                f"{self.journal_path}: has format version {header.get('version')}, not {VERSION}; "
                f"use the version of glassformer that began it, {BEGIN_AGAIN}"
            )
        before = header["job"]
        for name in dict.fromkeys([*job, *before]):
            if before.get(name) != job.get(name):
                raise DataError(
                    f"{self.path}: was begun with {name} {before.get(name, 'unset')}, and now it is "
                    f"{job.get(name, 'unset')}; use the former, {BEGIN_AGAIN}"
                )

    def _matches(self, entry: dict[str, Any]) -> bool:
        """True if the bytes of this window are in the part as they were written."""
        left, crc = entry["end"] - self._end, 0
        self._file.seek(self._end)
        while left > 0:
            data = self._file.read(min(left, MEGABYTE))
            if not data:
                return False
            left, crc = left - len(data), zlib.crc32(data, crc)
        return left == 0 and crc == entry["crc32"]


class _GzipMember:
    """Compressor of one gzip member after another; the header has no time and no name, so equal data gives equal bytes.

    ``gzip`` writes the operating system into the header, and how depends on the version of Python.
    """

    HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    _crc: int
    _size: int
    _header: bytes

    def __init__(self) -> None:
        self._begin()

    def compress(self, data: bytes) -> bytes:
        self._crc, self._size = zlib.crc32(data, self._crc), self._size + len(data)
        header, self._header = self._header, b""
        return header + self._deflate.compress(data)

    def finish(self) -> bytes:
        """The end of this member; data after it begins the next one."""
        trailer = struct.pack("<II", self._crc, self._size & 0xFFFFFFFF)
        data = self._header + self._deflate.flush() + trailer
        self._begin()
        return data

    def _begin(self) -> None:
        self._deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._header, self._crc, self._size = self.HEADER, 0, 0


def _journal_line(values: dict[str, Any]) -> bytes:
    """Serialize ``values`` as one line that begins with its CRC-32."""
    text = json.dumps(values).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parse_line(line: bytes) -> dict[str, Any] | None:
    """The values of a line; None if it is torn or damaged."""
    values = parse_object(line[9:])
    return values if values is not None and _journal_line(values) == line else None
