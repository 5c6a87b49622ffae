"""glassformer's shards as a contender of ``benchmarks.streaming``: samples as arrays, and batches of a task."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders.streamed import COMPARED, measure, peak_mebibytes
from glassformer.data.config import DataConfig, MaskedConfig, StreamConfig
from glassformer.data.read_report import ReadReport
from glassformer.data.shards.epoch import EpochOrder
from glassformer.data.shards.shard_batches import masked_shards, pair_shards, stream_shards
from glassformer.data.shards.shard_index import SampleSet, ShardIndex
from glassformer.data.shards.shard_set import ShardSet
from glassformer.data.shards.shard_writer import ShardWriter
from glassformer.data.token_store import Ragged
from glassformer.text import TextConfig, TokenizerPair, train_tokenizers
from glassformer.text.config import MARKS

WINDOW, BLOCK, SHARD_TOKENS = 16384, 1 << 17, 1 << 26
WORDS = 30_000
PAIRS = 1 << 21
"""Sides of the pairs for batches of translation."""


class Shards:
    """Samples of one column, window by window."""

    def write(self, source: Path, folder: Path) -> None:
        write_shards(folder, _blocks(source), ("tokens",))

    def begin(self, folder: Path, state: Any = None) -> Iterator[Any]:
        shards = ShardSet(folder, ShardIndex.read(folder))
        order = EpochOrder.of([shards.index.samples], [1.0], WINDOW, 1, 0)
        taken = state or 0
        first = order.window_of(taken)
        for number in range(first, order.n_windows):
            (tokens,), _ = shards.columns(order.samples(number))
            for row in range(taken - order.begin(first) if number == first else 0, len(tokens)):
                yield tokens[row]

    def state(self, taken: int) -> int:
        return taken


def _blocks(source: Path, limit: int | None = None) -> Iterator[Ragged]:
    tokens, every = np.memmap(source / "tokens.u2", "<u2", "r"), np.fromfile(source / "lengths.i4", "<i4")[:limit]
    begin = 0
    for first in range(0, len(every), BLOCK):
        lengths = every[first : first + BLOCK]
        offsets = np.concatenate([[0], lengths.cumsum(dtype=np.int64)])
        yield Ragged(np.asarray(tokens[begin : begin + int(offsets[-1])]), offsets)
        begin += int(offsets[-1])


def write_shards(folder: Path, blocks: Iterator[Ragged], columns: tuple[str, ...]) -> None:
    """Shards of rows that exist already, as ``prepare`` writes them."""
    folder.mkdir(parents=True)
    tokenizers = tokenizer_of_numbers()
    tokenizers.save(folder / "tokenizer.json")
    writer = ShardWriter(folder, "<u2", [True] * len(columns), SHARD_TOKENS, False, lambda: None)
    for rows in blocks:
        writer.append(rows)
    writer.close()
    samples, values = (sum(getattr(shard, name) for shard in writer.finished) for name in ("samples", "values"))
    sets, print_ = [SampleSet("synthetic", samples, values)], tokenizers.fingerprint
    ShardIndex("masked", columns, "<u2", print_, {}, {}, writer.finished, sets, ReadReport()).write(folder)


def tokenizer_of_numbers() -> TokenizerPair:
    config = TextConfig(kind="word", vocab_size=WORDS + 8, min_frequency=1, extra_special=MARKS)
    return train_tokenizers(config, lambda: (f"w{number}" for number in range(WORDS)), lambda: iter(()))


def stream_batches(folder: Path, task: str, count: int) -> dict[str, Any]:
    """Batches as training takes them: packed pairs, masked sequences, or windows of a stream."""
    tokenizers, shards = tokenizer_of_numbers(), ShardSet(folder, ShardIndex.read(folder))
    tokenizer = tokenizers.source
    loader: Any
    if task == "translation":
        data = DataConfig(train=["x"], shards=str(folder), batch_tokens=8192)
        loader = pair_shards(shards, tokenizers, data, 1, 0.0, data.row_tokens)
    elif task == "masked":
        loader = masked_shards(shards, tokenizer, MaskedConfig(train=["x"], shards=str(folder)), 1)
    else:
        loader = stream_shards(shards, tokenizer, StreamConfig(train=["x"], shards=str(folder)), 1)
    loader.next()
    began, done, tokens = time.perf_counter(), 0, 0
    while done < count:
        batch = loader.next()
        done, tokens = done + len(batch), tokens + batch.source_tokens
    seconds = time.perf_counter() - began
    state, expected = loader.state(), [loader.next() for _ in range(20)]
    began = time.perf_counter()
    loader = type(loader)(ShardSet(folder, shards.index), loader._order_of, loader._read, 1, "")
    loader.restore(state)
    resumed = [loader.next()]
    resume_seconds = time.perf_counter() - began
    resumed += [loader.next() for _ in range(19)]
    exact = all(
        np.array_equal(np.asarray(getattr(a, name)), np.asarray(getattr(b, name)))
        for a, b in zip(expected, resumed, strict=True)
        for name in ("source" if task == "translation" else "tokens", "labels")
    )
    rates = {"samples_per_second": round(done / seconds), "source_tokens_per_second": round(tokens / seconds)}
    report = {**rates, "samples": done, "peak_mib": round(peak_mebibytes(), 1)}
    return {**report, "seconds_to_resume": round(resume_seconds, 2), "exact": exact}


if __name__ == "__main__":
    if sys.argv[1] == "pairs":
        write_shards(Path(sys.argv[3]), _blocks(Path(sys.argv[2]), PAIRS), ("source", "target"))
        print("{}")
    elif sys.argv[1] == "batches":
        print(json.dumps(stream_batches(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))))
    else:
        measure(Shards())

assert COMPARED > WINDOW  # the comparison reaches the next window
