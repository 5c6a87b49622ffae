"""A checkpoint: a folder of safetensors and JSON, either whole or refused; nothing in it is ever executed.

``config.json``, ``model.safetensors`` and ``tokenizer.json`` are all that inference needs, ``training_state/`` all that
resuming needs on top. ``manifest.json`` holds the size and SHA-256 of each of them, and a digest of itself.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from glassformer.errors import CheckpointError
from glassformer.storage.atomic import move_in, refuse_target, unfinished_path
from glassformer.storage.manifest import (
    MAX_CONTAINERS,
    check_manifest,
    check_sizes,
    measure,
    parse_object,
    refusing,
    sync,
    write_manifest,
)
from glassformer.storage.regular_files import MEGABYTE, read_regular
from glassformer.storage.tensor_files import Shard, StoredTensors
from glassformer.storage.tensor_header import TensorInfo, read_header

CONFIG, TOKENIZER, WEIGHTS = "config.json", "tokenizer.json", "model.safetensors"
STATE_VALUES, STATE_TENSORS = "training_state/state.json", "training_state/tensors.safetensors"
STATE_SHARDS = "training_state/shard_"
"""Begin of the names of files with the training state of one of several processes; they end with its number."""
OF_ONE_MOMENT = {"step", "decoding", "bleu_tokenize"}
"""Settings that may differ between checkpoints of one training, since they do not affect the weights' meaning."""
LARGEST = {CONFIG: 4 * MEGABYTE, TOKENIZER: 64 * MEGABYTE, STATE_VALUES: 64 * MEGABYTE}
CONTAINERS = {CONFIG: 10_000, TOKENIZER: MAX_CONTAINERS, STATE_VALUES: MAX_CONTAINERS}
"""Maximum number of JSON lists and objects in each file; ``LARGEST`` is its maximum size in bytes."""
HASHED_AT_ONCE = 64 * MEGABYTE
"""Up to this total size, a checkpoint with an invalid header is hashed, so that the error names the damaged file."""
Check = Callable[[dict[str, Any], Mapping[str, TensorInfo]], None]
"""Raises ``CheckpointError`` if ``config.json`` does not match the tensor headers."""


@dataclass
class TrainingState:
    """State for resuming beside the weights: ``values`` for JSON, and ``tensors`` (optimizer moments, …).

    ``shards`` are blocks of further tensors, of which other processes have the rest. A loaded state has none.
    """

    values: dict[str, Any]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    shards: dict[str, Shard] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """Contents of a checkpoint folder, with tensors on the CPU; ``training`` is None unless requested.

    Tensors are ``StoredTensors`` if the checkpoint was opened and not loaded.
    """

    path: Path
    config: dict[str, Any]
    tokenizer: dict[str, Any]
    weights: Mapping[str, Tensor]
    training: TrainingState | None = None


def save_checkpoint(
    path: str | Path,
    *,
    config: dict[str, Any],
    tokenizer: dict[str, Any] | bytes,
    weights: Mapping[str, Tensor],
    training: TrainingState | None = None,
    replace: bool = False,
) -> None:
    """Write the folder under a temporary name, flush it to the disk, then rename it, so that it is whole or absent.

    A tied tensor goes under one name; two names for the same memory are refused. ``tokenizer`` as bytes is written as
    it is. ``CheckpointError``: the folder exists (``replace`` takes a former checkpoint's place), or the disk is full;
    what was there before is then still there.
    """
    path = Path(path)
    with refusing(f"{path}: cannot be saved"):
        refuse_target(path, replace)
        documents = {CONFIG: encode(config, CONFIG), TOKENIZER: encode(tokenizer, TOKENIZER)}
        tensors = {WEIGHTS: _storable(weights)}
        if training is not None:
            documents[STATE_VALUES] = encode(training.values, STATE_VALUES)
            tensors[STATE_TENSORS] = _storable(training.tensors)
        unfinished = unfinished_path(path)
        try:
            _write_folder(unfinished, documents, tensors)
            move_in(unfinished, path)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def load_checkpoint(path: str | Path, *, training: bool = False, check: Check | None = None) -> Checkpoint:
    """Verify every file against the manifest, then read; with ``training``, also the training state.

    ``CheckpointError`` names the first file that is changed, missing or unlisted, or the first tensor with a value
    that is not finite. With ``training``, a missing training state is an error. ``check`` is called with the headers,
    before the weights are read.
    """
    path = Path(path)
    files = check_sizes(path, {CONFIG, TOKENIZER, WEIGHTS})
    try:
        _check_headers(path, files, check)
    except CheckpointError:
        if sum(files[name]["bytes"] for name in files) <= HASHED_AT_ONCE:
            verify(path)  # its error names the damaged file
        raise
    verify(path)
    if training:
        _require_training(path, files)
    with refusing(f"{path}: cannot be read"):
        checkpoint = Checkpoint(
            path=path,
            config=_decode(path, CONFIG),
            tokenizer=_decode(path, TOKENIZER),
            weights=load_file(path / WEIGHTS),
            training=_load_training(path, files) if training else None,
        )
    check_finite(checkpoint.weights, str(path))
    return checkpoint


