"""Preparation of the shards of a training: its tokenizer, then its samples."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.data.shards.preparation import (
    SHARD_TOKENS,
    Advanced,
    Preparation,
    check_shard_tokens,
    locked,
    stored_tokenizers,
)
from glassformer.errors import ConfigError
from glassformer.predict.loading import load_checked
from glassformer.storage.run_folder import resolve
from glassformer.tasks import TASKS, resolve_name
from glassformer.train.build import origin_of
from glassformer.train.config import RunConfig

__all__ = ["Advanced", "prepare_shards"]


def prepare_shards(
    config: RunConfig, folder: str | Path, processes: int = 1, shard_tokens: int = SHARD_TOKENS
) -> Iterator[Advanced]:
    """Write the training data of ``config`` into ``folder`` as shards for ``data.shards``; yield the progress.

    The tokenizer is that of ``train.start_from``, or it is learned first. A preparation that was stopped goes on after
    its last finished shard, and the result is equal to the bit. So it is for any number of ``processes``.
    """
    record, folder, data = TASKS[config.task], Path(folder), config.data
    if not record.samples:
        names = ", ".join(name for name, other in TASKS.items() if other.samples)
        raise ConfigError(f"task={config.task} reads no text; shards are for the tasks {names}")
    if getattr(data, "alignments", None):
        raise ConfigError("shards hold no alignments; leave data.alignments out")
    check_shard_tokens(shard_tokens)
    task, samples = resolve_name(record.training), resolve_name(record.samples)
    start = config.train.start_from
    text: dict[str, Any] = config.model_dump(mode="json")["text"]
    with locked(folder):
        initial = task.vocabulary(config, origin_of(load_checked(resolve(start)))) if start else None
        tokenizers = stored_tokenizers(folder, lambda: initial or task.vocabulary(config, None))
        yield from Preparation(
            config.task,
            samples(data, tokenizers),
            folder,
            text,
            shard_tokens,
            processes,
            initial.fingerprint if initial else None,
        ).run()
