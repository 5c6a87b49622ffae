"""The cache is there complete or not at all, and is used exactly when nothing that matters has changed."""

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import glassformer.data.token_store as token_store
from glassformer.data import Corpus, DataConfig, prepare
from glassformer.data.corpus import fingerprint
from glassformer.errors import DataError
from glassformer.text import TextConfig, Tokenizer, TokenizerPair, train_tokenizers

PAIRS = [(f"w{i} w{i + 1}", f"w{49 - i}") for i in range(40)]


@pytest.fixture
def config(write_pairs, make_config) -> DataConfig:
    write_pairs(PAIRS)
    config: DataConfig = make_config()
    return config


@pytest.fixture
def built(config: DataConfig, tokenizers: TokenizerPair) -> Path:
    """The folder of a corpus that was prepared."""
    prepare(config, config.train, tokenizers)
    (folder,) = Path(config.cache).iterdir()
    return folder


def sentences(corpus: Corpus) -> list[tuple[list[int], list[int]]]:
    return [(corpus.pair(i)[0].tolist(), corpus.pair(i)[1].tolist()) for i in range(len(corpus))]


@pytest.fixture
def no_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Tokenizer, texts: list[str]) -> list[list[int]]:
        raise AssertionError("encoded again")

    monkeypatch.setattr(Tokenizer, "encode_batch", refuse)


def test_a_second_time_nothing_is_encoded(
    config: DataConfig, tokenizers: TokenizerPair, built: Path, no_encoding: None
) -> None:
    corpus = prepare(config, config.train, tokenizers)
    assert [tokenizers.source.decode(source) for source, _ in sentences(corpus)] == [source for source, _ in PAIRS]
    assert corpus.account.kept == len(PAIRS)
    assert isinstance(corpus.source.values.base, np.memmap)
    assert not corpus.source.values.flags.writeable


def test_files_may_move(config: DataConfig, tokenizers: TokenizerPair, built: Path, no_encoding: None) -> None:
    before = prepare(config, config.train, tokenizers)
    for language in ("en", "de"):
        shutil.move(f"{config.train[0]}.{language}", f"{config.train[0]}-moved.{language}")
    corpus = prepare(config, [f"{config.train[0]}-moved"], tokenizers)
    assert corpus.fingerprint == before.fingerprint
    assert corpus.account.files[0].path == f"{config.train[0]}-moved"


def test_whatever_matters_makes_another_corpus(config: DataConfig, tokenizers: TokenizerPair, built: Path) -> None:
    words = TextConfig(kind="word", min_frequency=1, joint=False)
    other = train_tokenizers(words, lambda: iter(["w1"]), lambda: iter(["w1"]))
    half = train_tokenizers(words, lambda: iter(f"w{i}" for i in range(50)), lambda: iter(["w1"]))
    variants = [
        (config, tokenizers),
        (config, other),
        (config, half),
        (config.model_copy(update={"max_length": 9}), tokenizers),
        (config.model_copy(update={"max_length_ratio": 9.0}), tokenizers),
        (config.model_copy(update={"drop_duplicates": True}), tokenizers),
        (config.model_copy(update={"source": "de", "target": "en"}), tokenizers),
    ]
    prints = [prepare(variant, config.train, vocabularies).fingerprint for variant, vocabularies in variants]
    twice = [*config.train, *config.train]
    prints.append(prepare(config, twice, tokenizers).fingerprint)
    with open(f"{config.train[0]}.de", "r+b") as file:
        file.write(b"w4 ")  # the same size as before
    prints.append(prepare(config, config.train, tokenizers).fingerprint)
    assert len(set(prints)) == len(prints)
    same = config.model_copy(update={"batch_tokens": 99, "weights": [2.0]})
    assert prepare(same, config.train, tokenizers).fingerprint == prints[-1]


def test_the_two_ways_to_read_one_jsonl_are_two_corpora(make_config, tokenizers: TokenizerPair, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"en": "w1", "de": "w2"}\n')
    config = make_config("p.jsonl")
    for one, other in (("en", "de"), ("de", "en")):
        corpus = prepare(config.model_copy(update={"source": one, "target": other}), config.train, tokenizers)
        assert tokenizers.source.decode(corpus.pair(0)[0].tolist()) == {"en": "w1", "de": "w2"}[one]


