"""Train a configuration on real data, score it, and record the figures with the machine.

    python -m benchmarks.quality configs/multi30k.toml --data ../shared/data/multi30k/raw --test test_2016_flickr

``data/NAME/`` in the configuration's paths is read as the folder given by ``--data``. Each seed is a run of its own;
the result is ``benchmarks/results/NAME.json``.
"""

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from glassformer.cli.process import prepare_training
from glassformer.config import apply_override, read_toml
from glassformer.data import read_pairs
from glassformer.metrics import bleu, chrf
from glassformer.predict.translator import Translator
from glassformer.storage.run_folder import RunFolder
from glassformer.train import Finished, Progress, Started, Validated, parse_config, train


def main() -> None:
    arguments = _arguments()
    results = Path(__file__).parent / "results" / f"{arguments.name or arguments.config.stem}.json"
    results.parent.mkdir(exist_ok=True)
    report: dict[str, Any] = {"command": arguments.command, "machine": describe(), "runs": []}
    for seed in arguments.seeds:
        report["runs"].append(measure(arguments, seed))
        report["summary"] = _summary(report["runs"])
        results.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(json.dumps(report["summary"]), flush=True)


def measure(arguments: argparse.Namespace, seed: int) -> dict[str, Any]:
    """One training and what it scores on the test set, with the wall-clock to every validation."""
    values = read_toml(arguments.config)
    for override in [*arguments.overrides, f"train.seed={seed}"]:
        apply_override(values, override)
    for key in ("train", "validation"):
        values["data"][key] = [str(arguments.data / Path(path).name) for path in values["data"][key]]
    config = parse_config(values, str(arguments.config))
    prepare_training(config.train.threads)
    folder = RunFolder.create(arguments.runs / f"{arguments.name or arguments.config.stem}-{seed}")
    began = time.perf_counter()
    curve, rates, last = [], [], None
    for event in train(config, folder):
        wall = round(time.perf_counter() - began, 1)
        if isinstance(event, Started | Finished | Validated):
            print(f"{wall:8.1f} s  {event}", flush=True)
        if isinstance(event, Validated):
            scores = {name: event.scores[name] for name in ("bleu", "nll")}
            curve.append({"wall": wall, "step": event.step, "training": round(event.seconds, 1), **scores})
        if isinstance(event, Progress):
            rates.append(event.target_tokens_per_second)
        last = event
    sources, references = read_pairs(config.data, [str(arguments.data / arguments.test)])
    tested = {"best": Translator.load(folder.path)}
    if newest := folder.latest():
        tested["last"] = Translator.load(newest.path)
    scores = {name: score(translator, sources, references) for name, translator in tested.items()}
    return {
        "seed": seed,
        "wall_seconds": round(time.perf_counter() - began, 1),
        "end": str(last),
        "target_tokens_per_second": round(statistics.median(rates)),
        "validations": curve,
        "test": scores,
        "unknown_tokens": _unknown(tested["best"], sources, references),
        "config": {"file": arguments.config.name, "overrides": arguments.overrides},
    }


def _unknown(translator: Translator, sources: list[str], references: list[str]) -> int:
    """Number of unknown tokens in both sides of the test set."""
    pair = translator.tokenizers
    encoded = ((pair.source, pair.source.encode_batch(sources)), (pair.target, pair.target.encode_batch(references)))
    return sum(ids.count(tokenizer.unknown_id) for tokenizer, texts in encoded for ids in texts)


def score(translator: Translator, sources: list[str], references: list[str]) -> dict[str, Any]:
    began = time.perf_counter()
    with warnings.catch_warnings(action="ignore"):  # measure() reports unknown tokens
        found = translator.translate(sources)
    seconds = round(time.perf_counter() - began, 1)
    return {
        "bleu": bleu(found, references, tokenize=translator.bleu_tokenize)._asdict(),
        "chrf": chrf(found, references)._asdict(),
        "seconds": seconds,
    }


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and range over the seeds of what the checkpoint chosen on validation scores."""
    summary: dict[str, Any] = {"seeds": [run["seed"] for run in runs]}
    for metric in ("bleu", "chrf"):
        values = [run["test"]["best"][metric]["score"] for run in runs]
        summary[metric] = {
            "mean": round(statistics.mean(values), 2),
            "values": [round(value, 2) for value in values],
            "deviation": round(statistics.stdev(values), 2) if len(values) > 1 else None,
            "signature": runs[0]["test"]["best"][metric]["signature"],
        }
    return summary


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--test", required=True, help="name of the test set in it")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the runs go")
    parser.add_argument("--name", help="of the result; that of the configuration when not given")
    arguments = parser.parse_intermixed_args()  # settings may follow the options too
    shown = [str(value) for value in (arguments.config, *arguments.overrides)]
    shown += ["--test", arguments.test, "--seeds", *map(str, arguments.seeds)]
    arguments.command = " ".join(["python -m benchmarks.quality", *shown, "--data DIR"])
    return arguments


if __name__ == "__main__":
    main()
