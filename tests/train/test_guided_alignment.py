"""One head of the cross-attention that learns given word alignments: its loss, and what becomes of it."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.alignment import alignment_error_rate, write_pharaoh
from glassformer.data import Batch
from glassformer.demo_corpus.grammar import sample_corpus
from glassformer.errors import CheckpointError, ConfigError
from glassformer.native import stack
from glassformer.native.library import kernels
from glassformer.predict.translator import Translator
from glassformer.storage.run_folder import RunFolder
from glassformer.taps import record
from glassformer.train import parse_config, train
from glassformer.train.build import build
from glassformer.train.state import TrainState
from processor import LOW_PRECISION
from tiny_run import TinyRun, run_to_the_end, state_of, write_lines

RANDOM = {
    "model.dropout": 0.2,
    "text.bpe_dropout": 0.1,
    "train.accumulate": 2,
    "train.precision": LOW_PRECISION,
    "train.ema": 0.9,
    "train.max_steps": 12,
    "train.save_every": 4,
    "train.log_every": 3,
    "data.validation": [],
}
PAIRS = sample_corpus(310, seed=5)[10:]
"""Those that the tiny run is trained on."""


@pytest.fixture(scope="module")
def guiding(tiny: TinyRun) -> dict[str, Any]:
    file = write_lines(tiny.folder / "train.align", [write_pharaoh(pair.alignment) for pair in PAIRS])
    return {"data.alignments": [file]}


def in_float64(tiny: TinyRun, changes: dict[str, Any]) -> TrainState:
    state = build(tiny.config({"model.dropout": 0.0} | changes))
    state.model.double()
    return state


def loss_by_hand(state: TrainState, batch: Batch, layer: int, head: int, shifted: bool) -> float:
    """From the attention that a trace records and the words of the raw text, pair by pair and word by word."""
    with torch.no_grad(), record(state.model, keep="*.cross_attention.weights") as recorded:
        state.model(batch.source, batch.target, batch.source_sentences, batch.target_sentences)
    weights = recorded[list(recorded)[layer]][:, head].numpy()
    tokenizers, total, nth = state.task.tokenizers, 0.0, 0
    for row, (sources, targets) in enumerate(zip(batch.source_sentences.numpy(), batch.target_sentences.numpy())):
        for sentence in range(1, targets.max() + 1):
            pair = PAIRS[batch.examples[nth]]
            ask, answer = np.flatnonzero(targets == sentence), np.flatnonzero(sources == sentence)
            words = tokenizers.source.word_of(batch.source[row][answer[:-1]].tolist())
            for place, word in enumerate(tokenizers.target.word_of(batch.labels[row][ask[:-1]].tolist())):
                linked = [answer[i] for i, w in enumerate(words) if (w, word) in pair.alignment]
                total -= sum(np.log(weights[row, ask[place + shifted], column]) / len(linked) for column in linked)
            nth += 1
    return total


@pytest.mark.parametrize("row_tokens", [0, 64])
@pytest.mark.parametrize(("layer", "head", "shifted"), [(-1, 0, True), (0, 1, True), (1, 1, False)])
def test_the_loss_is_that_of_the_definition(
    tiny: TinyRun, guiding: dict[str, Any], row_tokens: int, layer: int, head: int, shifted: bool
) -> None:
    how = {"layer": layer, "head": head, "shifted": shifted, "weight": 0.3}
    changes = {f"guided_alignment.{key}": value for key, value in how.items()}
    state = in_float64(tiny, guiding | changes | {"data.row_tokens": row_tokens})
    batch = state.batches.next()
    loss = state.task.loss(state.model, batch)
    expected = loss_by_hand(state, batch, layer, head, shifted)
    assert loss.guidance.item() == pytest.approx(0.3 * expected, rel=1e-6) and expected > 100  # shares are in float32
    plain = in_float64(tiny, {"data.row_tokens": row_tokens})
    other = plain.task.loss(plain.model, plain.batches.next())
    assert other.guidance is None
    assert (other.loss.item(), other.nll) == (loss.loss.item(), loss.nll)


def test_in_rows_of_several_sentences_or_of_one_the_whole_is_the_same(tiny: TinyRun, guiding: dict[str, Any]) -> None:
    sums = []
    for row_tokens in (0, 64):
        state = in_float64(tiny, guiding | {"data.row_tokens": row_tokens})
        batches = list(islice(state.task.batches, len(state.task.batches)))
        sums.append(sum(state.task.loss(state.model, batch).guidance.item() for batch in batches))
    assert sums[0] == pytest.approx(sums[1], rel=1e-9)


def test_the_gradient_is_that_of_the_loss(tiny: TinyRun, guiding: dict[str, Any]) -> None:
    """Central differences, in an entry or two of whatever the head's attention depends on. Behind it nothing does."""
    state = in_float64(tiny, guiding | {"guided_alignment.weight": 1.0})
    batch = state.batches.next()
    state.task.loss(state.model, batch).guidance.backward()
    draw = np.random.default_rng(1)
    for name, parameter in state.model.named_parameters():
        later = (
            "decoder.layers.1.feed_forward",
            "decoder.final_norm",
            "cross_attention.value",
            "cross_attention.output",
        )
        if any(f"layers.1.{part}" in name or name.startswith(part) for part in later):
            assert parameter.grad is None or not parameter.grad.any()
            continue
        flat = parameter.detach().view(-1)
        for place in draw.integers(0, len(flat), 2):
            before, values = flat[place].item(), []
            for change in (1e-5, -1e-5):
                flat[place] = before + change
                with torch.no_grad():
                    values.append(state.task.loss(state.model, batch).guidance.item())
            flat[place] = before
            slope = 0.0 if parameter.grad is None else parameter.grad.view(-1)[place].item()
            assert slope == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-4, abs=1e-4), name


