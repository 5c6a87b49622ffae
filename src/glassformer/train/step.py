"""One step of training: forward, backward, update, or the refusal of an update that is not finite."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.errors import ConfigError, DataError
from glassformer.layers.dropout import Dropout
from glassformer.predict.memory import out_of_memory
from glassformer.storage.run_folder import RunFolder
from glassformer.train.distributed import local
from glassformer.train.loss import Loss
from glassformer.train.optim import learning_rate, set_rate, weight_update
from glassformer.train.state import TrainState, collect_gradients, refresh
from glassformer.train.task import TaskBatch


@dataclass(frozen=True)
class StepResult:
    """Sums over the tokens of one step."""

    loss: float
    nll: float | None
    """None if the predictions have no likelihood."""
    gradient_norm: float
    source_tokens: int
    target_tokens: int
    seconds: float
    guidance: float | None = None
    """Loss of a guided head, minimized beside ``loss``."""
    should_stop: bool = False
    """True if a process was asked to stop."""

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


def train_step(state: TrainState, run: RunFolder, should_stop: Callable[[], bool] = lambda: False) -> StepResult:
    """One update of the weights, from ``accumulate`` batches whose gradients are normalized by all their tokens."""
    began = time.perf_counter()
    config, counters = state.config, state.counters
    batches = [state.batches.next() for _ in range(config.train.accumulate)]
    tokens = sum(batch.n_targets for batch in batches)
    counters.step += 1
    state.world.seed_step(config.train.seed, counters.step, state.device)
    rate = learning_rate(config.optimizer, counters.step, state.model_config.d_model, config.train.max_steps)
    set_rate(state.optimizer, rate)
    if not state.compute_model.training:  # all of it, or after an evaluation nothing
        state.compute_model.train()
    set_dropout(state.dropouts, counters.step, config.train.dropout_warmup_steps)
    if state.dirty:
        refresh(state.compute_model, state.model)
        state.dirty = False
    state.forget_gradients()
    digest, name = _digest(state, batches), f"step {counters.step}, training batch"
    if state.world.tensor > 1:  # whose passes exchange activations: of another shape, they would end the process
        state.world.sums([], False, digest, name)
    losses = [_backward(state, batch, tokens) for batch in batches]
    if state.replica is None:  # which sums them while it goes backward
        state.world.sum_gradients([local(weight.grad) for weight, _, _ in state.weights if weight.grad is not None])
    update = weight_update(state)
    state.batches.prepare()  # while a GPU computes: what follows reads its numbers, and so waits for it
    loss, nll, guidance = (_sum(values) for values in zip(*losses, strict=True))
    values = [loss or 0.0, nll or 0.0, guidance or 0.0]
    totals, stopping = state.world.sums(values, should_stop(), digest, name)
    step = StepResult(
        loss=totals[0],
        nll=None if nll is None else totals[1],
        guidance=None if guidance is None else totals[2],
        should_stop=stopping,
        gradient_norm=update.norm,
        source_tokens=sum(batch.source_tokens for batch in batches),
        target_tokens=tokens,
        seconds=time.perf_counter() - began,
    )
    if step.finite:
        update.apply()
        counters.target_tokens += tokens
    else:
        _refuse_step(state, batches, run)
    counters.seconds += time.perf_counter() - began
    return step


def set_dropout(dropouts: Sequence[Dropout], step: int, warmup_steps: int) -> None:
    """Set the dropout of this step, a function of the step alone, so that a resumed run continues it."""
    share = min(1.0, step / warmup_steps) if warmup_steps else 1.0
    for module in dropouts:
        module.set_share(share)


def probe_memory(state: TrainState) -> None:
    """Forward and backward of the batch with the most padded tokens, so that memory runs out now, not later."""
    batch = state.world.together(state.batches.largest)  # which reads the shards of this machine for the first time
    state.compute_model.train()
    with torch.random.fork_rng([state.device] if state.device.type == "cuda" else []):
        _backward(state, batch, batch.n_targets)
    state.replicate()
    state.forget_gradients()


@contextmanager
def explaining_memory(state: TrainState, batch: TaskBatch) -> Iterator[None]:
    """Turns what PyTorch says when memory runs out into what can be done about it."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise ConfigError(
            f"a batch of {batch.describe()} does not fit in memory; lower {state.task.limit} and raise train.accumulate"
        ) from None


def _backward(state: TrainState, batch: TaskBatch, tokens: int) -> Loss:
    """Add the gradient of ``batch``, as its share of ``tokens``."""
    with explaining_memory(state, batch):
        rows, counts = state.world.share_of(batch)
        loss = state.loss(rows.to(state.device))
        if not counts:
            loss = loss.scaled(0)
        minimized = loss.loss if loss.guidance is None else loss.loss + loss.guidance
        (minimized / tokens).backward()
        if state.config.train.accumulate > 1:
            collect_gradients(state.compute_model, state.model)
    nll, guidance = (None if value is None else value.detach() for value in (loss.nll, loss.guidance))
    return Loss(loss.loss.detach(), nll, guidance)


def _digest(state: TrainState, batches: Sequence[TaskBatch]) -> bytes:
    """Digest of the number of this step and its batches, which are equal in all processes."""
    if state.world.size == 1:
        return b""
    digest = hashlib.sha256(str(state.counters.step).encode())
    for batch in batches:
        digest.update(batch.digest())
    return digest.digest()


def _sum(values: Sequence[Tensor | None]) -> float | None:
    known = [value.item() for value in values if value is not None]
    return sum(known) if known else None


def _refuse_step(state: TrainState, batches: list[TaskBatch], run: RunFolder) -> None:
    """Do not take the step; after too many of them stop, with the batch kept for a look."""
    counters, limit = state.counters, state.config.train.max_bad_steps
    counters.bad_steps += 1
    if counters.bad_steps <= limit:
        return
    texts = [example for batch in batches for example in state.task.texts(batch)]
    path = run.path / "bad_batch.json"
    content = json.dumps({"step": counters.step, "pairs": texts}, ensure_ascii=False, indent=1)

    def refuse() -> None:
        path.write_text(content, encoding="utf-8")
        raise DataError(
            f"step {counters.step}: loss or gradient is not finite, {counters.bad_steps} times in this run "
            f"(train.max_bad_steps={limit}); lower optimizer.learning_rate, or check the text of the batch in {path}"
        )

    state.world.from_leader(refuse)
