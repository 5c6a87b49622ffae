"""Choice of the best checkpoint: by the metric, then by the lower loss."""

import json
from pathlib import Path
from typing import Any

import pytest

import glassformer.train.log
import glassformer.train.loop
from glassformer.demo_corpus.grammar import sample_corpus
from glassformer.storage.checkpoint import load_checkpoint
from glassformer.storage.run_folder import RunFolder, resolve
from glassformer.train import Started, Validated
from tiny_run import TinyRun, run_to_the_end, write_lines

EACH_STEP = {"validation.every": 1, "train.max_steps": 4}


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the (BLEU, loss) of successive validations."""

    def score(*values: tuple[float, float]) -> None:
        left = list(values)

        def scores(*_: Any) -> dict[str, float]:
            bleu, loss = left.pop(0)
            return {"nll": loss, "bleu": bleu, "chrf": 0.0}

        monkeypatch.setattr(glassformer.train.loop, "without_dropout", scores)

    return score


def bests(events: list[Any]) -> list[bool]:
    return [event.best for event in events if isinstance(event, Validated)]


def warnings(events: list[Any]) -> list[str | None]:
    return [event.warning for event in events if isinstance(event, Validated)]


@pytest.fixture(scope="module")
def without_spaces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Data with a target language without spaces: BLEU's 13a tokenizer sees one word a sentence."""
    folder = tmp_path_factory.mktemp("without_spaces")
    pairs = sample_corpus(310, seed=5)
    for name, part in {"train": pairs[10:], "validation": pairs[:10]}.items():
        write_lines(folder / f"{name}.en", [pair.source for pair in part])
        write_lines(folder / f"{name}.fr", [pair.target.replace(" ", "") for pair in part])
    return {"data.train": [str(folder / "train")], "data.validation": [str(folder / "validation")]}


def test_lowest_loss_is_best_while_bleu_is_zero(tiny: TinyRun, tmp_path: Path, without_spaces: dict[str, Any]) -> None:
    steps = {"train.max_steps": 40, "validation.every": 10}
    settings = without_spaces | steps | {"validation.tokenize": "13a", "text.kind": "char"}
    events = run_to_the_end(tiny.config(settings), tmp_path / "run")
    validated = [event for event in events if isinstance(event, Validated)]
    assert [event.scores["bleu"] for event in validated] == [0.0] * 4
    losses = [event.scores["nll"] for event in validated]
    assert losses[0] > min(losses)
    assert resolve(tmp_path / "run").name == f"step_{10 * (1 + losses.index(min(losses))):08d}"


def test_bleu_tokenizer_follows_the_target_text(tiny: TinyRun, tmp_path: Path, without_spaces: dict[str, Any]) -> None:
    started, *_ = run_to_the_end(tiny.config(without_spaces | {"train.max_steps": 1}), tmp_path / "run")
    assert isinstance(started, Started)
    assert "validation: BLEU by sacreBLEU's tokenizer char (validation.tokenize=auto)" in started.accounts
    assert load_checkpoint(resolve(tmp_path / "run")).config["bleu_tokenize"] == "char"
    assert load_checkpoint(resolve(tiny.run)).config["bleu_tokenize"] == "13a"


def test_bleu_tokenizer_follows_training_text_without_validation(
    tiny: TinyRun, tmp_path: Path, without_spaces: dict[str, Any]
) -> None:
    settings = without_spaces | {"train.max_steps": 1, "data.validation": []}
    started, *_ = run_to_the_end(tiny.config(settings), tmp_path / "run")
    assert isinstance(started, Started)
    assert not [line for line in started.accounts if "tokenizer" in line]
    assert load_checkpoint(resolve(tmp_path / "run")).config["bleu_tokenize"] == "char"


def test_equal_scores_choose_the_lower_loss(tiny: TinyRun, tmp_path: Path, scored: Any) -> None:
    scored((5.0, 3.0), (5.0, 2.0), (5.0, 2.0), (4.0, 1.0))
    events = run_to_the_end(tiny.config(EACH_STEP), tmp_path / "run")
    assert bests(events) == [True, True, False, False]
    assert resolve(tmp_path / "run").name == "step_00000002"


