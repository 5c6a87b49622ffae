"""Train the descendants on real data, test them on what they never saw, and record the figures with the machine.

    python -m benchmarks.family mnist --data ../shared/data --seeds 1 2 3

``data/NAME/`` in the configurations' paths is read as ``DIR/NAME/``; the result is ``benchmarks/results/NAME.json``.
Processor seconds are recorded beside the clock's: other work on the machine delays the latter only.
"""

import argparse
import csv
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from glassformer.cli.process import prepare_training
from glassformer.config import apply_override, read_toml
from glassformer.data.time_series import prepare_series
from glassformer.metrics.forecast import LinearForecast, forecast_errors, repeat_last, seasonal_naive
from glassformer.models.registry import build_model, load_weights
from glassformer.storage.checkpoint import load_checkpoint
from glassformer.storage.run_folder import RunFolder
from glassformer.train import Finished, Validated, parse_config, train
from glassformer.train.task import CheckpointMetadata, SourceCheckpoint
from glassformer.train.tasks import make_task

CONFIGS = Path(__file__).parents[1] / "configs"


@dataclass(frozen=True)
class Runs:
    """Where data lie, where runs go, and the settings given on the command line."""

    data: Path
    runs: Path
    overrides: list[str]

    def values(self, config: str, seed: int, *overrides: str) -> dict[str, Any]:
        values = read_toml(CONFIGS / f"{config}.toml")
        for override in [*overrides, *self.overrides, f"train.seed={seed}"]:
            apply_override(values, override)
        values["data"] = {key: self._found(value) for key, value in values["data"].items()}
        return values

    def _found(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._found(one) for one in value]
        return str(self.data / value.removeprefix("data/")) if isinstance(value, str) and "/" in value else value

    def train(self, values: dict[str, Any], name: str) -> dict[str, Any]:
        """One run; the wall-clock and the processor's seconds of training, and every validation."""
        config, folder = parse_config(values, name), RunFolder.create(self.runs / name)
        prepare_training(config.train.threads)
        began, used, curve, last = time.perf_counter(), time.process_time(), [], None
        for event in train(config, folder):
            if isinstance(event, Validated):
                curve.append({"step": event.step, "training": round(event.seconds, 1), **event.scores})
                print(f"{name}: {curve[-1]}", flush=True)
            last = event
        assert isinstance(last, Finished)
        return {
            "wall_seconds": round(time.perf_counter() - began, 1),
            "processor_seconds": round(time.process_time() - used, 1),
            "end": last.reason,
            "steps": last.step,
            "validations": curve,
        }

    def test(self, values: dict[str, Any], name: str, **data: Any) -> dict[str, float]:
        """The scores of the run's chosen checkpoint on other ``data`` than it was validated on."""
        task, model = self.chosen(values, name, **data)
        scores: dict[str, float] = task.validate(model)
        return scores

    def chosen(self, values: dict[str, Any], name: str, **data: Any) -> tuple[Any, Any]:
        folder = RunFolder.open(self.runs / name)
        best, newest = folder.best(), folder.latest()
        path = best.checkpoint if best is not None else newest.path  # type: ignore[union-attr]
        checkpoint = load_checkpoint(path)
        model = build_model(checkpoint.config["model"], str(path))
        load_weights(model, checkpoint.weights, str(path))
        config = parse_config({**values, "data": values["data"] | data}, name)
        origin = SourceCheckpoint(str(path), CheckpointMetadata(checkpoint.config, checkpoint.tokenizer))
        return make_task(config, origin), model.eval()


def shakespeare(runs: Runs, seed: int) -> dict[str, Any]:
    """nanoGPT's setting for CPUs, and a second configuration for as much of the processor's time."""
    report = {}
    for config in ("shakespeare_char", "shakespeare_char_better"):
        values, name = runs.values(config, seed), f"{config}-{seed}"
        report[config] = runs.train(values, name)
        report[config]["test"] = runs.test(values, name)
    return report


def mnist(runs: Runs, seed: int) -> dict[str, Any]:
    values, name = runs.values("mnist", seed), f"mnist-{seed}"
    report = runs.train(values, name)
    test = {"validation": values["data"]["test"], "validation_share": 0.0}
    return report | {"test": runs.test(values, name, **test)}


