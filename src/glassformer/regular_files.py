"""Regular files, opened without ever reading from a pipe, a device or a socket.

A folder that somebody else wrote may hold a named pipe, on which reading waits forever, a device that never ends, or a
link to a file elsewhere. Configurations, checkpoints and pictures are therefore opened here, and text where it is read
more than once.
"""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
MEGABYTE = 1 << 20
MAX_LINE_BYTES = 10_000_000
"""Longest line of a text file that is read, where nothing else is set."""


class UnsuitableFileError(OSError):
    """Not a regular file, a link out of its folder, or too large; its text is the reason."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(reason)
        self.strerror, self.filename = reason, str(path)

    def __str__(self) -> str:
        return str(self.strerror)


def open_regular(path: str | Path, within: Path | None = None) -> BufferedReader:
    """Open a regular file for reading bytes; ``OSError`` for everything else, without opening it.

    With ``within``, a link that leads out of that folder is refused.
    """
    if within is not None and os.path.islink(path) and not _inside(path, within):
        raise UnsuitableFileError(path, f"is a link out of {within}; put the file itself there")
    _require_regular(os.stat(path), path)
    # Between the two checks the file may be replaced by a pipe: non-blocking, opening that would not wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _require_regular(os.fstat(descriptor), path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | Path, limit: int, within: Path | None = None) -> bytes:
    """The content of a regular file of at most ``limit`` bytes; ``OSError`` for everything else."""
    with open_regular(path, within) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(limit + 1) if size <= limit else b""
    if max(size, len(data)) > limit:
        raise UnsuitableFileError(
            path, f"has {max(size, len(data)):,} bytes, more than the {limit:,} such a file may have"
        )
    return data


def _inside(path: str | Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _require_regular(found: os.stat_result, path: str | Path) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        kind = KINDS.get(stat.S_IFMT(found.st_mode), "a special file")
        raise UnsuitableFileError(path, f"is {kind}, not a regular file")