def damage(folder: Path, how: str) -> None:
    ids, index = folder / "source.ids", folder / "index.json"
    match how:
        case "cut":
            os.truncate(ids, ids.stat().st_size - 2)
        case "longer":
            ids.write_bytes(ids.read_bytes() + b"\0\0")
        case "empty":
            ids.write_bytes(b"")
        case "missing":
            (folder / "target.offsets").unlink()
        case "lost offset":
            (folder / "target.offsets").write_bytes((folder / "target.offsets").read_bytes()[8:])
        case "no index":
            index.unlink()
        case "half an index":
            index.write_text(index.read_text()[:100])
        case "another index":
            index.write_text("[]")
        case "other fingerprint":
            index.write_text(index.read_text().replace('"fingerprint": "', '"fingerprint": "0'))
        case "a file":
            shutil.rmtree(folder)
            folder.write_text("not a folder")


@pytest.mark.parametrize(
    ("how", "file"),
    [
        ("cut", "source.ids"),
        ("longer", "source.ids"),
        ("empty", "source.ids"),
        ("missing", "target.offsets"),
        ("lost offset", "target.offsets"),
        ("no index", "index.json"),
        ("half an index", "index.json"),
        ("another index", "index.json"),
        ("other fingerprint", "index.json"),
    ],
)
def test_a_damaged_cache_is_built_again(
    config: DataConfig, tokenizers: TokenizerPair, built: Path, how: str, file: str
) -> None:
    before = sentences(prepare(config, config.train, tokenizers))
    damage(built, how)
    with pytest.warns(UserWarning, match=rf"{file}: is damaged .*; rebuilding the token cache$"):
        corpus = prepare(config, config.train, tokenizers)
    assert sentences(corpus) == before
    assert list(Path(config.cache).iterdir()) == [built]


def test_token_cache_names_the_file_with_a_flipped_bit(
    config: DataConfig, tokenizers: TokenizerPair, built: Path
) -> None:
    before = sentences(prepare(config, config.train, tokenizers))
    draw = random.Random(1)
    for file in sorted(built.iterdir()):
        for _ in range(8):
            data = bytearray(file.read_bytes())
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            file.write_bytes(data)
            with pytest.warns(UserWarning, match=rf"^{file}: is damaged"):
                corpus = prepare(config, config.train, tokenizers)
            assert sentences(corpus) == before


def test_token_cache_without_digests_is_rebuilt_without_a_warning(
    config: DataConfig, tokenizers: TokenizerPair
) -> None:
    """A cache of format 1 is not usable, but it is not damaged."""
    key = fingerprint(config, config.train, tokenizers)
    old = Path(config.cache) / f"{key[:32]}-1"
    old.mkdir(parents=True)
    (old / "index.json").write_text(json.dumps({"format": 1, "fingerprint": key}))
    assert len(prepare(config, config.train, tokenizers)) == len(PAIRS)
    assert len(list(Path(config.cache).iterdir())) == 2


def test_corpus_digest_depends_only_on_token_ids(config: DataConfig, tokenizers: TokenizerPair, built: Path) -> None:
    first = prepare(config, config.train, tokenizers).content_digest
    shutil.rmtree(built)
    assert prepare(config, config.train, tokenizers).content_digest == first
    with open(f"{config.train[0]}.de", "r+b") as file:
        file.write(b"w4 ")
    assert prepare(config, config.train, tokenizers).content_digest != first


def test_a_file_in_the_way_is_an_error(config: DataConfig, tokenizers: TokenizerPair, built: Path) -> None:
    damage(built, "a file")
    with pytest.raises(DataError, match=r"set data\.cache"):
        prepare(config, config.train, tokenizers)


