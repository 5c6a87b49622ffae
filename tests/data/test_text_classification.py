"""Labeled texts: every format gives the same examples, every line is accounted for, every fault says where it is."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.data.config import LabeledConfig
from glassformer.data.sequences import framed_length, truncated
from glassformer.data.text_classification import (
    LabeledExamples,
    labeled_batches,
    labeled_texts,
    prepare_labeled,
    read_labeled,
)
from glassformer.errors import ConfigError, DataError
from glassformer.text import TextConfig, Tokenizer, train_tokenizers

CLS, SEP = 4, 5
ROWS = [("a b, c", "x"), ('say "a"', "y"), ("a\nb", "x"), ("  é c ", "Z")]


@pytest.fixture(scope="module")
def vocabulary() -> Tokenizer:
    config = TextConfig(kind="word", min_frequency=1, extra_special=("[CLS]", "[SEP]", "[MASK]"))
    return train_tokenizers(config, lambda: iter(["a b c d e f g é", 'b, say "a"']), lambda: iter(())).source


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def write(name: str, text: str | bytes) -> str:
        raw = text.encode() if isinstance(text, str) else text
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return str(tmp_path / name)

    return write


def config(*paths: str, **values: object) -> LabeledConfig:
    return LabeledConfig.parse({"train": list(paths), **values})


def as_csv(rows: list[tuple[str, ...]], header: tuple[str, ...] = ("text", "label"), end: str = "\r\n") -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerows([header, *rows])
    return text.getvalue()


def read(examples: LabeledExamples, tokenizer: Tokenizer) -> list[tuple[list[str], str]]:
    return [
        ([tokenizer.decode(ids.tolist()) for ids in parts], examples.labels[label])
        for parts, label in zip(examples.sequences, examples.label_ids.tolist(), strict=True)
    ]


@pytest.mark.parametrize("zipped", ["", ".gz"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_every_format_holds_the_same_examples(write, vocabulary: Tokenizer, zipped: str, mark: str) -> None:
    swapped = [(label, "7", text) for text, label in ROWS]
    flat = [(text.replace("\n", " "), label) for text, label in ROWS]
    paths = [
        write(f"a.csv{zipped}", mark + as_csv(ROWS)),
        write(f"b.csv{zipped}", mark + as_csv(swapped, ("label", "n", "text"), "\n").removesuffix("\n")),
        write(f"c.tsv{zipped}", mark + "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in flat)),
        write(f"d.jsonl{zipped}", mark + "".join(json.dumps({"text": t, "label": x, "n": 1}) + "\n" for t, x in ROWS)),
    ]
    made = [prepare_labeled(config(path), [path], vocabulary) for path in paths]
    for examples in made:
        assert examples.labels == ("Z", "x", "y")
        assert examples.account.read == examples.account.kept == 4
        assert read(examples, vocabulary) == [([vocabulary.normalize(text)], label) for text, label in ROWS]
    assert len({examples.fingerprint for examples in made}) == 1
    assert [" ".join(text.split()) for text in labeled_texts(config(paths[0]))] == [
        " ".join(text.split()) for text, _ in ROWS
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text('ab ",\n;\t', max_size=9), st.sampled_from("xyz")), min_size=1, max_size=5))
def test_any_text_survives_quoting(rows: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        path.write_bytes(as_csv(rows, end="\n").encode())
        found = [(value.texts[0], value.label) for _, value, _ in read_labeled(config(str(path)), str(path))]
    assert found == rows


def test_faults_are_dropped_and_accounted_for_with_their_lines(write, vocabulary: Tokenizer) -> None:
    raw = b'text,label\na,x\n"a\nb",\n\n ,x\n"c\nd",y\na,x,z\n\xff,x\n"\x01",y\na\nb,x\n'
    examples = prepare_labeled(config(path := write("x.csv", raw)), [path], vocabulary)
    (file,) = examples.account.files
    assert read(examples, vocabulary) == [(["a"], "x"), (["c d"], "y"), (["b"], "x")]
    assert file.first_lines["malformed"] == [3, 9, 12]
    assert file.first_lines["invalid_utf8"] == [10]
    assert file.first_lines["empty"] == [5, 6, 11]
    assert (file.read, file.kept) == (10, 3)
    lines = ['{"text": "a", "label": 1}', "{", '{"text": "a"}', '{"text": 1, "label": "x"}', "[1]", "", '"text"']
    lines += ['{"text": "a", "label": true}', '{"text": "\\ud800", "label": "x"}', '{"text": "b", "label": 0}']
    examples = prepare_labeled(config(path := write("x.jsonl", "\n".join(lines))), [path], vocabulary)
    (file,) = examples.account.files
    assert read(examples, vocabulary) == [(["a"], "1"), (["b"], "0")]
    assert examples.labels == ("0", "1")
    assert file.dropped["malformed"] == 6
    assert file.first_lines["malformed"] == [2, 3, 4, 5, 7]
    assert file.first_lines["empty"] == [6]
    assert file.first_lines["invalid_utf8"] == [9]
    assert examples.account.source.tokens == 2


@pytest.mark.parametrize(
    ("name", "text", "values", "message"),
    [
        ("x.csv", "txt,label\n", {}, r"x\.csv, line 1: no column 'text', the columns are txt, label; did you mean txt"),
        ("x.csv", "text;label\n", {}, r"no column 'text', the only one is 'text;label'; set data.text_column"),
        ("x.csv", "text,label\n", {"pair_column": "pair"}, r"no column 'pair', the columns are text, label"),
        ("x.csv", "text,text,label\n", {}, r"line 1: 2 columns are named 'text'; rename all but one"),
        ("x.csv", "", {}, r"x\.csv: is empty; its first line names the columns"),
        ("x.csv", b"text,\xfflabel\n", {}, r"line 1: the names of the columns are not valid UTF-8"),
        (
            "x.csv",
            'text,label\na,x\n"b,x\nc,y\n',
            {},
            r"x\.csv, line 3: not valid CSV \(unexpected end of data\); close",
        ),
        ("x.csv", 'text,label\n"a"b,x\n', {}, r"line 2: not valid CSV"),
        (
            "x.csv",
            f"text,label\na,x\n{'a' * 131_073},y\n",
            {},
            r"x\.csv, line 3: a field has more than 131,072 characters; shorten it, close the quotes if they are open",
        ),
        ("x.csv", "text,label\n,\n", {}, r"no labeled text is left .*1 read, 0 kept, malformed 1 \(line 2\)"),
        ("x.csv", "text,label\na,x\nb,x\n", {}, r"'x' is the only label; give examples of at least two"),
        ("x.txt", "a\n", {}, r"labeled text is a \.csv, a \.tsv or a \.jsonl, each also \.gz"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(
    write, vocabulary: Tokenizer, name: str, text: str, values: dict[str, object], message: str
) -> None:
    path = write(name, text)
    with pytest.raises(DataError, match=message) as refusal:
        prepare_labeled(config(path, **values), [path], vocabulary)
    assert "\n" not in str(refusal.value)


def test_a_missing_file_is_refused(tmp_path: Path, vocabulary: Tokenizer) -> None:
    with pytest.raises(DataError, match="no such file"):
        prepare_labeled(config("x"), [str(tmp_path / "x.csv")], vocabulary)


def test_labels_of_training_name_those_of_validation(write, vocabulary: Tokenizer) -> None:
    train = prepare_labeled(config(path := write("t.csv", as_csv(ROWS))), [path], vocabulary)
    path = write("v.csv", as_csv([("c", "y"), ("b", "Z")]))
    examples = prepare_labeled(config(path), [path], vocabulary, train.labels)
    assert examples.labels == train.labels
    assert examples.label_ids.tolist() == [2, 0]
    path = write("w.csv", as_csv([("c\nd", "y"), ("b", "yy")]))
    with pytest.raises(
        DataError, match=r"w\.csv, line 4: label 'yy' does not occur in the training data; did you mean"
    ):
        prepare_labeled(config(path), [path], vocabulary, train.labels)


def test_pairs_are_framed_as_in_bert(write, vocabulary: Tokenizer) -> None:
    rows = [("a b", "c d e", "x"), ("f", "g", "y"), ("a", "", "x")]
    given = config(path := write("x.csv", as_csv(rows, ("text", "other", "label"))), pair_column="other")
    examples = prepare_labeled(given, [path], vocabulary)
    assert examples.account.files[0].first_lines["empty"] == [4]
    a, b, c, d, e, f, g = (vocabulary.encode(letter)[0] for letter in "abcdefg")
    (batch,) = labeled_batches(examples, vocabulary, given, 1).whole_epoch()
    rows_found = dict(zip(batch.labels.tolist(), zip(batch.tokens, batch.segments, batch.mask), strict=True))
    tokens, segments, mask = rows_found[0]
    assert tokens.tolist() == [CLS, a, b, SEP, c, d, e, SEP]
    assert segments.tolist() == [0] * 4 + [1] * 4
    assert mask.all()
    tokens, segments, mask = rows_found[1]
    assert tokens.tolist() == [CLS, f, SEP, g, SEP, 0, 0, 0]
    assert segments.tolist() == [0, 0, 0, 1, 1, 0, 0, 0]
    assert mask.tolist() == [True] * 5 + [False] * 3
    assert batch.source_tokens == 13
    assert batch.n_targets == len(batch) == 2
    assert batch.describe() == "2 texts of 8 tokens"


@given(st.lists(st.integers(1, 30), min_size=1, max_size=2), st.integers(5, 40))
def test_truncation_takes_from_the_longer_and_no_more_than_it_must(lengths: list[int], max_length: int) -> None:
    parts = [list(range(length)) for length in lengths]
    cut = truncated(parts, max_length)
    assert framed_length(cut) == min(max_length, framed_length(parts))
    assert all(part[: len(kept)] == list(kept) and len(kept) >= 1 for part, kept in zip(parts, cut, strict=True))
    if len(parts) == 2 and framed_length(parts) > max_length:
        shortened = [len(kept) for part, kept in zip(parts, cut) if len(kept) < len(part)]
        assert all(len(kept) <= max(shortened) + 1 for kept in cut)


def test_truncation_is_counted_and_told(write, vocabulary: Tokenizer) -> None:
    path = write("x.csv", as_csv([("a b c d", "x"), ("a b c", "y"), ("a b c d e f", "x")]))
    examples = prepare_labeled(config(path, max_length=5), [path], vocabulary)
    assert [text for text, _ in read(examples, vocabulary)] == [["a b c"]] * 3
    assert examples.account.files[0].truncated == 2
    assert "3 kept (2 truncated)" in examples.account.lines()[0]


@pytest.fixture
def many(write, vocabulary: Tokenizer) -> tuple[LabeledExamples, LabeledConfig]:
    rows = [(" ".join("abcdefg"[(i + j) % 7] for j in range(1 + i * 7 % 23)), "xyz"[i % 3]) for i in range(150)]
    given = config(path := write("many.csv", as_csv(rows)), batch_tokens=128)
    return prepare_labeled(given, [path], vocabulary), given


def test_an_epoch_has_every_example_once_with_its_label(many, vocabulary: Tokenizer) -> None:
    examples, given = many
    batches = labeled_batches(examples, vocabulary, given, 1)
    for _ in range(2):
        seen = []
        for batch in [batches.next() for _ in range(len(batches))]:
            assert batch.tokens.numel() <= 128
            assert batch.source_tokens == int(batch.mask.sum())
            for row, mask, label, i in zip(batch.tokens, batch.mask, batch.labels, batch.examples, strict=True):
                assert row[mask].tolist() == [CLS, *examples.sequences[i][0].tolist(), SEP]
                assert int(label) == examples.label_ids[i]
                assert not row[~mask].any()
            seen += batch.examples.tolist()
        assert sorted(seen) == list(range(150))
    assert batches.state() == {"epoch": 2, "position": 0}
    assert 0 < batches.padding_share < 0.2


def test_batches_follow_seed_and_state(many, vocabulary: Tokenizer) -> None:
    examples, given = many
    batches, again, other = (labeled_batches(examples, vocabulary, given, seed) for seed in (1, 1, 2))
    for _ in range(len(batches) + 3):
        batches.next()
    again.restore(json.loads(json.dumps(batches.state())))
    assert all(torch.equal(batches.next().tokens, again.next().tokens) for _ in range(9))
    orders = [[tuple(batch.examples) for batch in source.whole_epoch(0)] for source in (batches, again, other)]
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != [tuple(batch.examples) for batch in batches.whole_epoch(1)]
    assert batches.fingerprint == other.fingerprint
    wider = given.model_copy(update={"batch_tokens": 129})
    assert labeled_batches(examples, vocabulary, wider, 1).fingerprint != batches.fingerprint


def test_the_fingerprint_is_of_contents_and_labels(write, vocabulary: Tokenizer) -> None:
    tables = [
        [("a", "x"), ("b", "y")],
        [("b", "x"), ("a", "y")],
        [("a", "y"), ("b", "x")],
        [("a", "x"), ("b", "z")],
        [("a", "x"), ("b", "y"), ("b", "y")],
    ]
    paths = [write(f"{i}.csv", as_csv(table)) for i, table in enumerate(tables)]
    prints = {prepare_labeled(config(path), [path], vocabulary).fingerprint for path in paths}
    assert len(prints) == len(tables)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"text_column": "label"}, "the columns label, label are not different"),
        ({"max_length": 4}, "max_length=4"),
        ({"max_length": 100, "batch_tokens": 99}, "max_length=100 does not fit batch_tokens=99"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config("x.csv", **values)
