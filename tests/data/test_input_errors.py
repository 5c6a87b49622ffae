"""Input files with a wrong encoding, a wrong name, or without the separator of their format."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data import DataConfig, read_lines, read_pairs, read_texts
from glassformer.data.config import LabeledConfig, StreamConfig, TaggedConfig
from glassformer.data.documents import read_pieces
from glassformer.data.image_files import read_images
from glassformer.data.input_errors import wide_encoding
from glassformer.data.series_table import read_table
from glassformer.data.text_classification import read_labeled
from glassformer.data.token_classification import read_tagged
from glassformer.errors import DataError

WIDE = {
    "utf-16": "UTF-16",
    "utf-32": "UTF-32",
    "utf-16-le": "UTF-16LE",
    "utf-16-be": "UTF-16BE",
    "utf-32-le": "UTF-32LE",
    "utf-32-be": "UTF-32BE",
}
READERS: dict[str, Callable[[str], object]] = {
    "x.txt": lambda path: list(read_lines(path)),
    "x.tsv": lambda path: read_pairs(DataConfig(train=[path]), [path]),
    "x.jsonl": lambda path: read_pairs(DataConfig(train=[path]), [path]),
    "pieces.txt": lambda path: list(read_pieces(StreamConfig(train=[path]), path)),
    "x.csv": lambda path: list(read_labeled(LabeledConfig(train=[path]), path)),
    "labeled.tsv": lambda path: list(read_labeled(LabeledConfig(train=[path]), path)),
    "x.conll": lambda path: list(read_tagged(TaggedConfig(train=[path]), path)),
    "series.csv": read_table,
}
TEXT = "date,text\tlabel\n2024-01-01,1\tfine\n"


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("encoding", WIDE)
def test_text_readers_name_utf16_and_utf32(tmp_path: Path, name: str, encoding: str) -> None:
    for file, save in ((tmp_path / name, bytes), (tmp_path / f"{name}.gz", gzip.compress)):
        if name == "pieces.txt" and file.suffix == ".gz":
            continue
        file.write_bytes(save(TEXT.encode(encoding)))
        with pytest.raises(DataError) as caught:
            READERS[name](str(file))
        way_out = f"convert it: iconv -f {WIDE[encoding]} -t UTF-8 FILE > NEW_FILE"
        assert str(caught.value) == f"{file}: is encoded as {WIDE[encoding]}, not as UTF-8; {way_out}"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_text_readers_name_the_encoding_behind_an_empty_first_line(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "x.txt"
    file.write_bytes(f"\n{TEXT}".encode(encoding))
    with pytest.raises(DataError, match=f"is encoded as {WIDE[encoding]}, not as UTF-8"):
        list(read_lines(file))


@pytest.mark.parametrize("text", ["Hi", "Les élèves dorment.", "Кто там стоит у двери?", "a"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_wide_encodings_are_recognized_without_a_byte_order_mark(text: str, encoding: str) -> None:
    expected = None if text == "a" else WIDE[encoding]  # up to four bytes are not enough to decide
    assert wide_encoding(text.encode(encoding)) == expected


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_utf8_is_never_mistaken_for_a_wide_encoding(text: str) -> None:
    assert wide_encoding(text.encode()) is None
    assert wide_encoding(f"{text}\0{text}".encode()) is None
    assert wide_encoding(b"one\0two\0three.") is None  # two NULs, both at odd offsets


def test_tsv_without_tabs_is_refused_at_its_first_line(tmp_path: Path) -> None:
    path = str(tmp_path / "x.tsv")
    Path(path).write_text("\na dog, ein Hund\na cat, eine Katze\n", encoding="utf-8")
    fault = f"{path}, line 2: has one column and no tab, like all lines; put a tab between source and target"
    with pytest.raises(DataError) as caught:
        list(read_texts(DataConfig(train=[path]), "source"))
    assert str(caught.value) == fault


def test_validation_tsv_names_a_line_without_a_tab(tmp_path: Path) -> None:
    path = str(tmp_path / "x.tsv.gz")
    Path(path).write_bytes(gzip.compress(b"a\tb\nno tab here\n"))
    with pytest.raises(DataError) as caught:
        read_pairs(DataConfig(train=[path]), [path])
    fault = "has one column and no tab; put a tab between source and target, or remove the line"
    assert str(caught.value) == f"{path}, line 2: holds no pair of texts: {fault}"


def test_labeled_tsv_with_another_separator_names_the_missing_tab(tmp_path: Path) -> None:
    path = str(tmp_path / "x.tsv")
    Path(path).write_text("text;label\ngood;yes\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        READERS["labeled.tsv"](path)
    fault = "'text;label' has one column and no tab; put tabs between the columns"
    assert str(caught.value) == f"{path}, line 1: no column 'text': {fault}"


def test_pattern_without_a_match_names_its_folder_and_files(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.txt"):
        (tmp_path / name).write_text("x\n", encoding="utf-8")
    pattern = f"{tmp_path}/*.tsv"
    there = f"the pattern matches nothing in the folder {tmp_path}, which contains a.txt, b.jsonl"
    for read in (READERS["x.tsv"], READERS["x.conll"], READERS["x.txt"], lambda path: read_images([path])):
        with pytest.raises(DataError) as caught:
            read(pattern)
        assert str(caught.value).startswith(f"{pattern}: ")
        assert str(caught.value).endswith(f"; {there}")
    with pytest.raises(DataError, match=f"since the folder {tmp_path}/none does not exist$"):
        READERS["x.tsv"](f"{tmp_path}/none/*.tsv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=f"in the folder {tmp_path}/empty, which is empty$"):
        READERS["x.tsv"](f"{tmp_path}/empty/*.tsv")


def test_pattern_where_a_name_is_expected_lists_its_matches(tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / f"{number}.tsv").write_text("a\tb\n", encoding="utf-8")
    with pytest.raises(DataError, match="patterns are not expanded here; list the matching files") as caught:
        READERS["x.tsv"](f"{tmp_path}/*.tsv")
    assert str(caught.value).endswith(f"{tmp_path}/3.tsv, {tmp_path}/4.tsv and 2 more")


def test_misspelled_file_name_suggests_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("a\tb\n", encoding="utf-8")
    for read in (READERS["x.tsv"], READERS["x.txt"]):
        with pytest.raises(DataError, match=f"did you mean {tmp_path}/train.tsv[?]$"):
            read(f"{tmp_path}/trian.tsv")