def etth1(runs: Runs, seed: int) -> dict[str, Any]:
    """Beside a linear map fitted by least squares on the same windows, the last value, and that of a day before."""
    values, name = runs.values("etth1", seed), f"etth1-{seed}"
    report = runs.train(values, name)
    task, model = runs.chosen(values, name)
    series = prepare_series(task.config.data)
    linear = LinearForecast.fit((b.context, b.future) for b in series.ordered("train", 512))
    simple: dict[str, Callable[[Any], Any]] = {
        "linear": linear,
        "last value": lambda context: repeat_last(context, series.horizon),
        "a day before": lambda context: seasonal_naive(context, series.horizon, 24),
    }
    beside = {}
    for label, forecast in simple.items():
        found = forecast_errors((forecast(b.context), b.future) for b in series.ordered("test", 512))
        beside[label] = {"mse": round(found.mse, 4), "mae": round(found.mae, 4)}
    return report | {"test": task.errors(model, "test"), "beside": beside}


def banking77(runs: Runs, seed: int) -> dict[str, Any]:
    """The same classifier from chance, and from an encoder pre-trained on texts without labels.

    Pre-trained on the questions for training, their labels unseen, and the English side of Tatoeba. The classifier
    that starts from chance has a vocabulary of its own, learned from the questions.
    """
    texts = _english(runs)
    report: dict[str, Any] = {}
    values, pretrained = runs.values("bert_small", seed), f"bert_small-{seed}"
    values["data"] |= {"train": [str(texts / "train.txt")], "validation": [str(texts / "validation.txt")]}
    if not (runs.runs / pretrained).is_dir():
        report["pre-training"] = runs.train(values, pretrained)
    for label, start in (("from chance", []), ("pre-trained", [f"train.start_from={runs.runs / pretrained}"])):
        name = f"banking77-{label.replace(' ', '-')}-{seed}"
        values = runs.values("banking77", seed, *start)
        report[label] = runs.train(values, name)
        report[label]["test"] = runs.test(values, name, validation=[str(runs.data / "banking77" / "test.csv")])
    return report


def _english(runs: Runs) -> Path:
    folder = runs.runs / "english"
    folder.mkdir(parents=True, exist_ok=True)
    questions = [" ".join(row["text"].split()) for row in _rows(runs.data / "banking77" / "train.csv")]
    pairs = (runs.data / "tatoeba-en-fr" / "train.tsv").read_text(encoding="utf-8").splitlines()
    sentences = sorted({pair.split("\t")[0] for pair in pairs})
    shuffled = random.Random(1)
    shuffled.shuffle(questions)
    shuffled.shuffle(sentences)
    held = questions[:500]
    lines = 4 * questions[500:] + sentences
    shuffled.shuffle(lines)
    for name, part in (("train", lines), ("validation", held)):
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in part), encoding="utf-8")
    return folder


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


BENCHMARKS = {"shakespeare": shakespeare, "mnist": mnist, "etth1": etth1, "banking77": banking77}


def main() -> None:
    arguments = _arguments()
    runs = Runs(arguments.data, arguments.runs, arguments.overrides)
    results = Path(__file__).parent / "results" / f"{arguments.name or arguments.which}.json"
    results.parent.mkdir(exist_ok=True)
    report: dict[str, Any] = {"command": arguments.command, "machine": describe(), "runs": []}
    for seed in arguments.seeds:
        found = BENCHMARKS[arguments.which](runs, seed)
        report["runs"].append({"seed": seed, **found})
        report["summary"] = summary(report["runs"])
        results.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(json.dumps(report["summary"]), flush=True)


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and deviation over the seeds of every test score."""
    scores: dict[str, list[float]] = {}
    for run in found:
        for place, tested in _tests(run):
            for metric, value in tested.items():
                scores.setdefault(f"{place}{metric}", []).append(value)
    return {
        name: {
            "mean": round(statistics.mean(values), 4),
            "deviation": round(statistics.stdev(values), 4) if len(values) > 1 else None,
            "values": [round(value, 4) for value in values],
        }
        for name, values in scores.items()
    }


def _tests(report: dict[str, Any], place: str = "") -> Iterator[tuple[str, dict[str, float]]]:
    for key, value in report.items():
        if key == "test":
            yield place, value
        elif isinstance(value, dict):
            yield from _tests(value, f"{place}{key}: ")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=sorted(BENCHMARKS))
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpora")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the runs go")
    parser.add_argument("--name", help="of the result; that of the benchmark when not given")
    arguments = parser.parse_intermixed_args()  # settings may follow the options too
    shown = [arguments.which, *arguments.overrides, "--data DIR --seeds", *map(str, arguments.seeds)]
    arguments.command = " ".join(["python -m benchmarks.family", *shown])
    return arguments


if __name__ == "__main__":
    main()