def open_checkpoint(path: str | Path, *, training: bool = False, check: Check | None = None) -> Checkpoint:
    """``load_checkpoint`` without reading tensors, and of files that the caller has verified.

    Each tensor is read when it is asked for, whole or in part; its values may not be finite.
    """
    path = Path(path)
    files = check_sizes(path, {CONFIG, TOKENIZER, WEIGHTS})
    _check_headers(path, files, check)
    state: TrainingState | None = None
    with refusing(f"{path}: cannot be read"):
        if training:
            _require_training(path, files)
            paths = [path / STATE_TENSORS, *_shard_paths(path, files)]
            state = TrainingState(_decode(path, STATE_VALUES), StoredTensors(paths, path))
        weights = StoredTensors([path / WEIGHTS], path)
        return Checkpoint(path, _decode(path, CONFIG), _decode(path, TOKENIZER), weights, state)


def _require_training(path: Path, files: Mapping[str, Any]) -> None:
    if not {STATE_VALUES, STATE_TENSORS} <= set(files):
        raise CheckpointError(f"{path}: has no training_state, so it can be used but not resumed; start a new run")


def _load_training(path: Path, files: Mapping[str, Any]) -> TrainingState:
    shards = dict(StoredTensors(_shard_paths(path, files), path))
    return TrainingState(_decode(path, STATE_VALUES), load_file(path / STATE_TENSORS) | shards)


def _shard_paths(path: Path, files: Mapping[str, Any]) -> list[Path]:
    return [path / name for name in sorted(files) if name.startswith(STATE_SHARDS)]


def check_finite(weights: Mapping[str, Tensor], origin: str) -> None:
    """Raise ``CheckpointError`` for the first tensor with an infinite or NaN value."""
    for name, w in weights.items():
        # A finite sum proves every value finite in one pass; a sum that overflows needs the second test.
        if not w.is_floating_point() or w.sum().isfinite() or (finite := w.isfinite()).all():
            continue
        count, first = int((~finite).sum()), (~finite).nonzero()[0].tolist()
        values = "1 value that is" if count == 1 else f"{count:,} values that are"
        raise CheckpointError(
            f"{origin}: {name} has {values} not finite (first at {first}); use an earlier checkpoint, or train again "
            "with a lower optimizer.learning_rate"
        )


def _check_headers(path: Path, files: Mapping[str, Any], check: Check | None) -> None:
    """Check the configuration and the tensor headers, without reading a tensor."""
    with refusing(f"{path}: cannot be read"):
        config = _decode(path, CONFIG)
        names = [WEIGHTS, *(name for name in sorted(files) if name == STATE_TENSORS or name.startswith(STATE_SHARDS))]
        headers = {name: read_header(path / name, path) for name in names}
    if check is not None:
        check(config, headers[WEIGHTS])


def verify(path: str | Path) -> list[str]:
    """Check every file of the checkpoint against its manifest and return their names; ``CheckpointError`` if not so."""
    return check_manifest(Path(path), {CONFIG, TOKENIZER, WEIGHTS})


