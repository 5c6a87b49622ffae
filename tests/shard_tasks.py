"""The five tasks that read text, each with a small corpus, its shards, and the samples of an epoch."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.shards.shard_loader import ShardLoader
from glassformer.train import RunConfig, parse_config, prepare_shards
from glassformer.train.tasks import make_task

WORDS = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "an", "er", "il", "os")]
BERT = {"kind": "bert", "d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "dropout": 0.0, "max_length": 32}
HEADLESS = BERT | {"masked_tokens": False}


def sentences(count: int, seed: int = 0) -> list[str]:
    """Sentences of one to twelve words."""
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, generator.integers(1, 13))) for _ in range(count)]


def _translation(folder: Path) -> dict[str, Any]:
    left, right = sentences(300), sentences(300, 1)
    left[7] = left[100] = ""  # dropped
    (folder / "train.en").write_text("".join(f"{line}\n" for line in left))
    (folder / "train.de").write_text("".join(f"{line}\n" for line in right))
    (folder / "more.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(right[:50], left[50:100], strict=True)))
    model = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_encoder_layers": 1, "n_decoder_layers": 1, "dropout": 0.0}
    data = {"source": "en", "target": "de", "train": [str(folder / "train"), str(folder / "more.tsv")]}
    return {
        "model": model | {"tie_embeddings": False},
        "text": {"vocab_size": 120, "joint": False},
        "data": data | {"batch_tokens": 256, "row_tokens": 16, "bucket_window": 64},
    }


def _documents(folder: Path) -> list[str]:
    lines = sentences(240)
    (folder / "one.txt").write_text("".join(f"{line}\n" + "\n" * (i % 3 == 0) for i, line in enumerate(lines[:160])))
    (folder / "two.jsonl").write_text("".join(f"{json.dumps({'text': line})}\n" for line in lines[160:]))
    return [str(folder / "one.txt"), str(folder / "two.jsonl")]


def _language(folder: Path) -> dict[str, Any]:
    model = {"kind": "gpt", "d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "dropout": 0.0, "max_length": 16}
    data = {"train": _documents(folder), "documents": "blank_line", "context": 16, "batch_size": 8}
    return {"model": model, "text": {"vocab_size": 300}, "data": data}


def _masked(folder: Path) -> dict[str, Any]:
    data = {"train": _documents(folder), "documents": "blank_line", "max_length": 16, "batch_tokens": 128}
    return {"model": BERT, "text": {"vocab_size": 120}, "data": data | {"bucket_window": 64}}


def _classification(folder: Path) -> dict[str, Any]:
    texts, pairs = sentences(200), sentences(200, 1)
    rows = (f"{a}\t{b}\t{('loud', 'quiet', 'mute')[len(a) % 3]}\n" for a, b in zip(texts, pairs, strict=True))
    (folder / "train.tsv").write_text("text\tother\tlabel\n" + "".join(rows))
    data = {"train": [str(folder / "train.tsv")], "pair_column": "other", "max_length": 24, "batch_tokens": 192}
    return {"model": HEADLESS, "text": {"vocab_size": 120}, "data": data | {"bucket_window": 64}}


def _tagging(folder: Path) -> dict[str, Any]:
    tagged = (
        "".join(f"{word} {'NOUN' if word[0] in 'bdf' else 'VERB'}\n" for word in text.split())
        for text in sentences(150)
    )
    (folder / "train.conll").write_text("\n".join(tagged))
    data = {"train": [str(folder / "train.conll")], "max_length": 32, "batch_tokens": 192, "bucket_window": 64}
    return {"model": HEADLESS, "text": {"kind": "char"}, "data": data}


SETTINGS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "translation": _translation,
    "language": _language,
    "masked": _masked,
    "classification": _classification,
    "tagging": _tagging,
}


def settings(task: str, folder: Path) -> dict[str, Any]:
    """Settings of a task on files that are written into ``folder``."""
    values = {
        "task": task,
        "optimizer": {"kind": "adamw", "schedule": "constant", "learning_rate": 0.01},
        "train": {"max_steps": 12, "save_every": 4, "log_every": 4, "threads": 1, "seed": 3},
        **SETTINGS[task](folder),
    }
    values["data"]["cache"] = str(folder / "cache") if task in ("translation", "language", "masked") else None
    values["data"] = {name: value for name, value in values["data"].items() if value is not None}
    return values


def config_of(values: dict[str, Any], **data: Any) -> RunConfig:
    return parse_config({**values, "data": {**values["data"], **data}})


def prepared(values: dict[str, Any], folder: Path, shard_tokens: int = 400, processes: int = 1) -> RunConfig:
    """Prepare shards in ``folder``; the configuration that trains from them."""
    for _ in prepare_shards(config_of(values), folder, processes, shard_tokens):
        pass
    return config_of(values, shards=str(folder))


def batches_of(config: RunConfig) -> Any:
    return make_task(config).batches


def epoch(batches: Any) -> Iterator[Any]:
    """The batches that are left in this epoch."""
    number = batches.epoch
    while batches.epoch == number:
        yield batches.next()


def samples_of(batch: Any) -> list[tuple[Any, ...]]:
    """What each example of a batch consists of, without padding."""
    if hasattr(batch, "pairs"):
        return [(tuple(source), tuple(target)) for source, target in batch.pairs()]
    if not hasattr(batch, "mask"):
        return [(*row.tolist(), last) for row, last in zip(batch.tokens, batch.labels[:, -1].tolist(), strict=True)]
    shown = getattr(batch, "labels", batch.tokens)
    shown = shown if shown.dim() == 2 else batch.tokens
    rows = []
    for number, mask in enumerate(batch.mask):
        extra = [batch.segments[number][mask].tolist()]
        if hasattr(batch, "tags"):
            extra.append(batch.tags[number][mask].tolist())
        elif batch.labels.dim() == 1:
            extra.append([int(batch.labels[number])])
        rows.append((tuple(shown[number][mask].tolist()), *map(tuple, extra)))
    return rows


def multiset(batches: Iterator[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(sample for batch in batches for sample in samples_of(batch))


def shard_loader(config: RunConfig) -> ShardLoader[Any]:
    loader = batches_of(config)
    assert isinstance(loader, ShardLoader)
    return loader