def test_a_killed_build_leaves_nothing_that_counts(config: DataConfig, tokenizers: TokenizerPair) -> None:
    """Killed for good at the last moment, when every file is written and only the name is missing."""
    tokenizers.save(Path(config.train[0]).parent / "tokenizer.json")
    program = f"""
        import os, signal
        from pathlib import Path
        from glassformer.data import DataConfig, prepare
        from glassformer.text import TokenizerPair
        os.rename = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
        config = DataConfig.parse({config.model_dump()!r})
        prepare(config, config.train, TokenizerPair.load(Path(config.train[0]).parent / "tokenizer.json"))
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env={**os.environ, **source_path()})
    assert killed.returncode == -9
    (left,) = Path(config.cache).iterdir()
    assert left.name.startswith(".")
    assert (left / "index.json").exists()
    assert len(prepare(config, config.train, tokenizers)) == len(PAIRS)
    assert left.exists()  # it might have been another process at work
    old = time.time() - token_store.ABANDONED_SECONDS - 60
    for path in [*left.iterdir(), left]:
        os.utime(path, (old, old))
    (complete,) = (path for path in Path(config.cache).iterdir() if path != left)
    damage(complete, "cut")
    with pytest.warns(UserWarning, match="rebuilding the token cache"):
        prepare(config, config.train, tokenizers)
    assert list(Path(config.cache).iterdir()) == [complete]


def test_build_of_another_machine_stays_whatever_the_clock_of_this_one(
    config: DataConfig, tokenizers: TokenizerPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(config, config.train, tokenizers)
    (complete,) = Path(config.cache).iterdir()
    other = complete.with_name(f".{complete.name}.other")
    other.mkdir()
    damage(complete, "cut")
    ahead = time.time() + 2 * token_store.ABANDONED_SECONDS
    monkeypatch.setattr(time, "time", lambda: ahead)
    with pytest.warns(UserWarning, match="rebuilding the token cache"):
        prepare(config, config.train, tokenizers)
    assert other.exists()


def source_path() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(token_store.__file__).parents[2])}


def test_an_interrupted_build_tidies_up(
    config: DataConfig, tokenizers: TokenizerPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: Tokenizer, texts: list[str]) -> list[list[int]]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Tokenizer, "encode_batch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepare(config, config.train, tokenizers)
    assert list(Path(config.cache).iterdir()) == []


def test_the_faster_of_two_builds_stays(
    config: DataConfig, tokenizers: TokenizerPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, inner = Tokenizer.encode_batch, []

    def meanwhile(self: Tokenizer, texts: list[str]) -> list[list[int]]:
        monkeypatch.setattr(Tokenizer, "encode_batch", encode)
        inner.append(prepare(config, config.train, tokenizers))  # another process begins later and ends sooner
        return encode(self, texts)

    monkeypatch.setattr(Tokenizer, "encode_batch", meanwhile)
    outer = prepare(config, config.train, tokenizers)
    assert sentences(outer) == sentences(inner[0])
    assert len(list(Path(config.cache).iterdir())) == 1


def test_the_place_is_the_users_cache_unless_given(
    config: DataConfig, tokenizers: TokenizerPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config.model_copy(update={"cache": ""})
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    prepare(config, config.train, tokenizers)
    monkeypatch.delenv("XDG_CACHE_HOME")
    prepare(config, config.train, tokenizers)
    prepare(config.model_copy(update={"cache": "~/mine"}), config.train, tokenizers)
    places = ["xdg/glassformer", "home/.cache/glassformer", "home/mine"]
    assert all(len(list((tmp_path / place).glob("*/index.json"))) == 1 for place in places)


def test_a_cache_that_cannot_be_written_is_an_error(config: DataConfig, tokenizers: TokenizerPair) -> None:
    Path(config.cache).write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"cache: the token cache cannot be written.*set data\.cache"):
        prepare(config, config.train, tokenizers)


def test_a_full_disk_is_an_error(config: DataConfig, tokenizers: TokenizerPair) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(DataError, match=r"cannot be written.*data\.cache") as caught:
            prepare(config, config.train, tokenizers)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(caught.value)
    assert list(Path(config.cache).iterdir()) == []
