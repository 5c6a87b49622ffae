"""Training examples held out for validation, selected by a hash of their texts.

The selection uses neither random numbers nor the order of examples. An example is therefore on the same side in every
run, after a resume, and in a file that was shuffled or extended. Texts that are equal except for whitespace are on the
same side. A larger share holds out the same examples and more.

Token streams, images and time series are divided differently: at the end of each file, class by class, and by time
(``documents``, ``images``, ``time_series``).
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from glassformer.data.read_report import FileReadReport
from glassformer.data.readers import Row
from glassformer.errors import DataError, nearest

Part = Literal["all", "train", "held_out"]


V = TypeVar("V")


def is_held_out(texts: Sequence[str], share: float) -> bool:
    """True if the hash of ``texts``, such as a text and its pair, falls into the held-out ``share``."""
    if not share:
        return False
    content = b"\xff".join(" ".join(text.split()).encode(errors="surrogatepass") for text in texts)  # UTF-8 has no \xff
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") < share * 2**64


def of_part(
    rows: list[Row[V]], part: Part, share: float, texts: Callable[[V], Sequence[str]], file: FileReadReport
) -> list[Row[V]]:
    """The ``rows`` of ``part``; for training, ``file`` counts the held-out rows.

    ``texts`` returns the texts to hash. A row with a fault belongs to training, where it is dropped.
    """
    if part == "all":
        return rows
    held_out = [row.fault is None and is_held_out(texts(row.value), share) for row in rows]
    if part == "train":
        file.read += sum(held_out)
        file.held_out += sum(held_out)
    return [row for row, held in zip(rows, held_out, strict=True) if held == (part == "held_out")]


def nothing_held_out(share: float, paths: Sequence[str]) -> DataError:
    """Error for a share that holds out no example, since there are too few."""
    return DataError(
        f"{', '.join(paths)}: data.validation_share={share:g} holds out no example; raise it, or set data.validation"
    )


def unknown_class(where: str, name: str, known: Sequence[str], share: float = 0.0) -> DataError:
    """Error for class ``name`` that is not ``known`` from training.

    ``share``: ``data.validation_share`` if the example is held out, else 0.
    """
    if not share:
        return DataError(f"{where} {name!r} does not occur in the training data; {nearest(name, list(known))}")
    return DataError(
        f"{where} {name!r} occurs only among the examples that data.validation_share={share:g} holds out; "
        "add examples of it, lower the share, or set data.validation"
    )
