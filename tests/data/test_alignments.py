"""Alignments beside a corpus: whatever becomes of its lines, every link still joins the words that it joined."""

import gzip
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch import Tensor

from glassformer.data import Batch, DataConfig, pair_batches, prepare
from glassformer.errors import ConfigError, DataError
from glassformer.text import TextConfig, TokenizerPair, train_tokenizers

STEMS = ["lumen", "cantor", "vireo", "marble", "tundra", "pickle", "gondola", "sphinx", "walnut", "ember", "quartz"]
WORDS = [f"{stem}{end}" for stem in STEMS for end in ("", "s", "er", "ing", "-like", ", yes")]
"""Some are cut by punctuation, some are two words."""


@pytest.fixture(scope="module")
def corpus() -> tuple[list[str], list[str], list[str]]:
    """Targets are their sources in another order. Every word stands once in a sentence and is linked with itself, but
    for those with an ``m``. Some lines will be dropped, each for another reason."""
    draw = random.Random(3)
    sources, targets, links = [], [], []
    for _ in range(250):
        words = " ".join(draw.sample(WORDS, draw.randint(2, 9))).split()
        source = list(dict.fromkeys(words))
        target = draw.sample(source, len(source))
        sources.append(" ".join(source))
        targets.append(" ".join(target))
        links.append(" ".join(f"{source.index(w)}-{n}" for n, w in enumerate(target) if "m" not in w))
    for line in (3, 40, 41, 90):
        sources[line] = "  " if line % 2 else sources[line] * 40
        links[line] = "77-77"  # not looked at
    sources[60], targets[60], links[60] = sources[50], targets[50], "0-0 5-5"
    return sources, targets, links


@pytest.fixture(scope="module", params=["bpe", "word", "char"])
def pair(request: pytest.FixtureRequest, corpus: tuple[list[str], list[str], list[str]]) -> TokenizerPair:
    config = TextConfig(kind=request.param, vocab_size=150, min_frequency=1, max_unknown_rate=1)
    return train_tokenizers(config, lambda: iter(corpus[0]), lambda: iter(corpus[1]))


