"""One update of the weights: whose gradient it is, how long, and when it is refused."""

import json
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import glassformer.train.loop
import glassformer.train.tasks.translation
from glassformer.data import Batch, collate
from glassformer.errors import ConfigError, DataError
from glassformer.layers.dropout import Dropout
from glassformer.models.registry import weights_of
from glassformer.storage.checkpoint import fingerprint
from glassformer.storage.run_folder import RunFolder
from glassformer.train import Skipped, train
from glassformer.train.build import build
from glassformer.train.config import OptimizerConfig
from glassformer.train.optim import build_optimizer, clip_norm_
from glassformer.train.state import TrainState
from glassformer.train.step import train_step
from processor import needs_bfloat16
from tiny_run import TinyRun


class Given:
    """These batches instead of those of the data."""

    def __init__(self, batches: Sequence[Batch]):
        self.queue = list(batches)

    def prepare(self) -> None:
        """They are there."""

    def next(self) -> Batch:
        return self.queue.pop(0)


def state_with(tiny: TinyRun, batches: Sequence[Batch], **changes: Any) -> TrainState:
    settings = {"model.dropout": 0.0, "train.accumulate": len(batches)}
    state = build(tiny.config(settings | {name.replace("__", "."): value for name, value in changes.items()}))
    state.model.double()
    state.optimizer = build_optimizer(state.config.optimizer, state.model)
    state.batches = Given(batches)  # type: ignore[assignment]
    return state


def gradients(state: TrainState) -> dict[str, Tensor]:
    return {name: p.grad for name, p in state.model.named_parameters() if p.grad is not None}


PAIRS = [([5, 6], [7, 8, 9, 10]), ([11], [12]), ([13, 14, 15], [16, 17]), ([5, 9], [30]), ([40, 41, 42], [43])]


@pytest.mark.parametrize("cuts", [[5], [1, 4], [2, 1, 2], [1, 1, 1, 1, 1]])
def test_the_gradient_of_the_parts_is_that_of_the_whole(tiny: TinyRun, tmp_path: Path, cuts: list[int]) -> None:
    """Parts of unequal length: a mean of means would weigh the tokens of short parts more. Tolerance: float64's."""
    run = RunFolder.create(tmp_path)
    parts, begin = [], 0
    tokenizers = tiny.translator.tokenizers
    for size in cuts:
        parts.append(collate([[pair] for pair in PAIRS[begin : begin + size]], tokenizers))
        begin += size
    whole = state_with(tiny, [collate([[pair] for pair in PAIRS], tokenizers)])
    split = state_with(tiny, parts)
    at_once, summed = train_step(whole, run), train_step(split, run)
    assert summed.loss == pytest.approx(at_once.loss, rel=1e-12)
    assert summed.target_tokens == at_once.target_tokens == sum(len(target) + 1 for _, target in PAIRS)
    expected = gradients(whole)
    assert len(expected) == len(list(whole.model.parameters()))
    for name, gradient in gradients(split).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-10, atol=1e-14)


def test_the_gradient_is_of_the_mean_over_tokens(tiny: TinyRun, tmp_path: Path) -> None:
    """Against plain cross-entropy over all logits, label smoothing included."""
    batch = collate([[pair] for pair in PAIRS], tiny.translator.tokenizers)
    state = state_with(tiny, [batch], train__label_smoothing=0.1)
    logits = state.model(batch.source, batch.target, batch.source != 0)
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.labels.flatten(), ignore_index=0, label_smoothing=0.1
    )
    expected = torch.autograd.grad(loss, list(state.model.parameters()))
    step = train_step(state, RunFolder.create(tmp_path))
    assert step.loss / step.target_tokens == pytest.approx(loss.item(), rel=1e-10)
    for gradient, parameter in zip(expected, state.model.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-8, atol=1e-13)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
def test_sentences_that_share_a_row_are_as_if_alone(tiny: TinyRun, tmp_path: Path, positions: str) -> None:
    """Loss and gradients of rows with several sentences are those of a row a sentence. Tolerance: float64's."""
    run, tokenizers = RunFolder.create(tmp_path), tiny.translator.tokenizers
    settings = {"model__positions": positions, "model__max_length": 40, "data__max_length": 40}
    alone = state_with(tiny, [collate([[pair] for pair in PAIRS], tokenizers)], **settings)
    packed = state_with(tiny, [collate([PAIRS[:3], PAIRS[3:]], tokenizers, multiple=16)], **settings)
    one, other = train_step(alone, run), train_step(packed, run)
    assert other.loss == pytest.approx(one.loss, rel=1e-12)
    expected = gradients(alone)
    for name, gradient in gradients(packed).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-10, atol=1e-14)


