"""Lines and pairs as they lie on disk."""

import gzip
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.data import DataConfig, read_lines, read_pairs, read_texts
from glassformer.errors import DataError

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\t\r\ufeff"), max_size=12)
ODD_BREAKS = "a\rz\u2028b\x0bc\x85d\x0ce\x1cf\x00g"


def store(folder: Path, form: str, pairs: list[tuple[str, str]]) -> str:
    """The pairs in one of the forms, and the path by which a configuration names them."""
    plain = form.removesuffix(".gz")
    save = gzip.compress if form.endswith(".gz") else bytes
    ending = ".gz" if form.endswith(".gz") else ""
    if plain == "parallel":
        for side, language in enumerate(("en", "de")):
            content = "".join(f"{pair[side]}\n" for pair in pairs).encode()
            (folder / f"p.{language}{ending}").write_bytes(save(content))
        return str(folder / "p")
    rows = {
        "tsv": [f"{source}\t{target}\n" for source, target in pairs],
        "jsonl": [json.dumps({"translation": {"en": source, "de": target}}) + "\n" for source, target in pairs],
        "flat": [json.dumps({"de": target, "en": source}, ensure_ascii=False) + "\r\n" for source, target in pairs],
    }[plain]
    path = folder / f"p.{plain.replace('flat', 'jsonl')}{ending}"
    path.write_bytes(save("".join(rows).encode()))
    return str(path)


@pytest.mark.parametrize("form", ["parallel", "parallel.gz", "tsv", "tsv.gz", "jsonl", "jsonl.gz", "flat"])
@settings(max_examples=15, deadline=None)
@given(pairs=st.lists(st.tuples(texts, texts), min_size=1, max_size=5))
def test_every_form_gives_back_what_was_stored(form: str, pairs: list[tuple[str, str]]) -> None:
    if form.startswith("tsv"):
        pairs = [(source or "x", target) for source, target in pairs]
    with tempfile.TemporaryDirectory() as folder:
        path = store(Path(folder), form, pairs)
        config = DataConfig(source="en", target="de", train=[path])
        assert list(zip(*read_pairs(config, [path]), strict=True)) == pairs
        assert list(read_texts(config, "target")) == [target for _, target in pairs]


def test_a_line_ends_at_newline_only(tmp_path: Path, make_config: Callable[..., DataConfig]) -> None:
    (tmp_path / "train.en").write_bytes(f"{ODD_BREAKS}\nsecond".encode())
    (tmp_path / "train.de").write_bytes(b"\xef\xbb\xbferste\r\nzweite \r\n")
    config = make_config()
    assert read_pairs(config, config.train) == ([ODD_BREAKS, "second"], ["erste", "zweite "])
    assert list(read_lines(tmp_path / "train.en")) == [ODD_BREAKS, "second"]


