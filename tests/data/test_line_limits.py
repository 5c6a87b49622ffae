"""Line length limits: files without line ends are refused in bounded memory."""

import gzip
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.data import DataConfig, LabeledConfig, StreamConfig, TaggedConfig, read_lines, read_table, read_texts
from glassformer.data.documents import training_texts
from glassformer.data.readers import raw_lines
from glassformer.data.text_classification import read_labeled
from glassformer.data.token_classification import read_tagged
from glassformer.errors import DataError

LIMIT = 100


class Stdin:
    """Standard input that returns ``data`` a few bytes at a time, like a pipe."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BufferedReader(io.BytesIO(data), buffer_size=7)


@settings(max_examples=200, deadline=None)
@given(
    data=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf"]), max_size=30).map(b"".join),
    ends=st.booleans(),
    limit=st.integers(1, 12),
)
def test_read_lines_yields_lines_up_to_the_limit_then_refuses(data: bytes, ends: bool, limit: int) -> None:
    lines = io.BytesIO(data).readlines()
    whole = [line.removesuffix(b"\n").removesuffix(b"\r") for line in lines]
    expected = [
        (content.removeprefix(b"\xef\xbb\xbf") if number == 0 else content) + b"\n" * (ends and raw.endswith(b"\n"))
        for number, (raw, content) in enumerate(zip(lines, whole, strict=True))
    ]
    too_long = next((number for number, content in enumerate(whole) if len(content) > limit), None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", Stdin(data))
        found = raw_lines(Path("-"), ends, limit)
        assert [line for _, line in zip(range(len(lines) if too_long is None else too_long), found, strict=False)] == (
            expected[:too_long]
        )
        if too_long is not None:
            with pytest.raises(
                DataError, match=rf"^standard input, line {too_long + 1}: has more than {limit} bytes; "
            ):
                next(found)


def test_read_lines_yields_each_line_of_a_pipe_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [b"one\ntw", b"o\n"]

    class Pipe(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
            piece = pieces.pop(0)  # raises IndexError if more is read than necessary
            buffer[: len(piece)] = piece
            return len(piece)

    stdin = Stdin(b"")
    stdin.buffer = io.BufferedReader(Pipe())
    monkeypatch.setattr(sys, "stdin", stdin)
    lines = read_lines("-")
    assert next(lines) == "one"
    assert next(lines) == "two"


def readers(folder: Path) -> dict[str, Callable[[str], Iterator[object]]]:
    """All line readers, keyed by an example file name."""
    common = {"max_line_bytes": LIMIT, "train": [str(folder / "unused")]}

    def pairs(path: str) -> Iterator[object]:
        prefix = path.removesuffix(".en")
        return read_texts(DataConfig.parse({**common, "source": "en", "target": "de", "train": [prefix]}), "source")

    def documents(path: str) -> Iterator[object]:
        return training_texts(StreamConfig.parse({**common, "train": [path]}))

    def labeled(path: str) -> Iterator[object]:
        return read_labeled(LabeledConfig.parse(common), path)

    def tagged(path: str) -> Iterator[object]:
        return read_tagged(TaggedConfig.parse(common), path)

    return {
        "p.en": pairs,
        "p.tsv": pairs,
        "p.jsonl": pairs,
        "t.txt": documents,
        "d.jsonl": documents,
        "l.csv": labeled,
        "l.tsv": labeled,
        "l.jsonl": labeled,
        "w.conll": tagged,
        "w.jsonl": tagged,
    }


@pytest.mark.parametrize("name", list(readers(Path())))
def test_training_readers_name_the_overlong_line_and_the_setting(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"text\tlabel\n" + b"x" * (LIMIT + 1) + b"\n")
    (tmp_path / "p.de").write_bytes(b"a\nb\n")
    if name == "l.csv":
        path.write_bytes(path.read_bytes().replace(b"\t", b","))
    with pytest.raises(DataError) as caught:
        list(readers(tmp_path)[name](str(path)))
    assert str(caught.value) == (
        f"{path}, line 2: has more than {LIMIT} bytes; break the line, or raise data.max_line_bytes"
    )


def test_compressed_file_with_one_endless_line_is_refused(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "bomb.txt.gz", "wb") as file:
        file.write(bytes(11_000_000))
    with pytest.raises(
        DataError, match=r"line 1: has more than 10,000,000 bytes; break the line, or raise data\.max_line"
    ):
        list(read_lines(tmp_path / "bomb.txt.gz"))
    (tmp_path / "bomb.txt.gz").rename(tmp_path / "bomb.csv.gz")
    with pytest.raises(DataError, match=r"line 1: has more than 10,000,000 bytes; break the line$"):
        read_table(str(tmp_path / "bomb.csv.gz"))
