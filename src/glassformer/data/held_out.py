"""A share of the training examples that is held out for validation, chosen by a hash of their texts.

No random numbers and no order enter, so an example is on the same side in every run, after a resume, and in a file that
was shuffled or has grown. Equal texts, whitespace apart, are on one side. A larger share holds out the same examples
and more.

Text in one stream, images and time series are divided otherwise: at the end of each file, class by class, and in order
of time (``documents``, ``images``, ``series_config``).
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar

from glassformer.config import DataError
from glassformer.data.account import FileAccount

Part = Literal["all", "train", "held_out"]


class _Record(Protocol):
    @property
    def fault(self) -> str | None: ...


AnyRecord = TypeVar("AnyRecord", bound=_Record)


def check_one_validation(validation: Sequence[str], share: float) -> None:
    """A ``ValueError``, for a configuration's validator, when validation has files and a share of those of training."""
    if validation and share:
        raise ValueError("validation and validation_share are both given; keep one of them")


def is_held_out(texts: Sequence[str], share: float) -> bool:
    """True for ``share`` of all different ``texts``, such as a text and its pair."""
    if not share:
        return False
    content = b"\xff".join(" ".join(text.split()).encode(errors="surrogatepass") for text in texts)  # no UTF-8 has \xff
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") < share * 2**64


def of_part(
    records: list[AnyRecord], part: Part, share: float, texts: Callable[[AnyRecord], Sequence[str]], file: FileAccount
) -> list[AnyRecord]:
    """Those of ``records`` that belong to ``part``; what training leaves to validation is counted in ``file``.

    ``texts`` gives what decides. A record with a fault belongs to training, where it is dropped.
    """
    if part == "all":
        return records
    held_out = [record.fault is None and is_held_out(texts(record), share) for record in records]
    if part == "train":
        file.read += sum(held_out)
        file.held_out += sum(held_out)
    return [record for record, held in zip(records, held_out, strict=True) if held == (part == "held_out")]


def nothing_held_out(share: float, paths: Sequence[str]) -> DataError:
    """The error for a share of so few examples that it has none."""
    return DataError(
        f"{', '.join(paths)}: data.validation_share={share:g} holds out no example; raise it, or give data.validation"
    )


def only_held_out(where: str, name: str, share: float) -> DataError:
    """The error for a class, ``name``, whose every example is held out."""
    return DataError(
        f"{where} {name!r} occurs only among the examples that data.validation_share={share:g} holds out; "
        "add examples of it, lower the share, or give data.validation"
    )
