"""Every line is accounted for, and what is kept is what was written."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from glassformer.data import REASONS, Corpus, DataConfig, ReadReport, prepare, readers
from glassformer.data.input_errors import wide_encoding
from glassformer.errors import DataError
from glassformer.text import TextConfig, Tokenizer, TokenizerPair

words = st.lists(st.sampled_from(["w0", "w1", "w2", "zz"]), max_size=9).map(" ".join)
raw_lines = st.one_of(
    st.tuples(words, words).map("\t".join).map(str.encode),
    st.binary(max_size=20).map(lambda raw: raw.replace(b"\n", b"")),
)


def is_usable(line: bytes, ratio: float, tokenizer: Tokenizer) -> bool:
    """The rules of this test's configuration, said once more: two sides of 1 to 5 words, and their ratio."""
    try:
        columns = line.removesuffix(b"\r").decode().split("\t")
    except UnicodeDecodeError:
        return False
    lengths = [len(tokens) for tokens in map(tokenizer.encode, columns[:2])]
    if len(lengths) < 2 or not 1 <= min(lengths) <= max(lengths) <= 5:
        return False
    return not ratio or max(lengths) <= ratio * min(lengths)


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(raw_lines, min_size=1, max_size=25), duplicates=st.booleans(), ratio=st.sampled_from([0, 2.0]))
def test_read_is_kept_and_dropped(
    tokenizers: TokenizerPair, lines: list[bytes], duplicates: bool, ratio: float
) -> None:
    assume(wide_encoding(lines[0]) is None)  # a wide encoding is refused, whatever follows
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.tsv"
        path.write_bytes(b"\n".join(lines) + b"\n")
        config = DataConfig(
            train=[str(path)], cache=folder, max_length=6, max_length_ratio=ratio, drop_duplicates=duplicates
        )
        if not any(is_usable(line, ratio, tokenizers.source) for line in lines):
            with pytest.raises(DataError, match=r"no pair is left|has one column and no tab, like all lines"):
                prepare(config, config.train, tokenizers)
            return
        corpus = prepare(config, config.train, tokenizers)
        account, file = corpus.account, corpus.account.files[0]
        assert account.read == len(lines)
        assert account.read == account.kept + sum(account.dropped.values())
        assert account.kept == len(corpus) == len(corpus.source_lengths)
        for reason in REASONS:
            named = file.first_lines[reason]
            assert len(named) == min(5, file.dropped[reason])
            assert named == sorted(set(named))
        assert corpus.source_lengths.max() < 6
        assert corpus.target_lengths.min() >= 1


def test_each_reason_counts_its_own_lines(tmp_path: Path, make_config, tokenizers) -> None:
    lines = [
        b"w1 w2\tw1 w2",  # 1 kept
        b"\tw1",  # 2 empty
        b"no tab",  # 3 malformed
        b"w1 \xff\tw1",  # 4 invalid
        b"w1 w1 w1 w1\tw1",  # 5 four tokens and the end: one too many
        b"w1 w1 w1\tw1",  # 6 three to one
        b"w1 w2\tw1 w2",  # 7 duplicate of 1
        b" \x0b \tw1",  # 8 empty
        b"w1 w2\tw2 w1",  # 9 kept
        b"w1\tw1" + b"x" * 1_000_000,  # 10 too long
        b"",  # 11 empty
        b"w1 w2 w3\tw1 zz",  # 12 kept: three tokens and the end, at a ratio of 1.5
    ]
    (tmp_path / "p.tsv").write_bytes(b"\n".join(lines))
    config = make_config("p.tsv", max_length=4, max_length_ratio=1.5, drop_duplicates=True)
    corpus = prepare(config, config.train, tokenizers)
    file = corpus.account.files[0]
    assert {reason: (file.dropped[reason], file.first_lines[reason]) for reason in REASONS} == {
        "empty": (3, [2, 8, 11]),
        "too_long": (2, [5, 10]),
        "length_ratio": (1, [6]),
        "duplicate": (1, [7]),
        "invalid_utf8": (1, [4]),
        "malformed": (1, [3]),
    }
    assert (file.read, file.kept) == (12, 3)
    assert [tokenizers.source.decode(ids) for ids in source_ids(corpus)] == ["w1 w2", "w1 w2", "w1 w2 w3"]
    assert tokenizers.target.decode(corpus.pair(1)[1].tolist()) == "w2 w1"
    assert (corpus.account.target.tokens, corpus.account.target.unknown) == (6, 1)
    assert corpus.account.lines() == [
        f"{config.train[0]}: 12 read, 3 kept, empty 3 (line 2, 8, 11), too_long 2 (line 5, 10), "
        "length_ratio 1 (line 6), duplicate 1 (line 7), invalid_utf8 1 (line 4), malformed 1 (line 3)",
        "unknown tokens: source 0 of 7 (0.00%), target 1 of 6 (16.67%)",
    ]


