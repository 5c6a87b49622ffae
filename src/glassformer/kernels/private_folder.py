"""A folder for compiled code that only this user can write to, and files in it that are loaded as they were verified.

What lies there is executed, so owner and mode decide, and not the name. Everything is reached through the descriptor of
the folder that was checked: whoever can write to a parent can move the folder away, but not put another in its place.
The SHA-256 beside each file finds damage. Against malice there is only the rule that nobody else can write here.
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
    """A folder or file that somebody else can have written."""


class PrivateFolder:
    """``path``, made where it is not there. Close it when it is no longer needed; what was opened in it stays open.

    Raises ``NotPrivateError`` where somebody else can write there, ``OSError`` where it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        if path.is_symlink():
            raise NotPrivateError(f"{path}: is a link")
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        if fault := _fault(self._descriptor):
            self.close()
            raise NotPrivateError(f"{path}: {fault}")
        self._try_to_write()

    def close(self) -> None:
        os.close(self._descriptor)

    def store(self, name: str, data: bytes) -> None:
        """Write a file and its SHA-256; each is at every moment the old one or the new one."""
        self._write(name, data)
        self._write(f"{name}.sha256", hashlib.sha256(data).hexdigest().encode())

    def open(self, name: str) -> int | None:
        """A descriptor of the file, verified through it; None where it is missing or damaged.

        A file that somebody else can have written is passed over with a warning.
        """
        found = self._open(name)
        if found is None:
            return None
        if fault := _fault(found):
            warnings.warn(f"{self.path / name}: {fault}, so it is not run but compiled again", stacklevel=6)
        elif (digest := self._open(f"{name}.sha256")) is not None:
            stored = os.pread(digest, 64, 0)
            os.close(digest)
            if stored == hashlib.sha256(read(found)).hexdigest().encode():
                return found
        os.close(found)
        return None

    def _open(self, name: str) -> int | None:
        """Does not wait for a FIFO."""
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

    Where it is refused, with a warning that says why, or cannot be made: a temporary one, removed at the end.
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
    """A path that leads to the open file itself, not to what has its name by now.

    The descriptor has to stay open: the loader knows a library again by its path.
    """
    path = f"/proc/self/fd/{descriptor}"
    if os.path.exists(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="glassformer-") as own:  # where there is no /proc: of the same bytes
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
        return PrivateFolder(path) if path.is_absolute() else None  # nobody knows where the user is at home
    except NotPrivateError as error:
        warnings.warn(
            f"{error}, and code from there would be run; it is compiled again in each process. "
            f"Remove {path}, and it is made anew, for you alone",
            stacklevel=7,
        )
    except OSError:
        pass
    return None


def _fault(descriptor: int) -> str | None:
    """How somebody else can have written what is open; None where nobody can."""
    info = os.fstat(descriptor)
    if not (stat.S_ISDIR(info.st_mode) or stat.S_ISREG(info.st_mode)):
        return "is neither a folder nor a file"
    if info.st_uid != os.getuid():
        return f"belongs to another user ({info.st_uid})"
    return f"others can write it (mode {stat.S_IMODE(info.st_mode):04o})" if info.st_mode & OTHERS_MAY_WRITE else None
