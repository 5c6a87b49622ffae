"""Training, as a loop that can be read from top to bottom.

``train`` is a generator: it yields an event whenever there is something to report, and whoever iterates decides what
to show. Stopping to iterate stops the run; nothing is lost but the steps since the last save.
"""

import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager

from glassformer.errors import GlassformerError
from glassformer.models.device import choose_device
from glassformer.native import describe
from glassformer.storage.run_folder import RunFolder
from glassformer.train.build import settings_of
from glassformer.train.config import RunConfig
from glassformer.train.distributed import World
from glassformer.train.host_process import check_threads, with_own_random_state
from glassformer.train.log import Corrupt, Event, Finished, Log, Progress, Skipped, Started, Stepped, Validated
from glassformer.train.optim import learning_rate
from glassformer.train.peers import watching_peers
from glassformer.train.replicas import check_programs
from glassformer.train.resume import begin, restore
from glassformer.train.saving import save
from glassformer.train.state import Counters, TrainState
from glassformer.train.step import StepResult, probe_memory, train_step
from glassformer.train.task import objective, without_dropout


def train(
    config: RunConfig,
    run: RunFolder,
    resume: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
    each_step: bool = False,
) -> Iterator[Event]:
    """Train in ``run`` until a limit, the patience, or a fault; ``resume`` continues from its newest intact checkpoint.

    Once ``should_stop`` returns True, the current step is finished and saved, so nothing is lost. A fault before the
    first checkpoint leaves no run behind. ``each_step`` adds a ``Stepped`` after every step. The host process keeps its
    random state and its threads; ``train.threads`` must be the number that it computes with, or 0.
    """
    world = World.current()
    with watching_peers(world), _owning(run, world) as log:
        try:
            training = _train(config, run, world, resume, should_stop, each_step)
            for event in with_own_random_state(training, config.train.device):
                if log is not None and not isinstance(event, Stepped):
                    log.write(event)
                yield event
        except (GlassformerError, OSError, KeyboardInterrupt):
            if world.leads and not resume:
                run.discard()
            raise


@contextmanager
def _owning(run: RunFolder, world: World) -> Iterator[Log | None]:
    """Lock the run folder and open its log, in the first of several processes; None in the others."""
    with ExitStack() as stack:
        world.from_leader(lambda: stack.enter_context(run.lock()))
        yield stack.enter_context(closing(Log(run))) if world.leads else None


def _train(
    config: RunConfig,
    run: RunFolder,
    world: World,
    resume: bool,
    should_stop: Callable[[], bool],
    each_step: bool,
) -> Generator[Event, None, None]:
    world.check_equal(settings_of(config), "start every process with the same configuration")
    world.together(lambda: check_threads(config.train.threads))
    check_programs(world, choose_device(config.train.device, "train.device"))
    state, warnings = restore(config, run, world) if resume else begin(config, run, world)
    config = state.config  # includes settings from ``train.start_from``
    reason = _reason_to_stop(state) or _early_stopping(state)
    if reason is None:
        probe_memory(state)
    world.from_leader(lambda: config.write(run.config_path))
    yield _started(state, warnings)
    if reason:
        yield _finished(state, f"nothing is left to do: {reason}; raise that to train further")
        return
    recent: list[StepResult] = []
    while reason is None:
        recent.append(train_step(state, run, should_stop))
        stopping = recent[-1].should_stop
        counters = state.counters
        if each_step:
            yield Stepped(counters.step)
        yield from (Corrupt(counters.step, *shard) for shard in state.batches.new_corrupt())
        if not recent[-1].finite:
            yield Skipped(counters.step, recent[-1].loss, recent[-1].gradient_norm, counters.bad_steps)
            recent.pop()
        if config.train.max_seconds:
            counters.seconds = world.of_leader(counters.seconds)
        reason = _reason_to_stop(state)
        validating = state.task.validates and (every(config.validation.every, counters.step) or reason is not None)
        if reason is None and stopping:
            reason = "asked to stop; --resume goes on from here"
        saving = validating or every(config.train.save_every, counters.step) or reason is not None
        if recent and (every(config.train.log_every, counters.step) or saving):
            yield _progress(state, recent)  # with every save too: a resumed run does not know the steps before it
            recent = []
        validated = _validated(state) if validating else None
        if validated:
            yield validated
            reason = reason or _early_stopping(state)
        if saving:
            interrupted = counters.step < config.train.max_steps and not _scheduled(state)
            save(state, run, validated, interrupted)
    yield _finished(state, reason)


