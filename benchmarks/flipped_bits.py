"""Flip single bits in token caches and run folders, use the damaged files, and count the outcomes.

    python benchmarks/flipped_bits.py --caches 1000 --runs 2000 --seed 1

Each flip draws a file first, then one of its bits, so short files are hit as often as long ones. A damaged cache is
prepared again and compared id by id. A damaged run is used in four ways: its best checkpoint translates, it is resumed
to the end with its own ``config.toml``, its metrics are read, and every checkpoint is loaded. Each result is compared
with that of the undamaged run.

``rebuilt``: the cache was prepared again, with a warning that names the file. ``refused``: a one-line error.
``named``: a message that the undamaged files do not produce. ``without_effect``: all results are equal to the last bit.
``silent``: a result differs without a message. Prints a JSON report and exits with 1 if any outcome was silent.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.alignment import write_pharaoh
from glassformer.data import DataConfig, prepare
from glassformer.data.config import StreamConfig
from glassformer.data.token_stream import prepare_stream
from glassformer.demo_corpus.grammar import sample_corpus
from glassformer.errors import GlassformerError
from glassformer.native.library import kernels
from glassformer.predict.translator import Translator
from glassformer.storage.checkpoint import fingerprint, load_checkpoint
from glassformer.storage.run_folder import RunFolder
from glassformer.text import TextConfig, Tokenizer, TokenizerPair, train_tokenizers
from glassformer.train import Started, parse_config, read_config, train

CLOCK = ("seconds", "validation_seconds", "source_tokens_per_second", "target_tokens_per_second")
TEXTS = ["the old cat sleeps", "she loves the red flower"]
RUN = {
    "model": {"d_model": 8, "n_heads": 2, "d_ff": 16, "n_encoder_layers": 1, "n_decoder_layers": 1},
    "text": {"kind": "word", "min_frequency": 1},
    "data": {
        "source": "en",
        "target": "fr",
        "train": ["train"],
        "validation": ["validation"],
        "batch_tokens": 200,
        "cache": "cache",
    },
    "optimizer": {"schedule": "constant", "learning_rate": 0.01, "warmup_steps": 2},
    "train": {"max_steps": 4, "save_every": 1, "log_every": 1, "keep_checkpoints": 9, "threads": 1},
    "validation": {"every": 1, "max_sentences": 2, "metric": "chrf"},
    "decoding": {"beam_size": 2, "max_extra": 3},
}
SAVED_STEPS = 2
REFUSED = "refused"
Outcome = tuple[Any, list[str]]
Flips = dict[str, Counter[str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--caches", type=int, default=1000, help="bits flipped in token caches")
    parser.add_argument("--runs", type=int, default=2000, help="bits flipped in run folders with their checkpoints")
    parser.add_argument("--seed", type=int, default=1, help="random seed for the choice of bits")
    options = parser.parse_args()
    torch.set_num_threads(RUN["train"]["threads"])
    with tempfile.TemporaryDirectory() as name:
        kernels()  # build them before XDG_CACHE_HOME changes
        os.environ["XDG_CACHE_HOME"] = name
        os.chdir(name)  # relative paths: a flipped bit in one cannot lead out of this folder
        write_data()
        draw, silent = random.Random(options.seed), list[str]()
        caches = flip_in_caches(options.caches, draw, silent)
        runs = flip_in_run(options.runs, draw, silent)
        os.chdir("/")
    report = {"seed": options.seed, "token_caches": counted(caches), "run_folders": counted(runs), "silent": silent}
    print(json.dumps(report, indent=1))
    sys.exit(1 if silent else 0)


def write_data() -> None:
    pairs = sample_corpus(60, seed=5)
    for name, part in {"train": pairs[5:], "validation": pairs[:5]}.items():
        for language, texts in (("en", [pair.source for pair in part]), ("fr", [pair.target for pair in part])):
            Path(f"{name}.{language}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    shutil.copyfile("train.en", "train.txt")
    Path("train.align").write_text("".join(f"{write_pharaoh(pair.alignment)}\n" for pair in pairs[5:]))


# Token caches


def flip_in_caches(count: int, draw: random.Random, silent: list[str]) -> Flips:
    words = TextConfig(kind="word", min_frequency=1, pre_tokenizer="whitespace")
    lines = Path("train.en").read_text("utf-8").splitlines() + Path("train.fr").read_text("utf-8").splitlines()
    tokenizers = train_tokenizers(words, lambda: iter(lines), lambda: iter(()))
    pairs = DataConfig.parse({"source": "en", "target": "fr", "train": ["train"], "cache": "pairs"})
    text = StreamConfig.parse({"train": ["train.txt"], "documents": "line", "cache": "stream"})
    kinds = [
        (Path("pairs"), partial(corpus, pairs, tokenizers)),
        (Path("stream"), partial(stream, text, tokenizers.source)),
    ]
    expected, flips = [(prepared(), list[str]()) for _, prepared in kinds], Flips()
    for number in range(count):
        folder, prepared = kinds[number % 2]
        file, bit = flip(sorted(folder.glob("*/*")), draw)
        found = attempt(prepared)
        kind = judge(found, expected[number % 2])
        rebuilt = kind == "named" and found[0] == expected[number % 2][0] and str(file) in found[1][0]
        note(flips, file, "rebuilt" if rebuilt else kind, bit, silent)
    return flips


def corpus(config: DataConfig, tokenizers: TokenizerPair) -> list[Any]:
    found = prepare(config, config.train, tokenizers, ["train.align"])
    assert found.links is not None
    arrays = (array for side in (found.source, found.target, found.links) for array in (side.ids, side.offsets))
    return [found.account.to_json(), found.content_digest, *(as_bytes(array) for array in arrays)]


def stream(config: StreamConfig, tokenizer: Tokenizer) -> list[Any]:
    found = prepare_stream(config, config.train, tokenizer)
    counts = [found.characters, found.bytes, found.account.to_json(), found.content_digest]
    return [*counts, as_bytes(found.ids), as_bytes(found.offsets)]


def as_bytes(array: np.ndarray) -> bytes:
    return array.dtype.str.encode() + array.tobytes()


# Run folders


def flip_in_run(count: int, draw: random.Random, silent: list[str]) -> Flips:
    """Flip bits in copies of a run that stopped after ``SAVED_STEPS`` steps, one bit for each copy."""
    stopped, copy = Path("stopped"), Path("run")
    stops = iter([False] * (SAVED_STEPS - 1) + [True])
    list(train(parse_config(RUN), RunFolder.create(stopped), should_stop=lambda: next(stops)))
    expected, flips = list[Outcome](), Flips()
    for number in range(count + 1):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(stopped, copy)
        file, bit = flip(sorted(path for path in copy.rglob("*") if path.is_file()), draw) if number else (copy, 0)
        found = [attempt(partial(use, copy)) for use in (metrics, checkpoints, translations, resumed)]
        if not number:
            expected = found
            assert all(result != REFUSED for result, _ in expected), expected
            continue
        kinds = list(map(judge, found, expected))
        kind = next(kind for kind in ("silent", "refused", "named", "without_effect") if kind in kinds)
        note(flips, file, kind, bit, silent)
    return flips


def metrics(run: Path) -> list[dict[str, Any]]:
    lines = [line for line in RunFolder.open(run).metrics() if line["event"] != "started"]
    return [{key: value for key, value in line.items() if key not in CLOCK} for line in lines]


def checkpoints(run: Path) -> list[str]:
    """States of all checkpoints, because a user may load any of them."""
    return [state_of(path) for path in RunFolder.open(run).checkpoints()]


def translations(run: Path) -> list[str]:
    return Translator.load(run).translate(TEXTS)


def resumed(run: Path) -> list[Any]:
    """Weights, optimizer, counters, best checkpoint and metrics after the remaining steps."""
    folder = RunFolder.open(run)
    for event in train(read_config(run / "config.toml"), folder, resume=True):
        if isinstance(event, Started):
            for line in [*event.warnings, *(line for line in event.accounts if line.startswith("settings changed"))]:
                warnings.warn(line, stacklevel=1)
    best = folder.best()
    return [state_of(folder.checkpoints()[-1]), best and [best.checkpoint.name, best.metric, best.value], metrics(run)]


def state_of(checkpoint: Path) -> str:
    stored = load_checkpoint(checkpoint, training=True)
    assert stored.training is not None
    values = stored.training.values
    values["counters"]["seconds"] = 0
    return json.dumps([fingerprint(stored.weights), fingerprint(stored.training.tensors), values, stored.tokenizer])


# One flip


def flip(files: list[Path], draw: random.Random) -> tuple[Path, int]:
    """Flip one random bit in a random file; return the file and the bit number."""
    file = draw.choice([file for file in files if file.stat().st_size])
    data = bytearray(file.read_bytes())
    bit = draw.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)
    return file, bit


def attempt(use: Callable[[], Any]) -> Outcome:
    """Result of ``use`` and its messages. User errors count as messages; any other error ends the benchmark."""
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        try:
            result = use()
        except (GlassformerError, OSError) as error:
            result, messages = REFUSED, [error]
    return result, [str(getattr(message, "message", message)) for message in messages]


def judge(found: Outcome, expected: Outcome) -> str:
    if found[0] == REFUSED:
        return "refused"
    if found[1] != expected[1]:
        return "named"
    return "without_effect" if found[0] == expected[0] else "silent"


def note(flips: Flips, file: Path, kind: str, bit: int, silent: list[str]) -> None:
    name = file.name if file.parent.name != "training_state" else f"training_state/{file.name}"
    flips.setdefault(name, Counter())[kind] += 1
    if kind == "silent":
        silent.append(f"{file}, bit {bit}")


def counted(flips: Flips) -> dict[str, Any]:
    total = sum(flips.values(), Counter[str]())
    return {"total": dict(total), "by_file": {name: dict(kinds) for name, kinds in sorted(flips.items())}}


if __name__ == "__main__":
    main()