@needs_bfloat16
def test_low_precision_is_the_same_step_rounded(tiny: TinyRun, tmp_path: Path) -> None:
    """The weights stay float32; gradients, over several batches, are within bfloat16's 8 bits of float32's."""
    run, batches = RunFolder.create(tmp_path), [collate([[pair] for pair in PAIRS], tiny.translator.tokenizers)] * 2
    states = []
    for precision in ("float32", "bfloat16"):
        settings = {"model.dropout": 0.0, "train.accumulate": 2, "train.precision": precision}
        state = build(tiny.config(settings))
        state.batches = Given(batches * 2)  # type: ignore[assignment]
        states.append((state, train_step(state, run)))
    (high, exact), (low, rounded) = states
    assert low.compute_model is not low.model
    assert low.compute_model.encoder.dtype == torch.bfloat16
    assert {p.dtype for p in low.model.parameters()} == {torch.float32}
    assert rounded.loss == pytest.approx(exact.loss, rel=1e-2)
    assert rounded.loss != exact.loss
    second = [train_step(state, run).loss for state in (high, low)]
    assert second[1] == pytest.approx(second[0], rel=1e-2)
    assert abs(second[0] - exact.loss) > 3e-2 * exact.loss  # the second step began where the first had led
    difference = math.hypot(*((g - gradients(high)[name]).norm() for name, g in gradients(low).items()))
    assert 0 < difference < 0.1 * math.hypot(*(gradient.norm() for gradient in gradients(high).values()))


@pytest.mark.parametrize(("limit", "factor"), [(0.0, 1.0), (1.0, 0.2), (5.0, 1.0), (6.0, 1.0), (2.5, 0.5)])
def test_clipping_scales_all_gradients_together(limit: float, factor: float) -> None:
    parameters = [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1, 1))]
    parameters[0].grad, parameters[1].grad = torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])
    assert clip_norm_(parameters, limit).item() == pytest.approx(5.0)
    torch.testing.assert_close(parameters[0].grad, torch.tensor([3.0, 0.0]) * factor)
    torch.testing.assert_close(parameters[1].grad, torch.tensor([[4.0]]) * factor)


def test_weight_decay_reaches_matrices_only(tiny: TinyRun) -> None:
    """With no gradient AdamW only decays: w ← (1 − lr · decay) w."""
    config = tiny.config({"optimizer.kind": "adamw", "optimizer.weight_decay": 0.1, "optimizer.learning_rate": 0.5})
    state = build(config)
    before = {name: w.detach().clone().add_(1) for name, w in weights_of(state.model).items()}
    with torch.no_grad():
        for name, w in weights_of(state.model).items():
            w.copy_(before[name])
            w.grad = torch.zeros_like(w)
    state.optimizer.step()
    kinds = set()
    for name, w in weights_of(state.model).items():
        kinds.add(w.dim())
        torch.testing.assert_close(w.detach(), before[name] * (0.95 if w.dim() > 1 else 1.0))
    assert kinds == {1, 2}


@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_may_learn_at_a_rate_of_their_own(tiny: TinyRun, tmp_path: Path, tied: bool, engine: str) -> None:
    """Adam's first step has the rate's size whatever the gradient; epsilon is out of its way."""
    rates = {"optimizer.embedding_rate": 4.0, "optimizer.schedule": "constant", "optimizer.learning_rate": 0.01}
    others = {
        "optimizer.warmup_steps": 0,
        "optimizer.epsilon": 1e-30,
        "model.tie_embeddings": tied,
        "model.dropout": 0.0,
        "train.engine": engine,
    }
    state = build(tiny.config({**rates, **others}))
    before = {name: w.detach().clone() for name, w in weights_of(state.model).items()}
    train_step(state, RunFolder.create(tmp_path))
    moved = {name: (w.detach() - before[name]).abs().max().item() for name, w in weights_of(state.model).items()}
    tables = {name for name in moved if name.endswith("embedding.weight")}
    assert tables
    for name, distance in moved.items():
        assert distance == pytest.approx(0.04 if name in tables else 0.01, rel=1e-3), name


def test_a_rate_of_embeddings_needs_embeddings() -> None:
    config, model = OptimizerConfig(embedding_rate=2.0), torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError, match="embedding_rate is for models with a vocabulary"):
        build_optimizer(config, model)


def test_the_average_forgets_old_weights_at_its_decay(tiny: TinyRun, tmp_path: Path) -> None:
    """mean_t = d_t · mean_{t-1} + (1 − d_t) · weights_t, where d_t grows to ``train.ema``, here from the third step."""
    state, run = build(tiny.config({"train.ema": 0.3})), RunFolder.create(tmp_path)
    reference = {name: weight.detach().clone() for name, weight in weights_of(state.model).items()}
    for decay in (2 / 11, 3 / 12, 0.3, 0.3):
        train_step(state, run)
        for name, weight in weights_of(state.model).items():
            reference[name] = decay * reference[name] + (1 - decay) * weight.detach()
    torch.testing.assert_close(dict(weights_of(state.eval_model)), reference, atol=1e-6, rtol=1e-5)


