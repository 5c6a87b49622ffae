"""Opening of regular files; pipes, devices and sockets are refused.

An untrusted folder may hold a named pipe, a device, or a link to a file elsewhere. Reading from a pipe or a device may
never end. Configurations, checkpoints and images are therefore opened here, and so is text that is read more than once.
"""

import errno
import fcntl
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from glassformer.errors import DataError

KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
MEGABYTE = 1 << 20
MAX_LINE_BYTES = 10_000_000
"""Default limit for a line of a text file."""


def display_name(path: str | Path) -> str:
    """Name of an input in messages; ``-`` is standard input."""
    return "standard input" if str(path) == "-" else str(path)


class UnsuitableFileError(OSError):
    """A file that is not regular, links out of its folder, or is too large. The message is the reason."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(reason)
        self.strerror, self.filename = reason, str(path)

    def __str__(self) -> str:
        return str(self.strerror)


def open_regular(path: str | Path, within: Path | None = None) -> BufferedReader:
    """Open a regular file for reading bytes; raise ``OSError`` for any other kind, without opening it.

    With ``within``, a link that leads out of that folder is refused.
    """
    if within is not None and os.path.islink(path) and not _inside(path, within):
        raise UnsuitableFileError(path, f"is a link out of {within}; put the file itself there")
    _require_regular(os.stat(path), path)
    # A pipe may replace the file between the two checks; O_NONBLOCK keeps ``open`` from waiting on it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _require_regular(os.fstat(descriptor), path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | Path, limit: int, within: Path | None = None) -> bytes:
    """Read a regular file of at most ``limit`` bytes; raise ``OSError`` for anything else."""
    with open_regular(path, within) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(limit + 1) if size <= limit else b""
    if max(size, len(data)) > limit:
        raise UnsuitableFileError(path, f"has {max(size, len(data)):,} bytes, more than the limit of {limit:,}")
    return data


def _inside(path: str | Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _require_regular(info: os.stat_result, path: str | Path) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(info.st_mode):
        kind = KINDS.get(stat.S_IFMT(info.st_mode), "a special file")
        raise UnsuitableFileError(path, f"is {kind}, not a regular file")


def open_locked(path: Path, busy: str) -> BinaryIO:
    """Open a file for reading and writing, and lock it; create it if it does not exist.

    A file system without locks is accepted. Raises ``DataError`` with the message ``busy`` if another process holds the
    lock, or if the file is not regular.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        file = os.fdopen(descriptor, "r+b")
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DataError(f"{path}: is not a regular file; move it, or name another output")
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DataError(busy) from None
            except OSError:
                pass  # a file system without locks
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # the process that held the lock has renamed or removed it