def written(folder: Path, corpus: tuple[list[str], list[str], list[str]], name: str = "train") -> DataConfig:
    for text, suffix in zip(corpus, ("en", "de"), strict=False):
        (folder / f"{name}.{suffix}").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    (folder / f"{name}.align.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in corpus[2]).encode()))
    values = {"source": "en", "target": "de", "train": [str(folder / name)], "cache": str(folder / "cache")}
    return DataConfig.parse(
        {**values, "alignments": [str(folder / f"{name}.align.gz")], "drop_duplicates": True, "max_length": 120}
    )


def linked_tokens(batch: Batch) -> Iterator[tuple[int, int, int, dict[int, float]]]:
    """Row, sentence, column of a target token, and the columns of the source tokens that it is linked with."""
    assert batch.links is not None
    found: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for (row, target, source), share in zip(batch.links.places.T.tolist(), batch.links.shares.tolist(), strict=True):
        assert source not in found[row, target]
        found[row, target][source] = share
    for (row, target), sources in found.items():
        yield row, int(batch.target_sentences[row, target]), target, sources


@pytest.mark.parametrize("row_tokens", [0, 64])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_every_link_joins_the_words_that_it_joined(
    tmp_path: Path, corpus: tuple[list[str], list[str], list[str]], pair: TokenizerPair, row_tokens: int, dropout: float
) -> None:
    if pair.source.kind != "bpe" and dropout:
        pytest.skip("only bpe can be cut otherwise")
    config = written(tmp_path, corpus)
    prepared = prepare(config, config.train, pair, config.alignments)
    dropped = {reason: count for reason, count in prepared.account.dropped.items() if count}
    assert dropped == {"empty": 2, "too_long": 2, "duplicate": 1}
    batches = pair_batches([prepared], pair, 600, seed=1, weights=[1.5], bpe_dropout=dropout, row_tokens=row_tokens)
    seen, pieces = set(), 0
    for batch in (batches.next() for _ in range(len(batches))):
        linked = set()
        for row, sentence, column, sources in linked_tokens(batch):
            asking, asked = side(batch.labels, batch.target_sentences, row, sentence), sorted(sources)
            number = pair.target.word_of(list(asking.values()))[column - min(asking)]
            own = [i for i, n in zip(asking.values(), pair.target.word_of(list(asking.values()))) if n == number]
            whole = side(batch.source, batch.source_sentences, row, sentence)
            word = pair.source.decode([whole[place] for place in asked]).strip()
            assert word == pair.target.decode(own).strip()
            assert "m" not in word
            assert sum(sources.values()) == pytest.approx(1)
            assert len(set(sources.values())) == 1
            linked.add((row, sentence, word))
            seen.add(word)
            pieces = max(pieces, len(asked))
        texts = [pair.target.decode(target[:-1]) for _, target in batch.pairs()]
        assert len(linked) == sum("m" not in word for text in texts for word in text.split())
    assert seen == {word for line in corpus[1] for word in line.split() if "m" not in word}
    assert pieces > 1


def side(ids: Tensor, sentences: Tensor, row: int, sentence: int) -> dict[int, int]:
    """The tokens of one sentence by their columns, without the end token."""
    places = (sentences[row] == sentence).nonzero().flatten().tolist()[:-1]
    return {place: int(ids[row, place]) for place in places}


def test_shares_of_one_word_linked_with_several(tmp_path: Path) -> None:
    """c is linked with a and b, d with nothing; by hand."""
    config = written(tmp_path, (["a b", "b"], ["d c", "c"], ["1-1 0-1", ""]))
    texts = iter, ["a b c d"]
    pair = train_tokenizers(
        TextConfig(kind="word", min_frequency=1), lambda: texts[0](texts[1]), lambda: iter(texts[1])
    )
    batch = pair_batches(
        [prepare(config, config.train, pair, config.alignments)], pair, 64, seed=1, row_tokens=16
    ).next()
    ((row, sentence, column, sources),) = linked_tokens(batch)
    assert pair.target.tokens([int(batch.labels[row, column])]) == ["c"]
    assert sorted(pair.source.tokens(batch.source[row, sorted(sources)].tolist())) == ["a", "b"]
    assert set(sources.values()) == {0.5}
    assert len(batch.pairs()[sentence - 1][0]) == 3


def test_other_links_are_another_corpus(
    tmp_path: Path, corpus: tuple[list[str], list[str], list[str]], pair: TokenizerPair
) -> None:
    config = written(tmp_path, corpus)
    prints = [prepare(config, config.train, pair, config.alignments).fingerprint for _ in range(2)]
    prints.append(prepare(config, config.train, pair).fingerprint)
    written(tmp_path, (corpus[0], corpus[1], ["", *corpus[2][1:]]))
    prints.append(prepare(config, config.train, pair, config.alignments).fingerprint)
    prints.append(prepare(config, config.train, pair).fingerprint)
    assert prints[0] == prints[1]
    assert prints[2] == prints[4]
    assert len(set(prints)) == 3
    assert prepare(config, config.train, pair).links is None


WRONG = [
    (["0-0", "0-0", "0"], r"train\.align\.gz, line 3: '0' is not a link; write source-target word indices from 0"),
    (["0-0", "2-0", ""], r"line 2: 2-0 is out of range: the sentence has 2 source and 1 target words, counted from 0$"),
    (["0-0", "0-1", ""], r"line 2: 0-1 is out of range: the sentence has 2 source and 1 target words, counted from 0$"),
    (["0-0"], r"train\.align\.gz has 1 lines and .*train more; give a line for each pair, empty where no words are"),
    (["0-0", "", "", "", ""], r"train\.align\.gz has 5 lines and .*train 3; give a line for each pair, empty where"),
    (["", "", ""], r"train\.align\.gz: no pair that is kept has a link; leave data\.alignments out$"),
]


@pytest.mark.parametrize(("links", "told"), WRONG)
def test_alignments_that_cannot_be(tmp_path: Path, tokenizers: TokenizerPair, links: list[str], told: str) -> None:
    config = written(tmp_path, (["w1", "w2 w3", "w4"], ["w1", "w2", "w4"], links))
    with pytest.raises(DataError, match=told):
        prepare(config, config.train, tokenizers, config.alignments)
    assert not list((tmp_path / "cache").iterdir())


def test_a_file_that_is_not_there_or_not_whole(tmp_path: Path, tokenizers: TokenizerPair) -> None:
    config = written(tmp_path, (["w1"], ["w1"], ["0-0"]))
    file = Path(config.alignments[0])
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"train\.align\.gz: not a complete gzip file"):
        prepare(config, config.train, tokenizers, config.alignments)
    file.unlink()
    with pytest.raises(DataError, match=r"train\.align\.gz: no such file; name one that exists$"):
        prepare(config, config.train, tokenizers, config.alignments)


def test_a_file_for_each_path(make_config: Callable[..., DataConfig]) -> None:
    with pytest.raises(ConfigError, match=r"alignments has 2 files and train 1 paths; give one file a path, or none$"):
        make_config(alignments=["a", "b"])
