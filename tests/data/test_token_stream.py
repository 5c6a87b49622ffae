"""A stream holds every document once, whole and in order, or the account says why not."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import glassformer.data.documents as documents_module
from glassformer.data import readers
from glassformer.data.config import StreamConfig
from glassformer.data.documents import training_texts
from glassformer.data.token_stream import Stream, prepare_stream, training_streams, validation_stream
from glassformer.errors import ConfigError, DataError
from glassformer.text import TextConfig, Tokenizer, train_tokenizers

TEXT = "First Citizen:\nBefore we proceed any  further, hear\n\nme speak.\r\nAll: é, speak — speak!\n"


def learned(kind: str, *texts: str) -> Tokenizer:
    config = TextConfig.parse({"kind": kind, "vocab_size": 300, "min_frequency": 1})
    return train_tokenizers(config, lambda: iter(texts), lambda: iter(())).source


@pytest.fixture(scope="session")
def words() -> Tokenizer:
    return learned("word", " ".join("abcdefgh"))


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., StreamConfig]:
    def make(*paths: str, **values: object) -> StreamConfig:
        train = [str(tmp_path / path) for path in paths]
        return StreamConfig.parse({"train": train, "cache": str(tmp_path / "cache"), **values})

    return make


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], str]:
    def write(name: str, text: str | bytes) -> str:
        raw = text.encode() if isinstance(text, str) else text
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return name

    return write


def texts(stream: Stream, tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.decode(stream.document(i).tolist()) for i in range(stream.documents)]


def joined(stream: Stream, tokenizer: Tokenizer) -> list[int]:
    """The documents end to end with the end token between them, by definition."""
    parts = [[*stream.document(i).tolist(), tokenizer.end_id] for i in range(stream.documents)]
    return [id for part in parts for id in part][:-1]


@pytest.mark.parametrize("kind", ["char", "bpe", "word"])
@pytest.mark.parametrize("name", ["text.txt", "text.txt.gz"])
@pytest.mark.parametrize("chunk", [1, 2, 4096])
def test_a_file_read_line_by_line_has_the_ids_of_its_text(
    config, write, kind: str, name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "CHUNK_ROWS", chunk)
    whole = TEXT.replace("\r", "")
    tokenizer = learned(kind, whole)
    (stream,) = training_streams(config(write(name, "\ufeff" + TEXT)), tokenizer)
    assert stream.ids.tolist() == tokenizer.encode(whole)
    assert (stream.characters, stream.bytes) == (len(whole), len(whole.encode()))
    assert stream.account.source.tokens == len(stream)
    assert stream.account.lines()[1].endswith("(0.00%)")
    assert isinstance(stream.ids.base, np.memmap)
    assert "".join(training_texts(config(name))) == whole


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        ("x.txt", "a b\nc\nd e f\n", "line"),
        ("x.txt", "a b\nc\nd e f", "line"),
        ("x.txt", "\n \na b\n\n\nc\n\nd\ne f\n\n", "blank_line"),
        ("x.jsonl", '{"text": "a b", "n": 1}\n{"text": "c"}\n{"text": "d\\ne f"}\n', "file"),
    ],
)
def test_documents_lie_end_to_end_with_the_end_token_between_them(
    config, write, words: Tokenizer, name: str, text: str, form: str
) -> None:
    (stream,) = training_streams(config(write(name, text), documents=form), words)
    assert texts(stream, words) == ["a b", "c", "d e f"]
    assert stream.ids.tolist() == joined(stream, words)
    assert len(stream) == 6 + 2
    assert stream.account.source.tokens == 6
    with pytest.raises(IndexError):
        stream.document(3)


@pytest.mark.parametrize("kind", ["char", "bpe", "word"])
def test_a_long_line_is_read_in_parts(config, write, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_module, "PIECE_CHARACTERS", 7)
    whole = "  a few words, and\nnospaceshereatall but  here: é.\n\ntwo   "
    tokenizer = learned(kind, whole)
    given = config(write("x.txt", whole), write("y.jsonl", json.dumps({"text": whole}) + "\n"))
    (stream,) = training_streams(given, tokenizer)
    assert [stream.document(i).tolist() for i in range(2)] == [tokenizer.encode(whole)] * 2
    assert max(map(len, training_texts(given))) == 29
    assert stream.characters == 2 * len(whole)


def test_a_document_of_several_lines_keeps_its_line_ends_and_no_more(config, write) -> None:
    tokenizer = learned("char", "ab\n")
    (stream,) = training_streams(config(write("x.txt", "a\nb\n\n\nb\na\n"), documents="blank_line"), tokenizer)
    assert texts(stream, tokenizer) == ["a\nb", "b\na"]
    assert stream.characters == 6


@pytest.mark.parametrize("chunk", [1, 3, 4096])
def test_dropped_documents_leave_no_trace_but_in_the_account(
    config, write, words: Tokenizer, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "CHUNK_ROWS", chunk)
    bad = b"a\nb\xff\n\nc\n \n\nd d\nd\n\xfe\xfe\na\n\n\x00\n\nb\xc3"
    (stream,) = training_streams(config(write("x.txt", bad), documents="blank_line"), words)
    (file,) = stream.account.files
    assert texts(stream, words) == ["c"]
    assert stream.ids.tolist() == words.encode("c")
    assert (file.read, file.kept) == (5, 1)
    assert file.dropped["invalid_utf8"] == 3
    assert file.dropped["empty"] == 1
    assert file.first_lines["invalid_utf8"] == [2, 9, 14]
    assert file.first_lines["empty"] == [12]
    assert stream.characters == 1
    lines = b'{"text": "a"}\nnot json\n{"other": 1}\n\n{"text": 3}\n[]\n\xff\n{"text": "\\ud800"}\n{"text": "b"}\n'
    (stream,) = training_streams(config(write("x.jsonl", lines)), words)
    (file,) = stream.account.files
    assert texts(stream, words) == ["a", "b"]
    assert file.first_lines["malformed"] == [2, 3, 5, 6]
    assert file.first_lines["empty"] == [4]
    assert file.first_lines["invalid_utf8"] == [7, 8]
    assert file.read == 9


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"a\nb\xff\n", r"no document is left .*x\.txt: 1 read, 0 kept, invalid_utf8 1 \(line 2\).*iconv"),
        ("x.txt", b"", r"1 read, 0 kept, empty 1 \(line 1\)"),
        ("x.jsonl", b"\n", r"empty 1 \(line 1\)"),
        ("x.csv", b"a", r"x\.csv: a table is not supported as text; convert its text to \.txt or \.jsonl"),
        ("missing.txt", None, r"missing\.txt: no such file"),
    ],
)
def test_text_that_cannot_be_used_is_refused_in_one_line(
    config, write, words: Tokenizer, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        write(name, content)
    with pytest.raises(DataError, match=message) as refusal:
        training_streams(config(name), words)
    assert "\n" not in str(refusal.value)
    assert not list(Path(config(name).cache).glob("*"))


def test_half_a_gzip_file_is_refused(config, write, words: Tokenizer) -> None:
    write("x.txt", gzip.compress(b"a b c\n" * 1000)[:-9])
    Path(config("x.txt").train[0]).rename(Path(config("x.txt.gz").train[0]))
    with pytest.raises(DataError, match="not a complete gzip file"):
        training_streams(config("x.txt.gz"), words)


def test_the_held_out_share_is_the_last_characters_of_each_file(config, write) -> None:
    """int(n · 0.9), as in nanoGPT."""
    whole = [f"line {i} of a text\n" * 3 for i in range(7)]
    tokenizer = learned("char", *whole)
    names = [write("one.txt", "".join(whole)), write("two.txt", "".join(whole[2:]))]
    given = config(*names, validation_share=0.1)
    (train,), held_out = training_streams(given, tokenizer), validation_stream(given, tokenizer)
    parts = [("".join(lines)[:cut], "".join(lines)[cut:]) for lines, cut in _cuts(whole, whole[2:])]
    assert texts(train, tokenizer) == [first for first, _ in parts]
    assert held_out is not None
    assert texts(held_out, tokenizer) == [last for _, last in parts]
    assert "".join(training_texts(given)) == "".join(first for first, _ in parts)


def _cuts(*files: list[str]) -> Iterator[tuple[list[str], int]]:
    for lines in files:
        yield lines, int(sum(map(len, lines)) * 0.9)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
@pytest.mark.parametrize("form", ["line", "blank_line", "jsonl"])
def test_a_division_keeps_documents_whole(config, write, words: Tokenizer, form: str, share: float) -> None:
    documents = ["a b", "c", "d e f", "g", "h a b c", "d"]
    if form == "jsonl":
        name = write("x.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in documents))
    else:
        name = write("x.txt", ("\n" if form == "line" else "\n\n").join(documents))
    given = config(name, validation_share=share, documents="line" if form == "jsonl" else form)
    (train,), held_out = training_streams(given, words), validation_stream(given, words)
    assert held_out is not None
    assert train.documents > 0
    assert [*texts(train, words), *texts(held_out, words)] == documents
    assert list(training_texts(given)) == documents[: train.documents]


def test_a_share_in_which_no_document_begins_holds_nothing_out(config, write, words: Tokenizer) -> None:
    given = config(write("x.txt", "a\nb c d e f g h"), validation_share=0.1, documents="line")
    with pytest.raises(DataError, match=r"no document is left .*0 read"):
        validation_stream(given, words)


def test_validation_is_read_whole_where_it_is_given(config, write, words: Tokenizer, tmp_path: Path) -> None:
    write("x.txt", "a"), write("y.txt", "b c")
    assert validation_stream(config("x.txt"), words) is None
    stream = validation_stream(config("x.txt", validation=[str(tmp_path / "y.txt")]), words)
    assert stream is not None
    assert texts(stream, words) == ["b c"]


def test_weights_make_a_stream_of_each_path(config, write, words: Tokenizer) -> None:
    names = [write("x.txt", "a"), write("y.txt", "b c")]
    assert [texts(stream, words) for stream in training_streams(config(*names), words)] == [["a", "b c"]]
    streams = training_streams(config(*names, weights=[1, 2]), words)
    assert [texts(stream, words) for stream in streams] == [["a"], ["b c"]]


def test_what_is_in_the_cache_is_not_encoded_again(
    config, write, words: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = config(write("x.txt", "a b\nc"), documents="line")
    before = prepare_stream(given, given.train, words)
    Path(given.train[0]).rename(Path(given.train[0]).with_name("moved.txt"))
    moved = config("moved.txt", documents="line", context=3)
    monkeypatch.setattr(Tokenizer, "encode_batch", lambda *_: pytest.fail("encoded again"))
    after = prepare_stream(moved, moved.train, words)
    assert after.fingerprint == before.fingerprint
    assert after.ids.tolist() == before.ids.tolist()
    assert after.account.files[0].path == moved.train[0]
    assert (after.characters, after.bytes) == (4, 4)


def test_whatever_matters_makes_another_stream(config, write, words: Tokenizer) -> None:
    name, other = write("x.txt", "a b\nc\n\nd"), write("y.txt", "a b\nc\n\ne")
    variants = [
        (config(name), words),
        (config(name), learned("word", "a b c d e f")),
        (config(name, documents="line"), words),
        (config(name, validation_share=0.5), words),
        (config(name, validation_share=0.4), words),
        (config(other), words),
        (config(name, other), words),
        (config(other, name), words),
    ]
    prints = [training_streams(*variant)[0].fingerprint for variant in variants]
    held_out = validation_stream(config(name, validation_share=0.5), words)
    assert held_out is not None
    assert len({*prints, held_out.fingerprint}) == len(variants) + 1


@pytest.mark.parametrize("damaged", ["stream.ids", "stream.offsets", "index.json"])
def test_a_damaged_cache_is_built_again(config, write, words: Tokenizer, damaged: str) -> None:
    given = config(write("x.txt", "a b\nc"), documents="line")
    before = training_streams(given, words)[0].ids.tolist()
    (folder,) = Path(given.cache).iterdir()
    whole = (folder / damaged).read_bytes()
    for changed in (whole[:-8], bytes([whole[0] ^ 1]) + whole[1:]):
        (folder / damaged).write_bytes(changed)
        with pytest.warns(UserWarning, match=rf"^{folder / damaged}: is damaged .*; rebuilding the token cache$"):
            (stream,) = training_streams(given, words)
        assert stream.ids.tolist() == before


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"weights": [1, 2]}, "weights has 2 values and train 1 paths; give one weight a path, or none"),
        ({"weights": [0]}, "every weight is a number above 0"),
        ({"validation": ["v"], "validation_share": 0.1}, "validation and validation_share are both set; remove one"),
        ({"context": 64, "batch_tokens": 63}, "context=64 does not fit batch_tokens=63; raise it to 64 or lower"),
        ({"documents": "page"}, "documents='page'"),
        ({"validation_share": 1.0}, "validation_share=1.0"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(config, values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config("x.txt", **values)


CODE = "def f(a):\n    if a:\n\n\t\treturn  a\n\n\n    # 日本 'it's'\n  \n" * 40


@pytest.mark.parametrize("piece_characters", [7, 64, 1 << 16])
def test_stream_encodes_a_byte_level_file_in_pieces_as_one_text(config, write, monkeypatch, piece_characters):
    """Byte-level tokens include line ends and following spaces, so line-by-line encoding would differ."""
    monkeypatch.setattr(documents_module, "PIECE_CHARACTERS", piece_characters)
    tokenizer = learned("bytes", CODE)
    stream = prepare_stream(config(write("a.txt", CODE)), config(write("a.txt", CODE)).train, tokenizer)
    assert stream.ids.tolist() == tokenizer.encode(CODE)
    assert tokenizer.decode(stream.ids.tolist()) == CODE
    assert any("\n" in token.strip(" ") and token != "\n" for token in tokenizer.tokens(stream.ids.tolist()))


@pytest.mark.parametrize("documents", ["line", "blank_line"])
def test_stream_restores_byte_level_documents(config, write, documents):
    tokenizer = learned("bytes", CODE)
    found = config(write("a.txt", CODE), documents=documents)
    stream = prepare_stream(found, found.train, tokenizer)
    lines = [line for line in CODE.split("\n") if line.strip()]
    blocks = "\n".join("" if not line.strip() else line for line in CODE.split("\n")).split("\n\n")
    expected = lines if documents == "line" else [block.strip("\n") for block in blocks if block.strip()]
    assert texts(stream, tokenizer) == expected


def test_training_texts_keep_line_ends_for_byte_level_tokenizers(config, write):
    found = config(write("a.txt", CODE))
    assert "".join(training_texts(found, tokens_span_lines=True)) == CODE
    assert len(list(training_texts(found, tokens_span_lines=True))) == 1


def test_training_texts_do_not_cut_text_without_boundaries(config, write, monkeypatch):
    monkeypatch.setattr(documents_module, "PIECE_CHARACTERS", 4)
    for text in ("x" * 100, "\n" * 100, "a" + "\n" * 50):
        found = config(write("a.txt", text))
        assert "".join(training_texts(found, tokens_span_lines=True)) == text


def test_stream_account_counts_lost_characters(config, write):
    text = "a  b\n\n\tc É\n"
    found = config(write("a.txt", text))
    lossy = learned("word", "a b c")
    account = prepare_stream(found, found.train, lossy).account
    assert account.lines()[-1] == (
        "characters lost by encoding and decoding: 7 of 11 compared (63.64%), most often '\\n' 3, ' ' 2, '\\t' 1"
    )
    again = prepare_stream(found, found.train, lossy).account  # second call reads the cache
    assert again == account
    exact = prepare_stream(found, found.train, learned("bytes", "a b c")).account
    assert (exact.source.compared, exact.source.lost) == (11, 0)
    assert len(exact.lines()) == 2


def test_stream_account_ignores_dropped_documents(config, write):
    found = config(write("a.txt", b"a  b\n  \n\xff  c\n"), documents="line")
    account = prepare_stream(found, found.train, learned("word", "a b c")).account
    assert (account.source.compared, account.source.lost) == (4, 1)


def test_stream_reads_each_file_of_a_pattern_as_a_document(config, write, tmp_path):
    tokenizer = learned("bytes", CODE)
    for folder in ("src/b", "src/a"):
        (tmp_path / folder).mkdir(parents=True)
    write("src/b/one.py", "b = 1\n")
    write("src/a/two.py", "\ta  = 2\n")
    write("src/a/note.md", "no code")
    write("src/three.py", "")
    found = config("src/**/*.py")
    stream = prepare_stream(found, found.train, tokenizer)
    assert texts(stream, tokenizer) == ["\ta  = 2\n", "b = 1\n"]
    assert [Path(file.path).name for file in stream.account.files] == ["two.py", "one.py", "three.py"]
    assert "".join(training_texts(found, tokens_span_lines=True)) == "\ta  = 2\nb = 1\n"
    again = config("src/a/*.py", "src/b/*.py", weights=[1, 2])
    assert [stream.documents for stream in training_streams(again, tokenizer)] == [1, 1]
    with pytest.raises(DataError, match="none"):
        prepare_stream(found, [str(tmp_path / "src" / "none*.py")], tokenizer)


def test_stream_account_summarizes_files_and_names_faulty_ones(config, write):
    for number in range(30):
        write(f"{number:02}.py", b"\xff" if number == 7 else f"x = {number}\n")
    found = config("*.py")
    lines = prepare_stream(found, found.train, learned("bytes", CODE)).account.lines()
    assert lines[0] == "30 files: 30 read, 29 kept, invalid_utf8 1"
    assert lines[1].endswith("07.py: 1 read, 0 kept, invalid_utf8 1 (line 1)")
    assert len(lines) == 3
