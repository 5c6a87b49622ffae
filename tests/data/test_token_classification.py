"""Tagged sentences: a tag on the first piece of each word, nothing counted elsewhere, every fault with its line."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from glassformer.data.config import TaggedConfig
from glassformer.data.token_classification import prepare_tagged, tagged_batches, tagged_texts
from glassformer.errors import DataError
from glassformer.text import TextConfig, Tokenizer, train_tokenizers

CLS, SEP, UNKNOWN = 4, 5, 3
SENTENCES = [(["Wolff", "lives", "in", "New", "York", "."], ["PER", "O", "O", "LOC", "LOC", "O"]), (["No"], ["O"])]
CONLL = (
    "-DOCSTART- -X- O\n\nWolff NNP PER\nlives VB O\nin IN O\nNew NNP LOC\nYork NNP LOC\n. . O\n\n \n\n"
    "-DOCSTART- -X- O\n\nNo DT O"
)


@pytest.fixture(scope="module")
def vocabulary() -> Tokenizer:
    """Few merges, so that words are several pieces."""
    config = TextConfig(vocab_size=60, merges=4, min_frequency=1, extra_special=("[CLS]", "[SEP]", "[MASK]"))
    text = " ".join(word for words, _ in SENTENCES for word in words)
    return train_tokenizers(config, lambda: iter([text]), lambda: iter(())).source


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def write(name: str, text: str | bytes) -> str:
        raw = text.encode() if isinstance(text, str) else text
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return str(tmp_path / name)

    return write


def config(*paths: str, **values: object) -> TaggedConfig:
    return TaggedConfig.parse({"train": list(paths), **values})


def test_every_format_holds_the_same_sentences(write, vocabulary: Tokenizer) -> None:
    paths = [
        write("a.conll", CONLL),
        write("b.txt.gz", "\ufeff" + CONLL.replace(" ", "\t").replace("\n\t\n", "\n\n")),
        write("c.jsonl", "".join(json.dumps({"tokens": a, "tags": b}) + "\n" for a, b in SENTENCES)),
    ]
    for path in paths:
        examples = prepare_tagged(config(path), [path], vocabulary)
        assert examples.tags == ("LOC", "O", "PER")
        assert examples.account.kept == examples.account.read == 2
        for words, reference, (texts, tags) in zip(examples.sentences, examples.tag_ids, SENTENCES, strict=True):
            assert vocabulary.decode(words.values.tolist()) == " ".join(texts)
            assert [examples.tags[i] for i in reference] == tags
            assert len(words.offsets[:-1]) == len(texts)
        assert list(tagged_texts(config(path))) == [" ".join(texts) for texts, _ in SENTENCES]
    assert len({prepare_tagged(config(path), [path], vocabulary).fingerprint for path in paths}) == 1


def test_a_tag_stands_on_the_first_piece_of_its_word_and_nowhere_else(write, vocabulary: Tokenizer) -> None:
    examples = prepare_tagged(config(path := write("a.conll", CONLL)), [path], vocabulary)
    (batch,) = tagged_batches(examples, vocabulary, config(path), 1).whole_epoch()
    for row, mask, tags, starts, i in zip(
        batch.tokens, batch.mask, batch.tags, batch.word_starts, batch.examples, strict=True
    ):
        texts, names = SENTENCES[int(i)]
        pieces = [vocabulary.encode(text) for text in texts]
        assert max(map(len, pieces)) > 1 or len(texts) == 1
        expected = [CLS, *(id for word in pieces for id in word), SEP]
        assert row[mask].tolist() == expected
        assert not row[~mask].any()
        reference = [[examples.tags.index(name)] + [-1] * (len(word) - 1) for word, name in zip(pieces, names)]
        assert tags[mask].tolist() == [-1, *(tag for word in reference for tag in word), -1]
        assert (tags[~mask] == -1).all()
        assert torch.equal(starts, tags >= 0)
    assert batch.n_targets == 7
    assert batch.source_tokens == int(batch.mask.sum())
    assert not batch.segments.any()
    assert batch.describe() == f"2 sentences of {batch.tokens.shape[1]} tokens"


def test_a_word_of_which_nothing_is_left_keeps_its_tag(write, vocabulary: Tokenizer) -> None:
    path = write("x.jsonl", json.dumps({"tokens": ["No", "\u0001", "in"], "tags": ["A", "B", "C"]}))
    examples = prepare_tagged(config(path), [path], vocabulary)
    words = examples.sentences[0]
    assert words.values[words.offsets[:-1][1]] == UNKNOWN
    assert examples.tag_ids[0].tolist() == [0, 1, 2]


def test_truncation_keeps_whole_words_and_is_told(write, vocabulary: Tokenizer) -> None:
    sizes = [len(vocabulary.encode(word)) for word in SENTENCES[0][0]]
    path = write("a.conll", CONLL)
    for room in range(3, sum(sizes) + 2):
        examples = prepare_tagged(config(path, max_length=room + 2), [path], vocabulary)
        kept = max(n for n in range(7) if sum(sizes[:n]) <= room)
        file = examples.account.files[0]
        if not kept:
            assert len(examples) == 1
            assert file.first_lines["too_long"] == [3]
            continue
        assert len(examples.sentences[0].values) == sum(sizes[:kept])
        assert len(examples.tag_ids[0]) == kept
        assert file.truncated == (kept < 6)


def test_faults_are_dropped_and_accounted_for_with_their_lines(write, vocabulary: Tokenizer) -> None:
    raw = b"No O\n\nNo O\nin\nin O\n\n\nin \xff\nNo O\n\nin O\n"
    examples = prepare_tagged(config(path := write("x.conll", raw)), [path], vocabulary)
    (file,) = examples.account.files
    assert (file.read, file.kept) == (4, 2)
    assert file.first_lines["malformed"] == [4]
    assert file.first_lines["invalid_utf8"] == [8]
    good = '{"tokens": ["No"], "tags": ["O"]}'
    lines = [
        "",
        '{"tokens": ["a"], "tags": []}',
        "{",
        '{"tokens": "a", "tags": ["O"]}',
        '{"tokens": [1], "tags": ["O"]}',
    ]
    lines += ['{"tokens": [], "tags": []}', '{"tokens": ["\\ud800"], "tags": ["O"]}', good]
    examples = prepare_tagged(config(path := write("x.jsonl", "\n".join(lines))), [path], vocabulary)
    (file,) = examples.account.files
    assert file.first_lines["malformed"] == [2, 3, 4, 5]
    assert file.first_lines["empty"] == [1, 6]
    assert file.first_lines["invalid_utf8"] == [7]
    assert (file.read, file.kept) == (8, 1)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "v.conll",
            "No O\n\nin O\nin LOX\n",
            r"v\.conll, line 4: tag 'LOX' does not occur in the training data; did you",
        ),
        ("v.jsonl", '\n{"tokens": ["No", "in"], "tags": ["O", "B"]}', r"v\.jsonl, line 2: tag 'B' does not occur"),
        ("v.conll", "\n", r"no tagged sentence is left .*0 read, 0 kept"),
        ("v.conll", "No\n", r"no tagged sentence is left .*malformed 1 \(line 1\)"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    write, vocabulary: Tokenizer, name: str, text: str, message: str
) -> None:
    with pytest.raises(DataError, match=message) as refusal:
        prepare_tagged(config("x"), [write(name, text)], vocabulary, ("LOC", "O", "PER"))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "before", ["", "# sent_id = 1\n# text = Wolff lives\n", "#x\n1-2\tWolff\t_\t_\t_\t_\t_\t_\t_\t_\n"]
)
def test_conll_u_is_no_file_of_words_and_tags(write, vocabulary: Tokenizer, before: str) -> None:
    path = write(
        "x.conllu",
        f"{before}1\tWolff\tWolff\tPROPN\tNNP\t_\t2\tnsubj\t_\t_\n2\tlives\tlive\tVERB\tVB\t_\t0\troot\t_\t_\n",
    )
    line = 1 + before.count("# ") + before.count("#x")
    with pytest.raises(
        DataError, match=rf"x\.conllu, line {line}: is CoNLL-U, ten columns .*; keep words and tags, as"
    ) as told:
        prepare_tagged(config(path), [path], vocabulary)
    assert "\n" not in str(told.value)
    assert str(told.value).endswith(r"'/^[0-9]+\t/ {print $2, $4} /^$/' FILE")
    nine = write("x.conll", "1\t" + "_\t" * 7 + "O\nin\t" + "_\t" * 8 + "O\n")
    assert prepare_tagged(config(nine), [nine], vocabulary).account.kept == 1


def test_an_epoch_has_every_sentence_once_and_follows_its_state(write, vocabulary: Tokenizer) -> None:
    lines = ["".join(f"{['in', 'No'][j % 2]} {'OAB'[j % 3]}\n" for j in range(1 + i % 11)) for i in range(60)]
    given = config(path := write("x.conll", "\n".join(lines)), batch_tokens=128)
    examples = prepare_tagged(given, [path], vocabulary)
    batches, again = (tagged_batches(examples, vocabulary, given, 1) for _ in range(2))
    epoch = [batches.next() for _ in range(len(batches))]
    assert sorted(i for batch in epoch for i in batch.examples.tolist()) == list(range(60))
    assert sum(batch.n_targets for batch in epoch) == sum(1 + i % 11 for i in range(60))
    assert max(batch.tokens.numel() for batch in epoch) == batches.largest().tokens.numel() <= 128
    batches.next()
    again.restore(batches.state())
    assert all(torch.equal(batches.next().tags, again.next().tags) for _ in range(9))
    assert torch.equal(batches.largest().to("cpu").tags, batches.largest().tags)
