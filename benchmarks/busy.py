"""Speed beside other busy processes (``while True: pass``): training, and one sentence at a time.

    python -m benchmarks.busy RUN --data DIR/train --test DIR/test_2016_flickr [--before CHECKOUT]

RUN is a translator. Each turn measures with none, one and two busy processes: training of the small size in both
precisions, and 1,000 sentences one by one in int8 at beam 5 beside CTranslate2 with one thread. ``--before`` measures
another checkout too.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from benchmarks.pairs import output
from benchmarks.training import write_batches
from glassformer.interop.to_ctranslate2 import export_ctranslate2
from glassformer.predict.translator import Translator
from glassformer.storage.run_folder import resolve
from glassformer.text.reading import with_end

HERE = Path(__file__).parent
BEAM, SENTENCES = 5, 1000
TASKS = "training", "sentence"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run or checkpoint folder of a translator")
    parser.add_argument("--data", required=True, help="prefix of the training text")
    parser.add_argument("--test", type=Path, required=True, help="prefix of the test text")
    parser.add_argument("--before", type=Path, help="folder of another checkout")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--results", type=Path, default=HERE / "results" / "busy.json")
    options = parser.parse_args()
    sides = {"now": HERE.parent} | ({"before": options.before} if options.before else {})
    report: dict[str, Any] = {"machine": describe(), "turns": options.turns, "figures": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vocab = write_batches(options.data, 2048, folder / "batches.npz")
        peer = prepare(resolve(options.run), options.test, folder)
        for _ in range(options.turns):
            for busy in range(3):
                with ExitStack() as beside:
                    for _ in range(busy):
                        beside.enter_context(busy_process())
                    for key, figures in measured(options, sides, folder, vocab, peer):
                        row = report["figures"].setdefault(f"{key}, beside {busy}", [])
                        row.append(figures)
                        print(f"{key}, beside {busy}: {figures}", flush=True)
                options.results.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for key, rows in report["figures"].items():
        middle = {name: round(statistics.median(row[name] for row in rows), 1) for name in rows[0]}
        print(f"{key:50} {middle}")


def prepare(checkpoint: Path, test: Path, folder: Path) -> Path:
    """Write the sentences of the contenders, and export the model for CTranslate2; return the export."""
    texts = test.with_suffix(".en").read_text(encoding="utf-8").splitlines()[:SENTENCES]
    translator = Translator.load(checkpoint)
    ids = with_end(translator.tokenizers.source, texts)
    (folder / "texts.json").write_text(json.dumps({"texts": texts, "ids": ids}), encoding="utf-8")
    export_ctranslate2(checkpoint, folder / "ctranslate2")
    return folder / "ctranslate2"


def measured(
    options: argparse.Namespace, sides: dict[str, Path], folder: Path, vocab: int, peer: Path
) -> Iterator[tuple[str, dict[str, float]]]:
    """Figures of each side, by name."""
    for name, side in sides.items():
        for precision in ("float32", "bfloat16") if "training" in options.tasks else ():
            arguments = ["--size", "small", "--vocab", vocab, "--precision", precision, "--seconds", options.seconds]
            arguments += ["--batches", folder / "batches.npz", "--tokens", 2048, "--device", "cpu"]
            script = side / "benchmarks" / "contenders" / "glassformer_training.py"
            done = json.loads(output(side, [script, *arguments], TRAIN=options.data))
            yield f"training, {precision}, {name}", {"tokens_per_second": done["target"] / done["seconds"]}
        if "sentence" in options.tasks:
            yield f"one sentence, {name}", latency(side, "glassformer_decoding.py", resolve(options.run), folder)
    if "sentence" in options.tasks:
        yield "one sentence, CTranslate2", latency(HERE.parent, "ctranslate2_decoding.py", peer, folder)


def latency(side: Path, script: str, checkpoint: Path, folder: Path) -> dict[str, float]:
    """Milliseconds of 1,000 sentences, one at a time: the median and the 99th percentile."""
    arguments = ["--checkpoint", checkpoint, "--input", folder / "texts.json", "--beam-size", BEAM]
    arguments += ["--precision", "int8", "--repeats", 1, "--alone", SENTENCES]
    # The contender of this checkout reports the slowest too; it measures the package of the other one.
    done = json.loads(output(side, [HERE / "contenders" / script, *arguments]))
    return {"p50_ms": round(done["alone_ms"], 2), "p99_ms": round(done["alone_p99_ms"], 2)}


@contextmanager
def busy_process() -> Iterator[None]:
    """A process that computes without end."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