def test_higher_score_beats_a_lower_loss(tiny: TinyRun, tmp_path: Path, scored: Any) -> None:
    scored((0.0, 1.0), (2.0, 4.0), (3.0, 5.0), (3.0, float("nan")))
    events = run_to_the_end(tiny.config(EACH_STEP), tmp_path / "run")
    assert bests(events) == [True, True, True, False]


def test_resume_restores_the_loss_of_the_best_checkpoint(tiny: TinyRun, tmp_path: Path, scored: Any) -> None:
    scored((5.0, 3.0), (5.0, 2.0), (5.0, 2.5), (5.0, 1.0))
    run_to_the_end(tiny.config(EACH_STEP | {"train.max_steps": 2}), tmp_path / "run")
    events = run_to_the_end(tiny.config(EACH_STEP), tmp_path / "run", resume=True)
    assert bests(events) == [False, True]


def test_bleu_of_zero_warns_once(tiny: TinyRun, tmp_path: Path, scored: Any) -> None:
    scored((0.0, 4.0), (0.0, 3.0), (0.0, 2.0), (1.0, 1.0))
    begun = run_to_the_end(tiny.config(EACH_STEP | {"train.max_steps": 1}), tmp_path / "run")
    events = run_to_the_end(tiny.config(EACH_STEP), tmp_path / "run", resume=True)
    assert warnings(events) == [None] * 3
    [first] = warnings(begun)
    assert first == (
        "BLEU is 0: until it rises, the lowest loss chooses the best checkpoint; if it stays 0, set "
        "validation.tokenize (now 13a), or validation.metric to chrf or loss"
    )
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert first in [line.get("warning") for line in lines]


def test_tensorboard_takes_the_numbers_of_a_validation_with_a_warning(
    tiny: TinyRun, tmp_path: Path, scored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: dict[str, float] = {}

    class Writer:
        """TensorBoard's, which converts values to numbers."""

        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def add_scalar(self, name: str, value: Any, step: int) -> None:
            written[name] = float(value)

        def flush(self) -> None:
            pass

        close = flush

    monkeypatch.setattr(glassformer.train.log, "SummaryWriter", Writer)
    scored((0.0, 4.0))
    events = run_to_the_end(tiny.config(EACH_STEP | {"train.max_steps": 1}), tmp_path / "run")
    assert warnings(events) != [None]
    assert (written["validated/nll"], written["validated/bleu"]) == (4.0, 0.0)
    assert "validated/warning" not in written


@pytest.mark.parametrize("metric", ["chrf", "loss"])
def test_other_metrics_do_not_warn_of_zero_bleu(tiny: TinyRun, tmp_path: Path, scored: Any, metric: str) -> None:
    scored((0.0, 4.0), (0.0, 3.0), (0.0, 2.0), (0.0, 1.0))
    events = run_to_the_end(tiny.config(EACH_STEP | {"validation.metric": metric}), tmp_path / "run")
    assert warnings(events) == [None] * 4


def test_best_checkpoint_stays_if_auto_resolves_to_the_same_tokenizer(
    tiny: TinyRun, tmp_path: Path, scored: Any
) -> None:
    """Like a run started when 13a was the default and resumed with ``auto``."""
    scored((5.0, 1.0), (5.0, 2.0), (4.0, 2.0))
    settings = EACH_STEP | {"train.max_steps": 1}
    run_to_the_end(tiny.config(settings | {"validation.tokenize": "13a"}), tmp_path / "run")
    run_to_the_end(tiny.config(settings | {"train.max_steps": 2}), tmp_path / "run", resume=True)
    best = RunFolder.open(tmp_path / "run").best()
    assert best is not None
    assert best.checkpoint.name == "step_00000001"
    other = settings | {"train.max_steps": 3, "validation.tokenize": "char"}
    run_to_the_end(tiny.config(other), tmp_path / "run", resume=True)
    best = RunFolder.open(tmp_path / "run").best()
    assert best is not None
    assert best.checkpoint.name == "step_00000003"