def every(n: int, step: int) -> bool:
    return step % n == 0


def _scheduled(state: TrainState) -> bool:
    """True if an uninterrupted run saves at this step too."""
    config, step = state.config, state.counters.step
    return every(config.train.save_every, step) or (state.task.validates and every(config.validation.every, step))


def _reason_to_stop(state: TrainState) -> str | None:
    config, counters = state.config.train, state.counters
    if counters.step >= config.max_steps:
        return f"train.max_steps={config.max_steps} is reached"
    if config.max_seconds and counters.seconds >= config.max_seconds:
        return f"train.max_seconds={config.max_seconds:g} is reached"
    return None


def _early_stopping(state: TrainState) -> str | None:
    config, counters = state.config.validation, state.counters
    if config.patience and counters.without_improvement >= config.patience:
        plural = "s" if config.patience > 1 else ""
        return f"{config.metric} has not improved in validation.patience={config.patience} validation{plural}"
    return None


def _validated(state: TrainState) -> Validated:
    counters, began = state.counters, time.perf_counter()
    model = state.whole_eval_model()
    scores = state.world.from_leader(lambda: without_dropout(model, state.task))
    value, loss = objective(scores, state.config.validation.metric), scores.get("nll")
    best = _better(value, loss, counters)
    if best:
        counters.best, counters.best_step, counters.without_improvement = value, counters.step, 0
        counters.best_loss = loss if loss is None or math.isfinite(loss) else None
    elif every(state.config.validation.every, counters.step):  # not the one that a limit brings about
        counters.without_improvement += 1
    warning = _zero_bleu(state, value)
    return Validated(counters.step, scores, counters.seconds, time.perf_counter() - began, best, warning)


def _better(value: float, loss: float | None, counters: Counters) -> bool:
    """True if this validation beats the best so far; between equal values, such as BLEU 0, the lower loss wins."""
    if not math.isfinite(value):
        return False
    if counters.best is None or value > counters.best:
        return True
    if value < counters.best or loss is None or not math.isfinite(loss):
        return False
    return counters.best_loss is None or loss < counters.best_loss


def _zero_bleu(state: TrainState, value: float) -> str | None:
    """Warning for the first validation in which the metric is BLEU and 0; else None."""
    config, counters = state.config.validation, state.counters
    if config.metric != "bleu" or value != 0:
        return None
    counters.zero_scores += 1
    if counters.zero_scores > 1:
        return None
    tokenize = state.task.metadata().values.get("bleu_tokenize")
    return (
        "BLEU is 0: until it rises, the lowest loss chooses the best checkpoint; if it stays 0, set "
        f"validation.tokenize (now {tokenize}), or validation.metric to chrf or loss"
    )


def _progress(state: TrainState, recent: list[StepResult]) -> Progress:
    counters, config, width = state.counters, state.config, state.model_config.d_model
    source, target = sum(step.source_tokens for step in recent), sum(step.target_tokens for step in recent)
    seconds = sum(step.seconds for step in recent)
    return Progress(
        step=counters.step,
        loss=sum(step.loss for step in recent) / target,
        nll=None if recent[0].nll is None else sum(step.nll or 0.0 for step in recent) / target,
        learning_rate=learning_rate(config.optimizer, counters.step, width, config.train.max_steps),
        gradient_norm=sum(step.gradient_norm for step in recent) / len(recent),
        source_tokens_per_second=source / seconds,
        target_tokens_per_second=target / seconds,
        epoch=state.batches.epoch,
        seconds=counters.seconds,
        guidance=None if recent[0].guidance is None else sum(step.guidance or 0.0 for step in recent) / target,
    )


def _started(state: TrainState, warnings: list[str]) -> Started:
    return Started(
        step=state.counters.step,
        max_steps=state.config.train.max_steps,
        parameters=sum(p.numel() for p in state.model.parameters()),
        accounts=[*(line for account in state.task.accounts for line in account.lines()), *state.taken],
        padding_share=state.batches.padding_share,
        batches_per_epoch=len(state.batches),
        warnings=warnings,
        unit=state.task.unit,
        overrides=[
            f"{override.name}: {override.before!r} → {override.now!r}"
            for override in state.overrides
            if override.step == state.counters.step
        ],
        engine=describe(state.routes),
    )


def _finished(state: TrainState, reason: str) -> Finished:
    return Finished(state.counters.step, reason, state.counters.seconds)
