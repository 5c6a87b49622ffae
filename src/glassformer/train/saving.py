"""Checkpoints of a training: saved by the first process, or by all of them where each has a shard of the weights."""

from contextlib import closing
from pathlib import Path
from typing import Any

from glassformer.models.registry import weights_of
from glassformer.storage.checkpoint import STATE_SHARDS, STATE_TENSORS, WEIGHTS, TrainingState, write_tensors
from glassformer.storage.manifest import Entry
from glassformer.storage.run_folder import INTERRUPTED, RunFolder
from glassformer.storage.shared_save import SharedSave
from glassformer.storage.tensor_files import TensorWriter, stored_order, write_shards
from glassformer.train.distributed import is_divided, is_lost_connection, whole_tensor
from glassformer.train.log import Validated
from glassformer.train.replicas import check_replicas
from glassformer.train.state import TrainState


def save(state: TrainState, run: RunFolder, validated: Validated | None, interrupted: bool = False) -> None:
    """Save a checkpoint of this step and delete those that are no longer needed; the best one is never deleted.

    A checkpoint of an ``interrupted`` run is for resuming only, and does not count among ``keep_checkpoints``.

    Raises:
        DataError: The weights or the optimizer state of two processes differ; nothing is saved.
    """
    check_replicas(state)
    metadata = state.task.metadata()
    config = {
        "task": state.config.task,
        "model": state.model_config.model_dump(mode="json"),
        "step": state.counters.step,
        **metadata.values,
    }
    training, weights = state.snapshot(), weights_of(state.eval_model)
    if interrupted:
        training.values[INTERRUPTED] = True
    step = state.counters.step
    if any(map(is_divided, weights.values())):
        _save_shards(state, run, config, metadata.tokenizer, training)
    else:
        state.world.from_leader(
            lambda: run.save(step, config=config, tokenizer=metadata.tokenizer, weights=weights, training=training)
        )

    def record() -> None:
        if validated is not None and validated.best and state.counters.best is not None:
            path = run.checkpoint_path(step)
            run.set_best(path, state.config.validation.metric, state.counters.best)
        run.keep(state.config.train.keep_checkpoints)

    state.world.from_leader(record)


def _save_shards(
    state: TrainState, run: RunFolder, config: dict[str, Any], tokenizer: dict[str, Any], training: TrainingState
) -> None:
    """Save together: each process its shards, the first one what is not divided, and the weights for inference.

    The checkpoint is renamed to its name when the files of all processes are on the disk. An error in any of them is
    raised by all, and the checkpoint that was there before stays.
    """
    world, step = state.world, state.counters.step
    begun = world.from_leader(lambda: SharedSave.begin(run.make_way(step), config, tokenizer, training.values))
    save, entries = SharedSave(run.checkpoint_path(step), begun[0]), begun[1]

    def write() -> dict[str, Entry]:
        name = f"{STATE_SHARDS}{world.rank:05d}_of_{world.size:05d}.safetensors"
        own = save.write(name, lambda path: write_shards(path, training.shards))
        if world.leads:
            own |= save.write(STATE_TENSORS, lambda path: write_tensors(path, training.tensors))
        return own

    try:
        entries |= world.together(write)
        entries |= _write_weights(state, save)
        for others in world.gather(entries):
            entries |= others

        def finish() -> None:
            save.finish(entries)
            run.abandon_after(step)

        world.from_leader(finish)
    finally:
        if world.leads:
            save.discard()


def _write_weights(state: TrainState, save: SharedSave) -> dict[str, Entry]:
    """Write ``model.safetensors`` in the first process, while all of them gather one tensor after the other.

    No process holds more than one whole tensor. If the first one cannot write, it still takes part to the end.
    """
    world, weights = state.world, weights_of(state.eval_model)
    types = {name: (w.dtype, tuple(w.shape)) for name, w in weights.items()}
    left = stored_order(types)

    def write(path: Path) -> None:
        with closing(TensorWriter(path, types)) as writer:
            while left:
                writer.write(whole_tensor(weights[left.pop(0)]))

    def take_part() -> dict[str, Entry]:
        try:
            return save.write(WEIGHTS, write) if world.leads else {}
        except RuntimeError as error:
            if is_lost_connection(error):
                left.clear()  # to gather the others too would wait again
            raise
        finally:
            for name in left:
                whole_tensor(weights[name])

    return world.together(take_part)
