"""Test that every text survives encoding and decoding: random Unicode texts and this project's source.

    python -m benchmarks.roundtrip --texts 100000 --seed 1

Two tokenizers are learned from the project's source: byte-level BPE, and BPE with byte fallback. The second one
normalizes spaces, so its expected output is the normalized text. A third of the texts is drawn from all of Unicode and
a third from one script each. The last third mixes letters, spaces, symbols, controls and lookalikes of special tokens.
"""

import argparse
import json
import random
import unicodedata
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from glassformer.text import TextConfig, Tokenizer, train_tokenizers

ROOT = Path(__file__).parents[1]
SOURCES = ("src/**/*", "tests/**/*.py", "benchmarks/*.py", "docs/*.md", "configs/*.toml", "*.md")
CODE_POINTS = [*range(0xD800), *range(0xE000, 0x110000)]  # all except surrogates, which are not characters
SCRIPTS = [range(0x20, 0x7F), range(0xA0, 0x250), range(0x370, 0x530), range(0x590, 0x780), range(0x900, 0xE00)]
SCRIPTS += [range(0x1100, 0x1200), range(0x3040, 0x3100), range(0x4E00, 0xA000), range(0xAC00, 0xD7A4)]
SCRIPTS += [range(0x1F300, 0x1FB00), range(0x20000, 0x20100), range(0xE0000, 0xE0080)]
HARD = [*" \n\t\r\0\ufeff\u200d\u0301￭Ġ▁", "\r\n", "  ", "    ", "<s>", "</s>", "<unk>", "<pad>", "<0x41>", "'s", "'ll"]
LONGEST = 100  # characters or strings in a random text
KINDS: dict[str, dict[str, Any]] = {
    "bytes": {"kind": "bytes", "vocab_size": 8000},
    "byte fallback": {"kind": "bpe", "byte_fallback": True, "vocab_size": 8000},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    source = list(source_texts())
    report: dict[str, Any] = {
        "command": f"python -m benchmarks.roundtrip --texts {options.texts} --seed {options.seed}",
        "machine": describe(),
        "unicode": unicodedata.unidata_version,
        "source": {"files": len(source), "characters": sum(map(len, source))},
        "kinds": {},
    }
    for name, choices in KINDS.items():
        tokenizer = learn(choices, source)
        expected: Callable[[str], str] = str if name == "bytes" else tokenizer.normalize
        counts: dict[str, Any] = {"vocab_size": tokenizer.vocab_size}
        counts["source"] = failures(tokenizer, iter(source), expected)
        counts["random"] = failures(tokenizer, random_texts(options.texts, options.seed), expected)
        report["kinds"][name] = counts
        print(f"{name}: {counts}", flush=True)
    results = ROOT / "benchmarks" / "results" / "roundtrip.json"
    results.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def learn(choices: dict[str, Any], texts: list[str]) -> Tokenizer:
    return train_tokenizers(TextConfig.parse(choices), lambda: iter(texts), lambda: iter(())).source


def failures(tokenizer: Tokenizer, texts: Iterator[str], expected: Callable[[str], str]) -> dict[str, int]:
    """Count texts changed by encoding and decoding, and texts whose ids include a special token (such as unknown)."""
    special = set(tokenizer.special_tokens.values())
    count = characters = tokens = changed = unknown = 0
    while batch := list(islice(texts, 1000)):
        for text, ids in zip(batch, tokenizer.encode_batch(batch), strict=True):
            count, characters, tokens = count + 1, characters + len(text), tokens + len(ids)
            changed += tokenizer.decode(ids) != expected(text)
            unknown += not special.isdisjoint(ids)
    return {"texts": count, "characters": characters, "tokens": tokens, "changed": changed, "unknown": unknown}


def random_texts(count: int, seed: int) -> Iterator[str]:
    draw = random.Random(seed)
    for number in range(count):
        length = draw.randint(0, LONGEST)
        if number % 3 == 0:
            yield "".join(map(chr, draw.choices(CODE_POINTS, k=length)))
        elif number % 3 == 1:
            yield "".join(map(chr, draw.choices(draw.choice(SCRIPTS), k=length)))
        else:
            letters = [chr(draw.choice(draw.choice(SCRIPTS))) for _ in range(8)]
            yield "".join(draw.choices(HARD + letters, k=length))


def source_texts() -> Iterator[str]:
    """The project's text files."""
    for path in sorted({path for pattern in SOURCES for path in ROOT.glob(pattern) if path.is_file()}):
        try:
            yield path.read_bytes().decode()
        except UnicodeDecodeError:
            continue


if __name__ == "__main__":
    main()
