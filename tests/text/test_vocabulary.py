"""Learning a vocabulary: its size, its special tokens, that it is always the same, and what cannot be learned from."""

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from glassformer.errors import ConfigError, DataError
from glassformer.text import TextConfig, TokenizerPair, train_tokenizers

ENGLISH = ["A dog runs.", "Two dogs run on the grass.", "The dog is on a boat."] * 3
GERMAN = ["Ein Hund läuft.", "Zwei Hunde laufen über Gras.", "Der Hund ist auf einem Boot."] * 3
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]


def trained(source: list[str], target: list[str], **choices) -> TokenizerPair:
    return train_tokenizers(TextConfig.parse(choices), lambda: iter(source), lambda: iter(target))


@pytest.mark.parametrize("kind", ["bpe", "word", "char"])
def test_special_tokens_come_first_and_no_text_becomes_one(kind):
    tokenizer = trained(ENGLISH, GERMAN, kind=kind).source
    assert tokenizer.tokens(range(4)) == SPECIAL
    assert [tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id] == [0, 1, 2, 3]
    assert tokenizer.decode([1, *tokenizer.encode("A dog runs."), 2, 0]) == "A dog runs."


@pytest.mark.parametrize("kind", ["bpe", "word", "char"])
@pytest.mark.parametrize("pre_tokenizer", ["punctuation", "whitespace"])
def test_text_that_looks_like_a_special_token_is_text(kind, pre_tokenizer):
    text = "<s> </s> <pad><unk> [MASK] <s>dog </w>"
    choices = {"kind": kind, "pre_tokenizer": pre_tokenizer, "min_frequency": 1, "extra_special": ["[MASK]"]}
    tokenizer = trained([text] * 50, [], **choices).source
    assert not set(tokenizer.encode(text)) & set(tokenizer.special_tokens.values())
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert trained([text] * 50, [], **choices).source.encode("<s>") != [1]


def test_extra_special_tokens_follow_the_four():
    tokenizer = trained(ENGLISH, [], extra_special=["[MASK]", "<en>"]).source
    assert tokenizer.special_tokens == {**{name: i for i, name in enumerate(SPECIAL)}, "[MASK]": 4, "<en>": 5}
    assert tokenizer.decode([4, *tokenizer.encode("dog"), 5]) == "dog"


def test_merging_stops_at_the_size_or_at_the_frequency():
    assert trained(ENGLISH, GERMAN, vocab_size=60).source.vocab_size == 60
    unlimited = trained(ENGLISH, GERMAN, min_frequency=3).source
    assert unlimited.vocab_size < 8000
    assert trained(ENGLISH, GERMAN, min_frequency=10).source.vocab_size < unlimited.vocab_size
    words = trained(["a a a b b c"], [], kind="word", min_frequency=2).source
    assert words.tokens(range(words.vocab_size)) == [*SPECIAL, "a", "b"]
    assert trained(["a a a b b c"], [], kind="word", vocab_size=5).source.vocab_size == 5


def test_rare_characters_stay_in_the_vocabulary():
    tokenizer = trained(["aaa\n$"], [], kind="char").source
    assert tokenizer.tokens(range(4, tokenizer.vocab_size)) == ["\n", "$", "a"]
    assert tokenizer.encode("a $\n") == [6, 3, 5, 4]
    assert trained(["aaa $"], []).source.unknown_id not in trained(["aaa $"], []).source.encode("$a$")


def test_many_characters_honor_the_size():
    han = "".join(map(chr, range(0x4E00, 0x4E00 + 3000)))
    tokenizer = trained([han], [], vocab_size=3006).source
    assert tokenizer.vocab_size == 3006
    assert tokenizer.decode(tokenizer.encode(han[::-1])) == han[::-1]


def test_joint_is_one_vocabulary_and_otherwise_each_side_has_its_own():
    joint = trained(ENGLISH, GERMAN, joint=True)
    assert joint.source is joint.target
    assert joint.source.unknown_id not in joint.source.encode("über dogs")
    apart = trained(ENGLISH, GERMAN, joint=False)
    assert apart.source.unknown_id in apart.source.encode("über")
    assert 3 not in apart.target.encode("über")
    assert apart.source.fingerprint != apart.target.fingerprint


@pytest.mark.parametrize("kind", ["bpe", "word", "char"])
def test_the_same_text_gives_the_same_vocabulary_in_any_process(kind):
    """Ties in frequency are common here; hash seeds and the number of threads differ."""
    script = f"""
import random
from glassformer.text import TextConfig, train_tokenizers
draw = random.Random(1)
words = ["".join(draw.choices("abcdefghijklmnop-", k=draw.randint(1, 8))) for _ in range(3000)]
lines = [" ".join(draw.choices(words, k=10)) + "." for _ in range(3000)]
config = TextConfig(kind="{kind}", vocab_size=2000)
print(train_tokenizers(config, lambda: iter(lines), lambda: iter(lines[::-1])).fingerprint)
"""
    settings = [
        {"PYTHONHASHSEED": "1", "TOKENIZERS_PARALLELISM": "true", "RAYON_NUM_THREADS": "4"},
        {"PYTHONHASHSEED": "2", "TOKENIZERS_PARALLELISM": "true", "RAYON_NUM_THREADS": "3"},
        {"PYTHONHASHSEED": "3", "TOKENIZERS_PARALLELISM": "false"},
    ]
    assert len({run(script, **setting) for setting in settings}) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_encodes_too_and_without_a_warning():
    script = """
import os
from glassformer.text import TextConfig, train_tokenizers
lines = ["a dog runs"] * 2000
tokenizer = train_tokenizers(TextConfig(), lambda: iter(lines), lambda: iter(lines)).source
expected = tokenizer.encode_batch(lines)
child = os.fork()
if child == 0:
    os._exit(tokenizer.encode_batch(lines) != expected)
print(os.waitpid(child, 0)[1])
"""
    assert run(script, RAYON_NUM_THREADS="4") == "0"