def test_a_byte_order_mark_is_dropped_at_the_start_only(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes("\ufeffa\n\ufeffb\n".encode())
    assert list(read_lines(tmp_path / "lines")) == ["a", "\ufeffb"]


def test_several_paths_are_read_one_after_the_other(write_pairs, make_config) -> None:
    paths = [write_pairs([("a", "b")], "first"), write_pairs([("c", "d"), ("", "e")], "second")]
    assert read_pairs(make_config(), paths) == (["a", "c", ""], ["b", "d", "e"])


@pytest.mark.parametrize(("left", "right", "first_alone"), [(3, 5, 4), (5, 3, 4), (1, 9, 2)])
def test_unequal_line_counts_name_both_and_the_first_line_alone(
    tmp_path: Path, make_config: Callable[..., DataConfig], left: int, right: int, first_alone: int
) -> None:
    (tmp_path / "train.en").write_text("x\n" * left)
    (tmp_path / "train.de").write_text("x\n" * right)
    longer = "train.de" if right > left else "train.en"
    config = make_config()
    with pytest.raises(DataError) as caught:
        read_pairs(config, config.train)
    message = str(caught.value)
    assert f"has {min(left, right)} lines" in message
    assert f"has {max(left, right)}:" in message
    assert f"line {first_alone} of {tmp_path / longer} has no partner" in message
    with pytest.raises(DataError, match="no partner"):
        list(read_texts(config, "source"))


def trouble(tmp_path: Path) -> dict[str, tuple[str, str, str]]:
    """By case: the path a user gives, the file the error must name, and what it says of it."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.tsv").mkdir()
    (tmp_path / "lone.en").write_text("x\n")
    (tmp_path / "hollow.en").write_text("")
    (tmp_path / "hollow.de").write_text("x\n")
    (tmp_path / "hollow.jsonl.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "short.tsv.gz").write_bytes(gzip.compress(b"a\tb\n" * 999)[:-9])
    (tmp_path / "fake.tsv.gz").write_text("a\tb\n")
    broken = bytearray(gzip.compress(b"a\tb\n" * 999))
    broken[len(broken) // 2 :] = b"\xff" * (len(broken) // 2)
    (tmp_path / "broken.tsv.gz").write_bytes(broken)
    os.mkfifo(tmp_path / "pipe.tsv")
    (tmp_path / "loop.tsv").symlink_to(tmp_path / "loop.tsv")
    return {
        "missing prefix": ("nowhere", "nowhere.en", "no such file"),
        "missing side": ("lone", "lone.de", "no such file"),
        "full name for a prefix": ("lone.en", "lone.en.en", "give the prefix without .en"),
        "missing file": ("nowhere.tsv", "nowhere.tsv", "no such file"),
        "folder for a prefix": ("folder", "folder", "is a folder"),
        "folder for a file": ("folder.tsv", "folder.tsv", "is a folder"),
        "empty side": ("hollow", "hollow.en", "is empty"),
        "empty archive": ("hollow.jsonl.gz", "hollow.jsonl.gz", "is empty"),
        "cut archive": ("short.tsv.gz", "short.tsv.gz", "not a complete gzip file"),
        "not an archive": ("fake.tsv.gz", "fake.tsv.gz", "not a complete gzip file"),
        "broken archive": ("broken.tsv.gz", "broken.tsv.gz", "not a complete gzip file"),
        "pipe": ("pipe.tsv", "pipe.tsv", "not a regular file"),
        "endless link": ("loop.tsv", "loop.tsv", ""),
        "endless name": ("n" * 300 + ".tsv", "nnn.tsv", ""),  # since Python 3.14 a file that does not exist
    }


def test_files_that_cannot_be_used_are_named_in_one_line(
    tmp_path: Path, make_config: Callable[..., DataConfig]
) -> None:
    for case, (path, named, said) in trouble(tmp_path).items():
        with pytest.raises(DataError) as caught:
            read_pairs(make_config(), [str(tmp_path / path)])
        message = str(caught.value)
        assert named in message and said in message and "\n" not in message, case


@pytest.mark.parametrize(
    ("name", "line", "said"),
    [
        ("p.tsv", b"one column", "holds no pair"),
        ("p.tsv", b"a\t\xff", "not valid UTF-8"),
        ("p.jsonl", b"{", "holds no pair"),
        ("p.jsonl", b"[" * 200_000, "holds no pair"),
        ("p.jsonl", b"1" * 5000, "holds no pair"),
        ("p.jsonl", b'["en", "de"]', "holds no pair"),
        ("p.jsonl", b'{"en": "a"}', "holds no pair"),
        ("p.jsonl", b'{"en": "a", "de": 1}', "holds no pair"),
        ("p.jsonl", b'{"translation": "a", "en": "a", "de": "b"}', "holds no pair"),
        ("p.jsonl", b'{"en": "a", "de": "\\ud800"}', "not valid UTF-8"),
        ("p.jsonl", b'{"en": "\xc3", "de": "b"}', "not valid UTF-8"),
    ],
)
def test_validation_text_must_be_whole(
    tmp_path: Path, make_config: Callable[..., DataConfig], name: str, line: bytes, said: str
) -> None:
    good = b"a\tb" if name == "p.tsv" else b'{"en": "a", "de": "b"}'
    (tmp_path / name).write_bytes(good + b"\n" + line + b"\n" + good + b"\n")
    config = make_config(name)
    with pytest.raises(DataError, match=f"{name}, line 2: {said}"):
        read_pairs(config, config.train)
    assert list(read_texts(config, "source")) == ["a", "a"]


def test_lines_come_from_standard_input_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO("eins\r\nzw\u2028ei\n\n".encode())

    monkeypatch.setattr(sys, "stdin", Input)
    assert list(read_lines("-")) == ["eins", "zw\u2028ei", ""]


def test_lines_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"good\nb\xe4d\n")
    lines = read_lines(tmp_path / "in")
    assert next(lines) == "good"
    with pytest.raises(DataError, match="in, line 2: not valid UTF-8"):
        next(lines)
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            list(read_lines(path))