def source_ids(corpus: Corpus) -> list[list[int]]:
    return [corpus.pair(index)[0].tolist() for index in range(len(corpus))]


def test_very_long_lines_are_dropped_without_being_encoded(
    write_pairs, make_config, tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pairs([("w1", "w2"), ("w1 " * 400_000, "w2"), ("w2", "y" * 1_000_000)])
    encode, longest = Tokenizer.encode_batch, []

    def watched(self: Tokenizer, texts: list[str]) -> list[list[int]]:
        longest.append(max(map(len, texts), default=0))
        return encode(self, texts)

    monkeypatch.setattr(Tokenizer, "encode_batch", watched)
    account = prepare(make_config(max_length=8), make_config().train, tokenizers).account
    assert account.dropped["too_long"] == 2
    assert account.files[0].first_lines["too_long"] == [2, 3]
    assert max(longest) <= 64 * 8


@settings(max_examples=30, deadline=None)
@given(numbers=st.lists(st.integers(0, 40), min_size=1, max_size=120), chunk=st.integers(1, 9))
def test_duplicates_are_those_of_a_set_whatever_the_chunk(
    tokenizers: TokenizerPair, numbers: list[int], chunk: int
) -> None:
    first = {number: line for line, number in reversed(list(enumerate(numbers)))}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "CHUNK_ROWS", chunk)
        path = Path(folder) / "p.tsv"
        path.write_text("".join(f"w{number}\tw{number // 2}\n" for number in numbers))
        config = DataConfig(train=[str(path)], cache=folder, drop_duplicates=True)
        corpus = prepare(config, config.train, tokenizers)
    expected = [f"w{numbers[line]}" for line in sorted(first.values())]
    assert [tokenizers.source.decode(ids) for ids in source_ids(corpus)] == expected
    assert corpus.account.dropped["duplicate"] == len(numbers) - len(expected)


@pytest.mark.parametrize("bound", ["CHUNK_ROWS", "CHUNK_CHARACTERS"])
def test_chunks_do_not_show(bound: str, write_pairs, make_config, tokenizers, monkeypatch, tmp_path) -> None:
    paths = [write_pairs([(f"w{i} " * (i % 7), f"w{i % 50}") for i in range(n)], f"part{n}") for n in (20, 33)]
    whole = prepare(make_config(), paths, tokenizers)
    monkeypatch.setattr(readers, bound, 3)
    cut = prepare(make_config(cache=str(tmp_path / "other")), paths, tokenizers)
    assert cut.account == whole.account
    assert [file.read for file in cut.account.files] == [20, 33]
    for side in ("source", "target"):
        assert np.array_equal(getattr(cut, side).values, getattr(whole, side).values)
        assert np.array_equal(getattr(cut, side).offsets, getattr(whole, side).offsets)


class Wide(Tokenizer):
    """A vocabulary of ``entries``, whose words are its last ones."""

    entries = 1 << 16

    @property
    def vocab_size(self) -> int:
        return self.entries

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self.entries - 1 - i for i in ids] for ids in super().encode_batch(texts)]

    def decode(self, ids: Sequence[int]) -> str:
        return super().decode([self.entries - 1 - i for i in ids])