def run(script: str, **environment: str) -> str:
    """What a fresh interpreter prints; anything on its standard error fails."""
    source = Path(__file__).parents[2] / "src"
    inherited = {key: value for key, value in os.environ.items() if key != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**inherited, "PYTHONPATH": str(source), **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_threads_share_a_tokenizer():
    tokenizer = trained(ENGLISH, GERMAN).source
    expected = [tokenizer.encode(line) for line in ENGLISH]
    seen: list[list[list[int]]] = []
    threads = [threading.Thread(target=lambda: seen.append(tokenizer.encode_batch(ENGLISH))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [expected] * 8


def test_batch_encoding_equals_single_encodings():
    tokenizer = trained(ENGLISH, GERMAN).source
    texts = [*random.Random(0).sample(ENGLISH + GERMAN, 10), "", "dogs?"]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch([]) == []
    assert tokenizer.encode(" \n") == []
    assert tokenizer.decode([]) == ""


@pytest.mark.parametrize("kind", ["bpe", "word", "char"])
def test_no_text_is_refused(kind):
    with pytest.raises(
        DataError,
        match=r"^source and target: no (text, empty lines and .*|word occurs min_frequency=2 times), so there is",
    ):
        trained([], [], kind=kind)
    with pytest.raises(DataError, match=r"^target: no "):
        trained(ENGLISH, [""], kind=kind, joint=False)


def test_a_size_too_small_is_refused_with_the_size_that_would_do():
    with pytest.raises(DataError, match=r"vocab_size=20 is too small for .* of source and target; ") as refused:
        trained(ENGLISH, GERMAN, vocab_size=20)
    enough = int(str(refused.value).split()[-1])
    assert trained(ENGLISH, GERMAN, vocab_size=enough).source.vocab_size == enough
    with pytest.raises(DataError, match=f"at least {enough}"):
        trained(ENGLISH, GERMAN, vocab_size=enough - 1)
    for kind in ("bpe", "word", "char"):
        with pytest.raises(ConfigError, match="vocab_size=4 leaves nothing beside 4 special tokens; raise it"):
            trained(ENGLISH, GERMAN, vocab_size=4, kind=kind)


def test_an_error_while_reading_reaches_the_caller():
    def lines():
        yield "a dog"
        raise DataError("train.en:2: not UTF-8")

    for kind in ("bpe", "word", "char"):
        with pytest.raises(DataError, match=r"train\.en:2: not UTF-8"):
            train_tokenizers(TextConfig(kind=kind), lines, lambda: iter(()))


def test_an_id_outside_the_vocabulary_is_refused():
    tokenizer = trained(ENGLISH, GERMAN, vocab_size=60).source
    for ids in ([60], [4, -1]):
        for use in (tokenizer.decode, tokenizer.tokens, tokenizer.word_of):
            with pytest.raises(DataError, match=f"token id {ids[-1]} is not in this vocabulary; .* 0 to 59"):
                use(ids)


def test_real_text_comes_back():
    folder = Path(__file__).parents[2].parent / "shared" / "data" / "multi30k" / "raw"
    if not folder.exists():
        pytest.skip("the Multi30k corpus is not here")
    english, german = ((folder / f"val.{code}").read_text().splitlines() for code in ("en", "de"))
    tokenizer = trained(english, german, vocab_size=2000).source
    for line in english + german:
        ids = tokenizer.encode(line)
        assert tokenizer.unknown_id not in ids
        assert tokenizer.decode(ids) == tokenizer.normalize(line)
        assert tokenizer.word_of(ids)[-1] == len(tokenizer.normalize(line).split(" ")) - 1


def test_limited_merges_are_a_prefix_of_all_merges() -> None:
    lines = ["low lower lowest newer newest wide wider widest"] * 5
    few, many = (
        train_tokenizers(TextConfig(merges=count), lambda: iter(lines), lambda: iter(lines)).source for count in (7, 20)
    )
    ranks = {merge.rank for word in lines[0].split() for merge in few.merges_of(word)}
    assert max(ranks) == 6
    assert few.vocab_size < many.vocab_size
    assert few.merges_of("lowest")[:3] == many.merges_of("lowest")[:3]
    assert few.decode(few.encode("lowest wider")) == "lowest wider"


# Text size of tokens


@pytest.mark.parametrize("kind", ["bpe", "word", "char", "bytes"])
def test_text_size_equals_that_of_the_decoded_text(kind, monkeypatch):
    text = "Der Hund läuft.  Two\ndogs 日本 run – on grass! " * 30
    tokenizer = trained([text], [], kind=kind, vocab_size=300, min_frequency=1).source
    ids = tokenizer.encode(text)
    whole = tokenizer.decode(ids)
    for measured in (1 << 16, 7, 1):
        monkeypatch.setattr("glassformer.text.tokenizer.MEASURED_TOKENS", measured)
        assert tokenizer.size(ids) == (len(whole), len(whole.encode()))
        first = tokenizer.decode(ids[:1])
        assert tokenizer.size(ids, given=1) == (len(whole) - len(first), len((whole).encode()) - len(first.encode()))
    documents = [tokenizer.encode(part) for part in ("Two dogs", "läuft", "")]
    joined = [id for document in documents for id in [*document, tokenizer.end_id]]
    assert tokenizer.size(joined) == (13, 14)
    assert tokenizer.size(joined, given=len(documents[0])) == (5, 6)
    assert tokenizer.size([]) == (0, 0)