def average(
    paths: Sequence[str | Path], destination: str | Path | None = None, check: Check | None = None
) -> dict[str, Tensor]:
    """The arithmetic mean of the weights (Vaswani et al. 2017, section 6.1), summed in float64, in the stored dtype.

    Tensors that are not floating point must be equal. With ``destination`` the mean is also saved as a checkpoint, with
    the first one's configuration. ``CheckpointError`` names the first difference in names, shapes, tokenizer or what
    the configuration says of the model.
    """
    if not paths:
        raise CheckpointError("nothing to average; name at least one checkpoint")
    first = load_checkpoint(paths[0], check=check)
    total = {name: w.double() if w.is_floating_point() else w for name, w in first.weights.items()}
    for path in paths[1:]:
        other = load_checkpoint(path, check=check)
        if difference := _difference(first, other):
            raise CheckpointError(f"{path}: {difference} {first.path}; average checkpoints of one training")
        for name, w in other.weights.items():
            if w.is_floating_point():
                total[name] = total[name] + w.double()
    mean = {
        name: (total[name] / len(paths)).to(w.dtype) if w.is_floating_point() else w
        for name, w in first.weights.items()
    }
    if destination is not None:
        save_checkpoint(destination, config=first.config, tokenizer=first.tokenizer, weights=mean)
    return mean


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 over the names in order, dtypes, shapes and bytes: equal if and only if equal bit for bit."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        w = weights[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(w.dtype), list(w.shape)]).encode() + b"\n")
        if w.numel():
            digest.update(w.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def encode(document: dict[str, Any] | bytes, name: str) -> bytes:
    """The bytes of the JSON file ``name``; ``CheckpointError`` if JSON cannot hold ``document``."""
    if isinstance(document, bytes):
        return document
    if key := _odd_key(document):
        raise CheckpointError(f"{name}: the key {key} is not text, so JSON would change it; write it as text")
    try:
        return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{name}: cannot be written as JSON: {error}") from None


def _odd_key(document: Any) -> str | None:
    """The first key at any depth that JSON would silently turn into text, as Python writes it."""
    if isinstance(document, dict):
        odd = next((repr(key) for key in document if not isinstance(key, str)), None)
        return odd or _odd_key(list(document.values()))
    if isinstance(document, list | tuple):
        return next(filter(None, map(_odd_key, document)), None)
    return None


def _decode(folder: Path, name: str) -> dict[str, Any]:
    document = parse_object(read_regular(folder / name, LARGEST[name], folder), CONTAINERS[name])
    if document is None:
        raise CheckpointError(f"{folder}: {name} is not a JSON object; save the checkpoint again")
    return document


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors, of any memory layout and device, to one file."""
    save_file(_storable(tensors), path)


def _storable(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each tensor on the CPU with memory of its own: safetensors takes neither views nor shared memory."""
    names: dict[tuple[object, ...], str] = {}
    for name, w in tensors.items():
        place = (w.device, w.data_ptr(), w.nbytes)
        if w.numel() and names.setdefault(place, name) != name:
            raise CheckpointError(f"{name} and {names[place]} are one tensor in memory; save it under one name")
    alone = {}
    for name, w in tensors.items():
        stored = w.detach().cpu().contiguous()
        alone[name] = stored if stored.untyped_storage().nbytes() == stored.nbytes else stored.clone()
    return alone


def _write_folder(folder: Path, documents: dict[str, bytes], tensors: dict[str, dict[str, Tensor]]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir()
    for name, data in documents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    for name, group in tensors.items():
        save_file(group, folder / name)
        shutil.copymode(folder / CONFIG, folder / name)  # safetensors lets only the owner read what it wrote
    names = [*documents, *tensors]
    for name in names:
        sync(folder / name)
    write_manifest(folder, {name: measure(folder / name, folder) for name in names})
    for inner in {(folder / name).parent for name in documents}:
        sync(inner)


def _difference(first: Checkpoint, other: Checkpoint) -> str | None:
    """The first thing that keeps the two from being averaged, worded to stand before the name of the first."""
    names = sorted(first.weights.keys() ^ other.weights.keys())
    if names:
        return f"{names[0]} is in only one of this and"
    for name, w in sorted(first.weights.items()):
        v = other.weights[name]
        if (v.shape, v.dtype) != (w.shape, w.dtype):
            return f"{name} is {v.dtype} {list(v.shape)}, not {w.dtype} {list(w.shape)} as in"
        if not w.is_floating_point() and not torch.equal(v, w):
            return f"{name} is not floating point and differs from"
    if first.tokenizer != other.tokenizer:
        return "the tokenizer differs from"
    return _other_setting(first.config, other.config)


def _other_setting(first: dict[str, Any], other: dict[str, Any], section: str = "") -> str | None:
    """The first setting of the configuration that is another one, where both have it: a later version has more."""
    for key in sorted(first.keys() & other.keys() - (set() if section else OF_ONE_MOMENT)):
        before, now, name = first[key], other[key], f"{section}{key}"
        if isinstance(before, dict) and isinstance(now, dict):
            if difference := _other_setting(before, now, f"{name}."):
                return difference
        elif before != now:
            long = isinstance(now, list | dict)
            return f"{name} is not the same as in" if long else f"{name}={now!r}, not {before!r} as in"
    return None
