"""A folder for compiled code that only this user can write to; its files are verified before they are loaded.

The files are executed, so trust depends on owner and mode, not on the name. All access goes through the descriptor of
the checked folder: another user with write access to a parent can move the folder away, but cannot replace it. The
SHA-256 next to each file detects damage. Only the permissions protect against malice.
"""

import hashlib
import os
import secrets
import stat
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NotPrivateError(PermissionError):
    """Error for a folder or file that another user may have written."""


class PrivateFolder:
    """The folder ``path``, created if missing. Close it when it is no longer needed; files opened in it stay open.

    Raises ``NotPrivateError`` if another user can write there, and ``OSError`` if it cannot be created.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        if path.is_symlink():
            raise NotPrivateError(f"{path}: is a link")
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        if reason := _not_private_reason(self._descriptor):
            self.close()
            raise NotPrivateError(f"{path}: {reason}")
        self._try_to_write()

    def close(self) -> None:
        os.close(self._descriptor)

    def store(self, name: str, data: bytes) -> None:
        """Write a file and its SHA-256; each is replaced atomically."""
        self._write(name, data)
        self._write(f"{name}.sha256", hashlib.sha256(data).hexdigest().encode())

    def open(self, name: str) -> int | None:
        """Open the file, verify it, and return its descriptor; None if it is missing or damaged.

        A file that another user may have written is ignored with a warning.
        """
        file = self._open(name)
        if file is None:
            return None
        if reason := _not_private_reason(file):
            warnings.warn(f"{self.path / name}: {reason}; compiling the kernels again", stacklevel=6)
        elif (digest := self._open(f"{name}.sha256")) is not None:
            stored = os.pread(digest, 64, 0)
            os.close(digest)
            if stored == hashlib.sha256(read(file)).hexdigest().encode():
                return file
        os.close(file)
        return None

    def _open(self, name: str) -> int | None:
        """Open a file for reading, without following a link or waiting for a FIFO; None if that fails."""
        try:
            return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._descriptor)
        except OSError:
            return None

    def _write(self, name: str, data: bytes) -> None:
        unfinished, here = f".{name}.{secrets.token_hex(4)}", self._descriptor
        file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=here)
        try:
            with open(file, "wb") as stream:
                stream.write(data)
            os.rename(unfinished, name, src_dir_fd=here, dst_dir_fd=here)
        except BaseException:
            with suppress(OSError):
                os.unlink(unfinished, dir_fd=here)
            raise

    def _try_to_write(self) -> None:
        name = f".{secrets.token_hex(8)}"
        try:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._descriptor))
            os.unlink(name, dir_fd=self._descriptor)
        except OSError:
            self.close()
            raise


@contextmanager
def code_folder() -> Iterator[PrivateFolder]:
    """The user's folder for compiled code: ``native`` in the cache of glassformer.

    If it is not private (with a warning) or cannot be created, a temporary folder takes its place, removed at the end.
    """
    folder = _users_folder()
    if folder is not None:
        try:
            yield folder
        finally:
            folder.close()
        return
    with tempfile.TemporaryDirectory(prefix="glassformer-") as own:
        folder = PrivateFolder(Path(own) / "native")
        try:
            yield folder
        finally:
            folder.close()


@contextmanager
def path_of(descriptor: int) -> Iterator[str]:
    """A path to the open file itself, even if another file has its name now.

    The descriptor must stay open: the loader identifies a library by its path.
    """
    path = f"/proc/self/fd/{descriptor}"
    if os.path.exists(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="glassformer-") as own:  # a copy on systems without /proc
        copy = Path(own) / "library"
        copy.write_bytes(read(descriptor))
        yield str(copy)


def read(descriptor: int) -> bytes:
    """The content of the open file from its beginning."""
    with open(descriptor, "rb", closefd=False) as stream:
        stream.seek(0)
        return stream.read()


def _users_folder() -> PrivateFolder | None:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = Path(home) / "glassformer" / "native"
    try:
        return PrivateFolder(path) if path.is_absolute() else None  # the home folder is unknown
    except NotPrivateError as error:
        warnings.warn(
            f"{error}; compiling the kernels again in each process. "
            f"Remove {path}, and glassformer creates it with private permissions",
            stacklevel=7,
        )
    except OSError:
        pass
    return None


def _not_private_reason(descriptor: int) -> str | None:
    """Reason why another user may have written the open file or folder; None if it is private."""
    info = os.fstat(descriptor)
    if not (stat.S_ISDIR(info.st_mode) or stat.S_ISREG(info.st_mode)):
        return "is neither a folder nor a file"
    if info.st_uid != os.getuid():
        return f"belongs to another user ({info.st_uid})"
    if info.st_mode & OTHERS_MAY_WRITE:
        return f"others can write to it (mode {stat.S_IMODE(info.st_mode):04o})"
    return None