def test_guided_alignment_reports_the_translation_loss_only(
    tiny: TinyRun, guiding: dict[str, Any], tmp_path: Path
) -> None:
    """Before the first update the losses with and without guidance are the same, bit for bit."""
    lines = {}
    for name, changes in (("guided", guiding), ("plain", {})):
        run_to_the_end(tiny.config(changes | {"train.max_steps": 1, "train.log_every": 1}), tmp_path / name)
        events = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        lines[name] = next(line for line in events if line["event"] == "progress")
    assert lines["guided"]["loss"] == lines["plain"]["loss"]
    assert lines["guided"]["nll"] == lines["plain"]["nll"]
    assert lines["guided"]["guidance"] > 0
    assert lines["plain"]["guidance"] is None
    assert lines["guided"]["gradient_norm"] != lines["plain"]["gradient_norm"]


LONGER = {"train.max_steps": 150, "data.validation": [], "model.dropout": 0.0}


@pytest.fixture(scope="module")
def plain(tiny: TinyRun, tmp_path_factory: pytest.TempPathFactory) -> Translator:
    path = tmp_path_factory.mktemp("runs") / "plain"
    run_to_the_end(tiny.config(LONGER), path)
    return Translator.load(path)


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_the_kernel_of_the_decoder_trains_a_guided_head_as_pytorch_does(
    tiny: TinyRun, guiding: dict[str, Any], norm_order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels() is None:
        pytest.skip("there are no kernels here")
    recorded, apply = list[int](), stack._Stack.apply
    monkeypatch.setattr(stack._Stack, "apply", lambda *given: (recorded.append(given[1].recorded), apply(*given))[1])
    sizes = {"model.d_model": 64, "model.d_ff": 64, "model.dropout": 0.0, "model.norm_order": norm_order}
    found = {}
    for engine in ("native", "torch"):
        state = build(tiny.config(guiding | sizes | {"train.engine": engine, "guided_alignment.weight": 1.0}))
        loss = state.task.loss(state.compute_model, state.batches.next())
        (loss.loss + loss.guidance).backward()
        gradients = {name: parameter.grad for name, parameter in state.model.named_parameters()}
        found[engine] = loss.loss.item(), loss.guidance.item(), gradients
    assert recorded == [stack.NO_LAYER, 1]  # the encoder's kernel and the decoder's
    (total, guidance, gradients), (other_total, other_guidance, others) = found["native"], found["torch"]
    assert (total, guidance) == (pytest.approx(other_total, rel=1e-5), pytest.approx(other_guidance, rel=1e-5))
    for name, other in others.items():
        if not name.endswith("key.bias"):  # of all keys the same, which the softmax does not see: rounding alone
            assert (gradients[name] - other).norm() <= 1e-4 * other.norm(), name


@pytest.mark.parametrize("shifted", [True, False])
def test_a_guided_head_learns_its_alignments(
    tiny: TinyRun, guiding: dict[str, Any], plain: Translator, tmp_path: Path, shifted: bool
) -> None:
    """And is the one that is asked for them. Read the other way, or not guided, most links are wrong."""
    how = {"guided_alignment.weight": 0.5, "guided_alignment.head": 1, "guided_alignment.shifted": shifted}
    run_to_the_end(tiny.config(guiding | how | LONGER), tmp_path / "guided")
    guided = Translator.load(tmp_path / "guided")
    assert guided.read_by() == (1, 1, shifted)
    assert plain.read_by() == (-1, None, False)
    assert guided.read_by(shifted=not shifted) == (1, 1, not shifted)
    assert guided.read_by(0) == (0, None, False)
    gold = [frozenset(pair.alignment) for pair in PAIRS[:40]]

    def error_rate(translator: Translator, *how: Any) -> float:
        links = [frozenset(translator.align(pair.source, pair.target, *how)) for pair in PAIRS[:40]]
        return alignment_error_rate(gold, gold, links)

    own, other = error_rate(guided), error_rate(guided, 1, 1, not shifted)
    assert own == error_rate(guided, 1, 1, shifted) < 0.4
    assert error_rate(plain, 1, 1, shifted) > 0.7
    assert other > own + 0.15


@pytest.mark.parametrize("width", [16, 64], ids=["operations", "kernel"])
def test_guided_training_resumes_bit_for_bit(
    tiny: TinyRun, guiding: dict[str, Any], tmp_path: Path, width: int
) -> None:
    config = tiny.config(RANDOM | guiding | {"model.d_model": width, "model.d_ff": width})
    run_to_the_end(config, tmp_path / "undisturbed")
    run = RunFolder.create(tmp_path / "run")
    going = train(config, run)
    assert [event.step for event in islice(going, 3)] == [0, 3, 4]
    going.close()
    run_to_the_end(config, run.path, resume=True)
    assert state_of(run.path) == state_of(tmp_path / "undisturbed")


def test_a_guided_run_whose_decoder_ran_block_by_block_is_refused_on_resume(
    tiny: TinyRun, guiding: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it did in former versions, to other bits."""
    if kernels() is None:
        pytest.skip("there are no kernels here")
    changes = guiding | {"model.d_model": 64, "model.d_ff": 64}
    run_to_the_end(tiny.config(changes | {"train.max_steps": 1}), tmp_path / "run")
    restore = TrainState.restore

    def earlier(state: TrainState, weights: Any, saved: Any, origin: str) -> None:
        for stored in saved.values["routes"]:
            stored[1] = "native operations" if stored[0] == "decoder" else stored[1]
        restore(state, weights, saved, origin)

    monkeypatch.setattr(TrainState, "restore", earlier)
    told = r"trained with decoder by native operations, .*; resume with the glassformer version and the kind of"
    with pytest.raises(CheckpointError, match=told):
        run_to_the_end(tiny.config(changes | {"train.max_steps": 2}), tmp_path / "run", resume=True)


def test_a_recurrent_decoder_is_guided_too(tiny: TinyRun, guiding: dict[str, Any], tmp_path: Path) -> None:
    model = {"kind": "recurrent", "d_model": 16, "d_hidden": 16, "n_heads": 2, "n_decoder_layers": 2, "dropout": 0.0}
    values = tiny.settings(guiding | {"train.max_steps": 2}) | {"model": model}
    state = build(parse_config(values))
    state.model.double()
    batch = state.batches.next()
    loss = state.task.loss(state.model, batch)
    assert loss.guidance.item() == pytest.approx(0.1 * loss_by_hand(state, batch, 0, 0, shifted=True), rel=1e-6)
    run_to_the_end(parse_config(values), tmp_path / "run")
    assert Translator.load(tmp_path / "run").read_by() == (0, 0, True)
    with pytest.raises(ConfigError, match=r"guided_alignment\.layer=1 is not in the decoder; choose from 0 to 0$"):
        parse_config(values | {"guided_alignment": {"layer": 1}})


def test_heads_that_are_not_there(tiny: TinyRun, guiding: dict[str, Any]) -> None:
    for key, value, last in (("layer", 2, 1), ("layer", -3, 1), ("head", 2, 1)):
        told = rf"guided_alignment\.{key}={value} is not in the decoder; choose from 0 to {last}$"
        with pytest.raises(ConfigError, match=told):
            tiny.config(guiding | {f"guided_alignment.{key}": value})
    with pytest.raises(ConfigError, match=r"guided_alignment\.weight=0: input should be greater than 0$"):
        tiny.config({"guided_alignment.weight": 0})


def test_other_alignments_are_other_data(tiny: TinyRun, guiding: dict[str, Any], tmp_path: Path) -> None:
    lines = [write_pharaoh(pair.alignment) for pair in PAIRS]
    settings = {"data.alignments": [write_lines(tmp_path / "align", lines)], "train.max_steps": 1}
    run_to_the_end(tiny.config(settings), tmp_path / "run")
    write_lines(tmp_path / "align", ["", *lines[1:]])
    with pytest.raises(CheckpointError, match="the training data have changed since the run began"):
        run_to_the_end(tiny.config(settings | {"train.max_steps": 2}), tmp_path / "run", resume=True)
    with pytest.raises(ConfigError, match=r"^data\.alignments is not set, and its default \[\] differs from the \["):
        run_to_the_end(tiny.config({"train.max_steps": 2}), tmp_path / "run", resume=True)


def test_a_run_begun_before_there_was_guidance_goes_on(
    tiny: TinyRun, guiding: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = TrainState.snapshot

    def older(state: TrainState) -> Any:
        taken = whole(state)
        del taken.values["config"]["guided_alignment"], taken.values["config"]["data"]["alignments"]
        return taken

    with monkeypatch.context() as patched:
        patched.setattr(TrainState, "snapshot", older)
        run_to_the_end(tiny.config({"train.max_steps": 1}), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"^data\.alignments=.* began with a version of glassformer without"):
        run_to_the_end(tiny.config(guiding | {"train.max_steps": 2}), tmp_path / "run", resume=True)
    assert run_to_the_end(tiny.config({"train.max_steps": 2}), tmp_path / "run", resume=True)[-1].step == 2
