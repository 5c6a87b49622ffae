"""What a GPU must keep: equal trainings, exact resume, the same translation in any batch and as on a CPU.

    python -m benchmarks.gpu --data ../shared/data/multi30k/raw --run runs/gpu

It trains ``configs/multi30k.toml`` once whole, and for some steps twice and with an interruption.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import glassformer
from benchmarks.machine import describe, device
from glassformer.data import read_lines
from glassformer.metrics import bleu

ON = device()
RESULTS = Path(__file__).parent / "results" / "gpu.json"
CONFIG = "configs/multi30k.toml"
PRECISIONS = ("float32",) if ON == "cpu" else ("float32", "bfloat16")
"""Precisions of decoding."""
ALONE = 50
"""Texts that are also translated one at a time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of train.en … test_2016_flickr.de")
    parser.add_argument("--run", type=Path, required=True, help="a trained run, or the folder of a new one")
    parser.add_argument("--steps", type=int, default=0, help="of the whole training; 0: those of the configuration")
    parser.add_argument("--sentences", type=int, default=1000)
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": describe(ON), "trained": {}, "equal": {}, "translated": {}}
    if not (options.run / "best.json").exists():
        began = time.perf_counter()
        train(options.run, options.data, *([f"train.max_steps={options.steps}"] if options.steps else []))
        report["trained"]["seconds"] = round(time.perf_counter() - began, 1)
        report["trained"] |= speed_of(options.run)
    with tempfile.TemporaryDirectory() as folder:
        report["equal"] = compare_trainings(options.data, Path(folder))
    print(json.dumps(report["equal"]), flush=True)
    report["translated"] = compare_translations(options.run, options.data, options.sentences)
    RESULTS.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1, ensure_ascii=False))


def train(run: Path, data: str, *settings: str, resume: bool = False) -> None:
    finish(run, start(run, data, *settings, resume=resume))


def start(run: Path, data: str, *settings: str, resume: bool = False) -> subprocess.Popen[bytes]:
    files = [f"data.train=['{data}/train']", f"data.validation=['{data}/val']", f"train.device={ON}"]
    command = [sys.executable, "-m", "glassformer", "train", CONFIG, *files, *settings, "--run", str(run)]
    return subprocess.Popen([*command, *(["--resume"] if resume else [])], stdout=subprocess.DEVNULL)


def finish(run: Path, process: subprocess.Popen[bytes]) -> None:
    if process.wait():
        raise SystemExit(f"the training of {run} ended with exit code {process.returncode}")


def speed_of(run: Path) -> dict[str, Any]:
    """Median of the target tokens a second over the lines of the log, and the last validation."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    speeds = [line["target_tokens_per_second"] for line in lines if line["event"] == "progress"]
    best = json.loads((run / "best.json").read_text(encoding="utf-8"))
    return {"target_tokens_per_second": round(statistics.median(speeds)), "best": best}


def compare_trainings(data: str, folder: Path) -> dict[str, dict[str, float]]:
    """Two equal trainings in each precision, and one resumed in its middle: the greatest difference of weights."""
    steps = ["train.max_steps=60", "validation.every=30", "train.log_every=10"]
    settings = {each: [f"train.precision={each}", *steps] for each in ("float32", "bfloat16")}
    runs = [(each, folder / each / name) for each in settings for name in ("first", "second")]
    for run, process in [(run, start(run, data, *settings[each])) for each, run in runs]:
        finish(run, process)
    runs = [(each, folder / each / "resumed") for each in settings]
    for _, run in runs:
        shutil.copytree(run.parent / "first", run)
        shutil.rmtree(run / "checkpoints" / "step_00000060")
    for run, process in [(run, start(run, data, *settings[each], resume=True)) for each, run in runs]:
        finish(run, process)
    return {
        each: {
            "again": difference(run.parent / "first", run.parent / "second"),
            "resumed": difference(run.parent / "first", run),
        }
        for each, run in runs
    }


def difference(one: Path, other: Path) -> float:
    left, right = (load_file(run / "checkpoints" / "step_00000060" / "model.safetensors") for run in (one, other))
    each = [(left[name].double() - right[name].double()).abs().max() for name in left]
    return torch.stack(each).max().item()  # NaN if there is one


def compare_translations(run: Path, data: str, count: int) -> dict[str, Any]:
    """Translations of the test text: together, alone and on the CPU."""
    texts, references = (list(read_lines(f"{data}/test_2016_flickr.{side}"))[:count] for side in ("en", "de"))
    there, here = glassformer.load(run, device=ON), glassformer.load(run, device="cpu")
    found: dict[str, Any] = {}
    for precision in PRECISIONS:
        for beam_size in (1, 5):
            given: dict[str, Any] = {"beam_size": beam_size, "precision": precision}
            began = time.perf_counter()
            together = there.translate(texts, **given)
            seconds = time.perf_counter() - began
            few = there.translate(texts, batch_tokens=500, **given)
            alone = [there.translate([text], **given)[0] for text in texts[:ALONE]]
            differs = {
                "small_batches": differing(together, few),
                f"alone_of_{ALONE}": differing(together[:ALONE], alone),
            }
            if precision == "float32":
                differs["cpu"] = differing(together, here.translate(texts, **given))
            found[f"{precision} beam {beam_size}"] = {
                "bleu": round(bleu(together, references).score, 2),
                "per_second": round(len(texts) / seconds, 1),
                "differ": differs,
            }
            print(json.dumps(found), flush=True)
    return found


def differing(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


if __name__ == "__main__":
    main()