@pytest.mark.parametrize(("entries", "dtype"), [(1 << 16, "<u2"), ((1 << 16) + 1, "<i4")])
def test_ids_take_two_bytes_where_they_fit(entries: int, dtype: str, write_pairs, make_config, tokenizers) -> None:
    class Wider(Wide):
        pass

    Wider.entries = entries
    wide = Wider.from_json(tokenizers.source.to_json())
    write_pairs([("w1 w2", "w1")])
    corpus = prepare(make_config(), make_config().train, TokenizerPair(tokenizers.config, wide, tokenizers.target))
    assert (corpus.source.values.dtype, corpus.target.values.dtype) == (np.dtype(dtype), np.dtype("<u2"))
    assert corpus.pair(0)[0].tolist() == wide.encode("w1 w2")
    assert corpus.pair(0)[0].max() > (1 << 16) - 60


@pytest.mark.parametrize("index", [-1, 2])
def test_a_pair_outside_is_an_error(index: int, write_pairs, make_config, tokenizers) -> None:
    write_pairs([("w1", "w1"), ("w2", "w2")])
    with pytest.raises(IndexError):
        prepare(make_config(), make_config().train, tokenizers).pair(index)


def test_nothing_kept_is_an_error_that_says_why(write_pairs, make_config, tokenizers, tmp_path) -> None:
    write_pairs([("w1", ""), ("w1 w1 w1", "w1")])
    with pytest.raises(DataError, match=r"no pair is left.*2 read, 0 kept, empty 1 \(line 1\), too_long 1 \(line 2\)"):
        prepare(make_config(max_length=3), make_config().train, tokenizers)
    assert list((tmp_path / "cache").iterdir()) == []


def test_too_many_unknown_tokens_are_an_error(write_pairs, make_config, tokenizers) -> None:
    write_pairs([("w1 w2 w3 w4", "w1 w2 w3 zz")])
    account = prepare(make_config(), make_config().train, tokenizers).account
    assert (account.source.unknown_rate, account.target.unknown_rate) == (0.0, 0.25)
    account.check_unknown(TextConfig(kind="word"))
    account.check_unknown(TextConfig(max_unknown_rate=0.25))
    for config, limit in ((TextConfig(), "0.01"), (TextConfig(kind="word", max_unknown_rate=0.2), "0.2")):
        with pytest.raises(DataError, match=f"25.00% of the target tokens.*rate={limit}; raise text.vocab_size, lower"):
            account.check_unknown(config)
    told = (
        r"^25\.00% of the target tokens are unknown to the vocabulary of train\.start_from=runs/a, .*; start from a run"
    )
    with pytest.raises(DataError, match=told) as caught:
        account.check_unknown(TextConfig(), "runs/a")
    assert "vocab_size" not in str(caught.value)


def test_accounts_add_up_and_survive_json(write_pairs, make_config, tokenizers) -> None:
    paths = [write_pairs([("w1", "zz"), ("", "w1")], "one"), write_pairs([("w1 zz", "w1")], "two")]
    accounts = [prepare(make_config(), [path], tokenizers).account for path in paths]
    total = ReadReport.total(accounts)
    assert (total.read, total.kept, total.dropped["empty"]) == (3, 2, 1)
    assert (total.source.tokens, total.source.unknown, total.target.unknown) == (3, 1, 1)
    assert ReadReport.from_json(total.to_json()) == total
    assert accounts[0].source.tokens == 1  # adding left the parts alone


def test_account_reports_lost_characters_of_a_sample(write_pairs, make_config, tokenizers) -> None:
    write_pairs([("w1  w2 é" if i % 16 == 0 else "w1   w2", "w1") for i in range(40)])
    account = prepare(make_config(), make_config().train, tokenizers).account
    assert (account.source.compared, account.target.compared) == (3 * 8, 3 * 2)
    assert account.lines()[-1].startswith(
        "source characters lost by encoding and decoding: 9 of 24 compared (37.50%), most often ' ' 6, 'é' 3"
    )
