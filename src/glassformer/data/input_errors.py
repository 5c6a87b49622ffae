"""Errors for unusable input files: another encoding, invalid CSV, a missing file, a pattern without a match."""

import csv
import difflib
import glob
import os
from itertools import islice
from pathlib import Path

from glassformer.errors import DataError

_BYTE_ORDER_MARKS = {  # UTF-32 first: its little-endian mark begins with that of UTF-16
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
SAMPLE_BYTES = 1024
NAMES_LISTED = 5
NAMES_READ = 10_000  # maximum per folder: a hint must not take longer than the work


def invalid_csv(name: str | Path, line: int, error: csv.Error) -> DataError:
    """Error for a line that Python's ``csv`` cannot read."""
    if "field limit" in str(error):
        return DataError(
            f"{name}, line {line}: a field has more than {csv.field_size_limit():,} characters; shorten it, "
            "close the quotes if they are open, or give a .jsonl"
        )
    return DataError(
        f"{name}, line {line}: not valid CSV ({error}); "
        'close the quotes of its fields, and write a quote in one twice ("")'
    )


def refuse_wide_encoding(name: str | Path, opening: bytes) -> None:
    """Raise a ``DataError`` when ``opening``, the first bytes of a file, is UTF-16 or UTF-32.

    Most such files are valid UTF-8 with a NUL in every character, and would be read as different text.
    """
    encoding = wide_encoding(opening)
    if encoding is not None:
        raise DataError(
            f"{name}: is encoded as {encoding}, not as UTF-8; convert it: iconv -f {encoding} -t UTF-8 FILE > NEW_FILE"
        )


def wide_encoding(opening: bytes) -> str | None:
    """The ``iconv`` name of a 16- or 32-bit encoding of ``opening``; None for any other encoding.

    Without a byte order mark, the positions of NUL bytes decide: in UTF-16 they are all even or all odd. One or two NUL
    bytes in other text are not enough, because NUL is a UTF-8 character too.
    """
    for mark, name in _BYTE_ORDER_MARKS.items():
        if opening.startswith(mark):
            return name
    sample = opening[:SAMPLE_BYTES]
    sample = sample[: len(sample) // 4 * 4]
    if sample.count(0) < 2 or not any(sample):
        return None
    blank = [not any(sample[place::4]) for place in range(4)]
    if len(sample) >= 8 and blank[2] and blank[3]:
        return "UTF-32LE"
    if len(sample) >= 8 and blank[0] and blank[1]:
        return "UTF-32BE"
    pairs = len(sample) // 2
    for nuls, others, name in (
        (sample[1::2].count(0), sample[::2].count(0), "UTF-16LE"),
        (sample[::2].count(0), sample[1::2].count(0), "UTF-16BE"),
    ):
        if not others and (nuls == pairs or (nuls > 2 and nuls >= 0.1 * pairs)):
            return name
    return None


def missing(path: Path) -> DataError:
    """The error for a file that does not exist."""
    return DataError(f"{path}: no such file; {way_out(path, 'name one that exists')}")


def way_out(path: Path, default: str) -> str:
    """Hint for the missing ``path``: a similar name, or the matches of a pattern; else ``default``."""
    if glob.has_magic(str(path)):
        return _about_pattern(path)
    close = difflib.get_close_matches(path.name, _names(path.parent), 1, 0.8)
    return f"did you mean {path.parent / close[0]}?" if close else default


def _about_pattern(path: Path) -> str:
    matches = sorted(islice(glob.iglob(str(path)), NAMES_READ))
    if matches:
        return f"patterns are not expanded here; list the matching files: {_listed(matches)}"
    folder = path.parent
    while glob.has_magic(str(folder)):
        folder = folder.parent
    if not folder.is_dir():
        return f"the pattern matches nothing, since the folder {folder} does not exist"
    names = sorted(_names(folder))
    holds = f"which contains {_listed(names)}" if names else "which is empty"
    return f"the pattern matches nothing in the folder {folder}, {holds}"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:NAMES_LISTED]) + (f" and {len(names) - NAMES_LISTED:,} more" * (len(names) > NAMES_LISTED))


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, NAMES_READ) if not entry.name.startswith(".")]
    except OSError:
        return []