def test_dropout_rises_with_the_steps(tiny: TinyRun, tmp_path: Path) -> None:
    """The first of ten steps drops a tenth, the tenth and those after it all of the rate."""
    config = tiny.config({"model.dropout": 0.5, "train.dropout_warmup_steps": 10})
    state = build(config)
    rates = []
    for _ in range(12):
        train_step(state, RunFolder.create(tmp_path / str(len(rates))))
        rates.append({m.threshold / 256 for m in state.compute_model.modules() if isinstance(m, Dropout)})
    assert [round(rate, 1) for (rate,) in (rates[1], rates[5], rates[9], rates[11])] == [0.1, 0.3, 0.5, 0.5]


# Steps that are not taken


def poisoned(monkeypatch: pytest.MonkeyPatch, steps: set[int], value: float = math.nan) -> None:
    """The loss of these steps is not finite, and neither are its gradients."""
    whole = glassformer.train.tasks.translation.projection_loss
    calls = [0]

    def loss(*arguments: Any) -> Any:
        calls[0] += 1
        result = whole(*arguments)
        step = calls[0] - 1  # the first call tries the largest batch
        return result._replace(loss=result.loss * value) if step in steps else result

    monkeypatch.setattr(glassformer.train.tasks.translation, "projection_loss", loss)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_step_preserves_the_weights(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    poisoned(monkeypatch, {2, 4}, value)
    weights: list[str] = []
    whole = glassformer.train.loop.train_step

    def observed(state: TrainState, run: RunFolder, should_stop: Callable[[], bool]) -> Any:
        done = whole(state, run, should_stop)
        moments = {
            f"{n}.{k}": v for n, p in weights_of(state.model).items() for k, v in state.optimizer.state[p].items()
        }
        assert state.ema_model is not None
        averaged = {f"averaged.{name}": w for name, w in weights_of(state.ema_model).items()}
        weights.append(fingerprint(weights_of(state.model) | moments | averaged))
        return done

    monkeypatch.setattr(glassformer.train.loop, "train_step", observed)
    config = tiny.config({"train.max_steps": 5, "train.max_bad_steps": 2, "train.ema": 0.9, "data.validation": []})
    events = list(train(config, RunFolder.create(tmp_path / "run")))
    skipped = [event for event in events if isinstance(event, Skipped)]
    assert [(event.step, event.skipped) for event in skipped] == [(2, 1), (4, 2)]
    assert not math.isfinite(skipped[0].loss)
    changed = [before != after for before, after in pairwise(weights)]
    assert changed == [False, True, False, True]
    progress = events[-2]
    assert progress.step == 5
    assert math.isfinite(progress.loss)


def test_too_many_non_finite_steps_stop_the_run_and_save_the_batch(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(monkeypatch, {2, 3, 5})
    run = RunFolder.create(tmp_path / "run")
    config = tiny.config({"train.max_bad_steps": 2, "data.validation": []})
    told = (
        r"^step 5: loss or gradient is not finite, 3 times in this run \(train\.max_bad_steps=2\)"
        r"; lower optimizer\.learning_rate, or check the text of the batch in .*run/bad_batch\.json$"
    )
    with pytest.raises(DataError, match=told):
        list(train(config, run))
    kept = json.loads((run.path / "bad_batch.json").read_text(encoding="utf-8"))
    assert kept["step"] == 5
    english = set((tiny.folder / "train.en").read_text().splitlines())
    french = set((tiny.folder / "train.fr").read_text().splitlines())
    assert kept["pairs"]
    assert all(one in english and other in french for one, other in kept["pairs"])
    with run.lock():  # let go of
        pass


def test_a_poisoned_weight_stops_the_run(tiny: TinyRun, tmp_path: Path) -> None:
    state = build(tiny.config({"train.max_bad_steps": 0}))
    with torch.no_grad():
        next(state.model.decoder.parameters()).fill_(math.nan)
    with pytest.raises(DataError, match=r"^step 1: loss or gradient is not finite, 1 times"):
        train_step(state, RunFolder.create(tmp_path / "run"))


def test_of_accumulated_batches_the_one_that_does_not_fit_is_named(tiny: TinyRun, tmp_path: Path) -> None:
    batches = [collate([[pair]], tiny.translator.tokenizers) for pair in PAIRS[:2]]
    state = state_with(tiny, batches)
    whole = state.task.loss

    def full(model: Any, batch: Batch) -> Any:
        if batch.source.shape == batches[1].source.shape:
            raise MemoryError
        return whole(model, batch)

    state.task.loss = full  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match=r"^a batch of \[1, 2\] source and .* tokens does not fit in memory"):
        train_step(state, RunFolder.create(tmp_path / "run"))
