"""Test the choice of the best checkpoint for a target language without spaces.

    python -m benchmarks.no_spaces --data ../shared/data/multi30k/raw
    python -m benchmarks.no_spaces --data ../shared/data/multi30k/raw --tokenize 13a --name no_spaces_13a

The target language is Multi30k's German with its spaces removed. Each seed trains ``configs/multi30k_quick.toml``,
validates often, and reports the score and loss of every validation and the chosen checkpoint. The result is
``benchmarks/results/NAME.json``. Goal: the chosen validation has the lowest loss, or is next to the one that has.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from glassformer.cli.process import prepare_training
from glassformer.config import apply_override, read_toml
from glassformer.storage.checkpoint import load_checkpoint
from glassformer.storage.run_folder import RunFolder, step_of
from glassformer.train import Started, Validated, parse_config, train

ROOT = Path(__file__).parents[1]


def main() -> None:
    arguments = _arguments()
    results = ROOT / "benchmarks" / "results" / f"{arguments.name}.json"
    results.parent.mkdir(exist_ok=True)
    corpus = without_spaces(arguments.data, arguments.runs / "no_spaces_corpus")
    report: dict[str, Any] = {"command": arguments.command, "machine": describe(), "runs": []}
    for seed in arguments.seeds:
        report["runs"].append(measure(arguments, corpus, seed))
        results.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def without_spaces(data: Path, folder: Path) -> Path:
    """Copy training and validation pairs of ``data`` to ``folder``, with white space removed from target lines."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "val"):
        (folder / f"{name}.en").write_bytes((data / f"{name}.en").read_bytes())
        lines = (data / f"{name}.de").read_text(encoding="utf-8").splitlines()
        (folder / f"{name}.de").write_text("".join(f"{''.join(line.split())}\n" for line in lines), encoding="utf-8")
    return folder


def measure(arguments: argparse.Namespace, corpus: Path, seed: int) -> dict[str, Any]:
    """Train once; return every validation, the chosen checkpoint, and its distance from the lowest loss."""
    values = read_toml(ROOT / "configs" / "multi30k_quick.toml")
    values["data"] |= {"train": [str(corpus / "train")], "validation": [str(corpus / "val")]}
    values["validation"] |= {"every": 200, "max_sentences": 200, "tokenize": arguments.tokenize}
    for override in [*arguments.overrides, f"train.seed={seed}"]:
        apply_override(values, override)
    config = parse_config(values, "no_spaces")
    prepare_training(config.train.threads)
    folder = RunFolder.create(arguments.runs / f"{arguments.name}-{seed}")
    curve: list[dict[str, Any]] = []
    for event in train(config, folder):
        if isinstance(event, Started):
            print("\n".join(event.accounts), flush=True)
        if isinstance(event, Validated):
            curve.append({"step": event.step, "bleu": event.scores["bleu"], "nll": event.scores["nll"]})
            print(json.dumps(curve[-1]), event.warning or "", flush=True)
    best = folder.best()
    assert best is not None
    steps = [point["step"] for point in curve]
    lowest = min(curve, key=lambda point: point["nll"])["step"]
    chosen = step_of(best.checkpoint)
    choice = {
        "seed": seed,
        "tokenize": load_checkpoint(best.checkpoint).config["bleu_tokenize"],
        "chosen": chosen,
        "lowest_loss": lowest,
        "validations_apart": abs(steps.index(chosen) - steps.index(lowest)),
    }
    print(json.dumps(choice), flush=True)
    return {**choice, "validations": curve}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.en, train.de, val.en, val.de")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder for the runs and the corpus")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--tokenize", default="auto", help="validation.tokenize")
    parser.add_argument("--name", default="no_spaces", help="name of the result file and of the runs")
    parser.add_argument("overrides", nargs="*", help="overriding settings, such as train.max_steps=400")
    arguments = parser.parse_args()
    settings = [f"--tokenize {arguments.tokenize}", *arguments.overrides]
    arguments.command = f"python -m benchmarks.no_spaces {' '.join(settings)}"
    return arguments


if __name__ == "__main__":
    main()
