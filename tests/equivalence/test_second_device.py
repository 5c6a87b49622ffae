"""On a device other than the CPU everything is computed there, and is what the CPU computes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import glassformer.train.build
import tiny_run
from glassformer import Translator, trace
from glassformer.errors import ConfigError
from glassformer.explain.analysis.attribution import Goal, integrated_gradients
from glassformer.explain.analysis.heads import head_ablation, head_importance
from glassformer.explain.analysis.interventions import Inputs
from glassformer.predict.encoder import Encoder
from glassformer.predict.evaluation import masked_scores
from glassformer.predict.loading import load
from glassformer.storage.run_folder import RunFolder
from glassformer.train import RunConfig
from glassformer.train.build import build
from glassformer.train.state import TrainState
from glassformer.train.step import train_step
from processor import LOW_PRECISION
from second_device import Far, second_device
from tiny_run import TinyRun
from tiny_tasks import EXAMPLES, SENTENCES, TinyTask, made

Task = Callable[[str], TinyTask]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return tiny_run.made(tmp_path_factory)


@pytest.fixture
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return lambda name: made(tmp_path_factory, name)


@pytest.fixture
def elsewhere() -> Iterator[torch.device]:
    with second_device() as device:
        yield device


def test_the_device_refuses_what_a_gpu_refuses(elsewhere: torch.device) -> None:
    here = torch.randn(3, 4)
    there = here.to(elsewhere)
    assert torch.equal((there + 1).cpu(), here + 1)
    assert torch.arange(3, device=elsewhere).tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="same device"):
        there + here
    with pytest.raises(RuntimeError, match="same device"):
        there[[0, 2]] = here[:2]
    there[[0, 2]] = 1.0
    assert there[torch.tensor([0, 1])].tolist() == [[1.0] * 4, here[1].tolist()]
    with pytest.raises(TypeError):
        there.numpy()


# Using what is trained


@pytest.fixture
def both(tiny: TinyRun, elsewhere: torch.device) -> list[Translator]:
    found = [Translator.load(tiny.run, device=str(device)) for device in ("cpu", elsewhere)]
    assert all(isinstance(weight, Far) for weight in found[1].models[0].parameters())
    return found


def lines(tiny: TinyRun, side: str) -> list[str]:
    return (tiny.folder / f"train.{side}").read_text(encoding="utf-8").splitlines()[:6]


@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 1},
        {"beam_size": 4, "n_best": 3},
        {"beam_size": 3, "use_cache": False},
        {"beam_size": 3, "min_length": 3, "no_repeat_ngram": 2},
        {"sample": True, "n_best": 2, "seed": 3, "top_p": 0.9},
        {"sample": True, "seed": 3, "top_k": 10},
    ],
    ids=str,
)
def test_translations(both: list[Translator], tiny: TinyRun, options: dict[str, Any]) -> None:
    here, there = (each.hypotheses([*lines(tiny, "en"), ""], **options) for each in both)
    for one, other in zip(here, there, strict=True):
        assert [found.text for found in one] == [found.text for found in other]
        scores = [[found.hypothesis.log_prob for found in each] for each in (one, other)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_translation_in_bfloat16_is_for_gpus(both: list[Translator], tiny: TinyRun) -> None:
    here, there = both
    with pytest.raises(ConfigError, match=r"precision=bfloat16 is slower .*; choose precision=float32"):
        here.translate(lines(tiny, "en"), precision="bfloat16")
    low, high = (there.hypotheses(lines(tiny, "en"), precision=each) for each in ("bfloat16", "float32"))
    for (one,), (other,) in zip(low, high, strict=True):
        assert one.text == other.text
        assert one.hypothesis.log_prob == pytest.approx(other.hypothesis.log_prob, rel=0.01)


def test_ensembles_and_forced_prefixes_on_another_device(
    both: list[Translator], tiny: TinyRun, elsewhere: torch.device
) -> None:
    given, begun = lines(tiny, "en")[:2], ["le", "la"]
    here, there = ([found[0].text for found in each.hypotheses(given, begun)] for each in both)
    assert here == there
    pairs = [Translator.load(tiny.run, tiny.run, device=str(device)) for device in ("cpu", elsewhere)]
    assert pairs[0].translate(given) == pairs[1].translate(given)


def test_scores_and_words_that_belong_together(both: list[Translator], tiny: TinyRun) -> None:
    sources, targets = lines(tiny, "en"), lines(tiny, "fr")
    here, there = ([one.log_prob for one in each.score(sources, targets)] for each in both)
    assert here == pytest.approx(there, abs=1e-4)
    assert both[0].align(sources[0], targets[0]) == both[1].align(sources[0], targets[0])
    weights = [np.asarray(each.cross_attention(sources[0], targets[0]).weights) for each in both]
    np.testing.assert_allclose(weights[0], weights[1], atol=1e-5)


TASKS: dict[str, tuple[str, Callable[[Any, Path], Any]]] = {
    "greedy": ("language", lambda model, _: model.generate(["the dog", "a", "the cat sleeps"], max_extra=12)),
    "beam": ("language", lambda model, _: model.generate(["the dog", "the cat sleeps"], beam_size=3)),
    "sampled": ("language", lambda model, _: model.generate(["the dog", "the cat"], sample=True, seed=2)),
    "streamed": ("language", lambda model, _: list(model.stream("the dog"))),
    "behind a prompt": ("language", lambda model, _: model.with_prompt("the dog").generate(["runs", "sings"])),
    "likelihood": ("language", lambda model, _: [one.nll for one in model.score(["the dog runs. the cat"])]),
    "filled": ("masked", lambda model, _: [str(found.text) for found in model.fill(["the [MASK] runs."], 3)]),
    "classified": ("classification", lambda model, _: [found.label for found in model.classify(SENTENCES[:5])]),
    "tagged": ("tagging", lambda model, _: model.tag([["the", "dog", "runs"], ["the", "cat", "sings"]])),
    "pictures": ("images", lambda model, _: [found.label for found in model.predictions(torch.zeros(2, 1, 8, 8))]),
    "errors": ("forecasting", lambda model, folder: model.errors_in_file(str(folder / "series.csv")).mse),
}


@pytest.mark.parametrize("use", TASKS)
def test_predictions(task: Task, elsewhere: torch.device, use: str) -> None:
    name, ask = TASKS[use]
    tiny = task(name)
    here, there = (ask(load(tiny.run, device=str(device)), tiny.folder) for device in ("cpu", elsewhere))
    assert there == (pytest.approx(here, rel=1e-4) if use in ("likelihood", "errors") else here)


def test_embeddings_and_measures(task: Task, elsewhere: torch.device) -> None:
    tiny = task("masked")
    here, there = (Encoder.load(tiny.run, device=str(device)).embed(SENTENCES[:3]) for device in ("cpu", elsewhere))
    torch.testing.assert_close(there.cpu(), here)
    config: Any = tiny.config().data
    files = [str(tiny.folder / "text.txt")]
    scores = [masked_scores(load(tiny.run, device=str(device)), config, files) for device in ("cpu", elsewhere)]
    assert scores[1] == pytest.approx(scores[0], rel=1e-4)


# Seeing inside


def test_traces_on_another_device(both: list[Translator], elsewhere: torch.device) -> None:
    ids, written = torch.tensor([[5, 6, 7]]), torch.tensor([[1, 5]])
    found = []
    for translator, device in zip(both, ("cpu", elsewhere), strict=True):
        model, inputs = translator.models[0], Inputs(ids.to(device), written.to(device))
        with trace(model) as recorded, torch.no_grad():
            model(inputs.source, inputs.target)
        predicted = torch.tensor([[5, 8]], device=device)
        ablated = head_ablation(model, inputs, predicted)
        important = head_importance(model, inputs, predicted).importance
        goal = integrated_gradients(model, inputs, Goal(position=1, token=8), steps=4)
        numbers = {name: recorded[name].float().cpu() for name in recorded}
        found.append({**numbers, "change": ablated.change.cpu(), "importance": important.cpu()})
        found[-1] |= {name: value.cpu() for name, value in vars(goal).items() if isinstance(value, Tensor)}
    assert found[0].keys() == found[1].keys()
    assert len(found[0]) > 50
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, msg=lambda told, name=name: f"{name}: {told}")


# Training


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch, elsewhere: torch.device) -> Callable[[RunConfig, str], TrainState]:
    """A run on the device of this name; PyTorch has a fused Adam for devices it knows only."""

    def make(config: RunConfig, device: str) -> TrainState:
        monkeypatch.setattr(glassformer.train.build, "_device", lambda _: torch.device(device))
        state = build(config)
        for group in state.optimizer.param_groups:
            group["fused"] = group["foreach"] = False
        return state

    return make


def compare(placed: Callable[[RunConfig, str], TrainState], config: RunConfig, path: Path, elsewhere: str) -> None:
    """Loss and gradients of a batch, then two steps and a validation."""
    gradients, losses, scores = [], [], []
    for device in ("cpu", elsewhere):
        state = placed(config, device)
        loss = state.task.loss(state.model.train(), state.task.batches.largest().to(device))
        loss.loss.backward()
        known = {name: p.grad.cpu() for name, p in state.model.named_parameters() if p.grad is not None}
        gradients.append(known | {"loss": loss.loss.detach().cpu()})
        state = placed(config, device)
        losses.append([train_step(state, RunFolder(path)).loss for _ in range(2)])
        scores.append(state.task.validate(state.eval_model.eval()))
    assert gradients[0].keys() == gradients[1].keys()
    largest = max(value.norm() for value in gradients[0].values())
    for name, value in gradients[0].items():
        assert (gradients[1][name] - value).norm() <= 1e-5 * value.norm() + 1e-7 * largest, name
    assert losses[1] == pytest.approx(losses[0], rel=2e-2 if config.train.precision == "bfloat16" else 1e-4)
    assert scores[1].keys() == scores[0].keys()
    for name in {"nll", "mse"} & scores[0].keys():
        assert scores[1][name] == pytest.approx(scores[0][name], rel=1e-2)


@pytest.mark.parametrize(
    "changes",
    [
        {"model.positions": "learned", "train.ema": 0.9},
        {"train.accumulate": 2, "data.row_tokens": 0},
        {"train.precision": LOW_PRECISION, "model.positions": "rotary"},
    ],
    ids=str,
)
def test_translating_is_learned(
    placed: Any, tiny: TinyRun, tmp_path: Path, elsewhere: torch.device, changes: dict[str, Any]
) -> None:
    config = tiny.config({"model.dropout": 0.0, "train.label_smoothing": 0.1, **changes})
    compare(placed, config, tmp_path, str(elsewhere))


@pytest.mark.parametrize("name", EXAMPLES)
def test_other_tasks_are_learned(placed: Any, task: Task, tmp_path: Path, elsewhere: torch.device, name: str) -> None:
    compare(placed, task(name).config(), tmp_path, str(elsewhere))


def test_checkpoint_of_another_device_translates_on_cpu(
    placed: Any, tiny: TinyRun, tmp_path: Path, elsewhere: torch.device
) -> None:
    """A checkpoint is of no device: its weights translate anywhere."""
    state = placed(tiny.config({"model.dropout": 0.0}), str(elsewhere))
    run = RunFolder.create(tmp_path / "run")
    train_step(state, run)
    glassformer.train.loop.save(state, run, None)
    assert Translator.load(run.path).translate(["the cat"]) is not None
    saved = Translator.load(run.path).models[0].state_dict()
    for name, weight in state.model.state_dict().items():
        assert torch.equal(saved[name], weight.cpu()), name
