"""This checkout beside another one, in turns: training, decoding, start-up, and the rest of the family.

    python -m benchmarks.pairs BEFORE --data DIR/train --run RUN --test DIR/test_2016_flickr

BEFORE is the folder of the other checkout, RUN a translator that both can load, DIR/train.en … its texts. Each turn
runs both, the second one first in every other turn; a figure is the middle of the turns' ratios (more than 1: this one
is faster). Both use this environment's Python and libraries.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from benchmarks.training import write_batches

HERE = Path(__file__).parent
FAMILY = """
import sys, time, torch
from glassformer.models.registry import build_model
from glassformer.generate import LanguageDecodingConfig, continue_texts
try:
    from glassformer.generate import SpecialTokens
except ImportError:  # earlier versions
    from glassformer.generate import Symbols as SpecialTokens
torch.manual_seed(0)
kind, batch = sys.argv[1], int(sys.argv[2])
values = {"d_model": 384, "n_layers": 6, "vocab_size": 30000, "max_length": 512}
if kind == "bert":
    model = build_model({"kind": "bert", "n_heads": 12, "d_ff": 1536, **values}, "test").eval()
    ids = torch.randint(5, 30000, (batch, 20))
    work = lambda: model.embed(ids, torch.ones_like(ids, dtype=torch.bool))
else:
    values["positions"] = "rotary" if kind == "rotary gpt" else "learned"
    model = build_model({"kind": "gpt", "n_heads": 6, "d_ff": 1536, **values}, "test").eval()
    try:
        from glassformer.native import accelerate
        model = accelerate(model)
    except ImportError:
        pass
    config = LanguageDecodingConfig(sample=False, max_length=100)
    prompts = [[5 + i, 6, 7, 8] for i in range(batch)]
    work = lambda: continue_texts(model, prompts, SpecialTokens(0, 1, 2), config)
with torch.inference_mode():
    work()
    began = time.perf_counter()
    for _ in range(3):
        work()
print(3 / (time.perf_counter() - began))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="folder of the other checkout")
    parser.add_argument("--data", required=True, help="prefix of the training text")
    parser.add_argument("--run", type=Path, required=True, help="checkpoint folder of a translator")
    parser.add_argument("--test", type=Path, required=True, help="prefix of the test text")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument(
        "--cases", nargs="+", default=[], help="beginnings of the names of those to measure; all if none"
    )
    parser.add_argument("--results", type=Path, default=HERE / "results" / "pairs.json")
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": describe(), "turns": options.turns, "ratios": {}}
    with tempfile.TemporaryDirectory() as folder:
        chosen = tuple(options.cases)
        for name, measure in cases(options, Path(folder)).items():
            if chosen and not name.startswith(chosen):
                continue
            turns = []
            for turn in range(options.turns):
                sides = (options.before, HERE.parent)
                rates = {side: measure(side) for side in (sides if turn % 2 == 0 else reversed(sides))}
                turns.append([rates[side] for side in sides])
            ratio = statistics.median(now / before for before, now in turns)
            report["ratios"][name] = {"ratio": round(ratio, 3), "before_and_now": turns}
            print(f"{name:32} {ratio:.3f}  {[[round(rate, 2) for rate in pair] for pair in turns]}", flush=True)
            options.results.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def cases(options: argparse.Namespace, folder: Path) -> dict[str, Callable[[Path], float]]:
    """Each measurement as a function of the checkout: work a second, by name."""
    vocab = write_batches(options.data, 2048, folder / "batches.npz")
    texts = options.test.with_suffix(".en").read_text(encoding="utf-8").splitlines()[:1000]
    (folder / "texts.json").write_text(json.dumps({"texts": texts}), encoding="utf-8")
    found: dict[str, Callable[[Path], float]] = {}
    for size in ("small", "base"):
        for precision in ("float32", "bfloat16"):
            arguments = ["--size", size, "--vocab", vocab, "--precision", precision, "--seconds", options.seconds]
            arguments += ["--batches", folder / "batches.npz", "--tokens", 2048, "--device", "cpu"]
            found[f"training, {size}, {precision}"] = lambda side, a=arguments: training(side, options.data, a)
    for precision in ("float32", "int8"):
        for beam in (1, 5):
            arguments = ["--checkpoint", options.run, "--input", folder / "texts.json", "--beam-size", beam]
            arguments += ["--precision", precision]
            # Of 100 sentences, less than a second, the middle of three turns was 0.86 to 1.11 for equal states.
            for what, options_of in (("per_second", []), ("alone", ["--repeats", 1, "--alone", 1000])):
                name = f"decoding, {precision}, beam {beam}, {what}"
                found[name] = lambda side, a=[*arguments, *options_of], w=what: decoding(side, a, w)
    found["a first sentence, cold"] = lambda side: startup(side, options.run)
    for kind, batch in (("gpt", 1), ("gpt", 32), ("rotary gpt", 1), ("rotary gpt", 16), ("bert", 64)):
        found[f"{kind}, batch {batch}"] = lambda side, k=kind, b=batch: float(output(side, ["-c", FAMILY, k, b]))
    return found


def training(side: Path, data: str, arguments: list[Any]) -> float:
    script = side / "benchmarks" / "contenders" / "glassformer_training.py"
    done = json.loads(output(side, [script, *arguments], TRAIN=data))
    return float(done["target"] / done["seconds"])


def decoding(side: Path, arguments: list[Any], what: str) -> float:
    script = HERE / "contenders" / "glassformer_decoding.py"  # an earlier one has not all options
    done = json.loads(output(side, [script, *arguments]))
    return float(1e3 / done["alone_ms"] if what == "alone" else statistics.median(done["per_second"]))


def startup(side: Path, run: Path) -> float:
    """Starts a second, the middle of five."""
    seconds = []
    for _ in range(6):
        began = time.perf_counter()
        output(side, ["-m", "glassformer", "translate", run], given="A dog runs.\n")
        seconds.append(time.perf_counter() - began)
    return 1 / statistics.median(seconds[1:])


def output(side: Path, arguments: list[Any], given: str | None = None, **environment: str) -> str:
    """Last line that a Python program prints on ``side``, whose kernels must be there."""
    found = os.environ | {"PYTHONPATH": os.pathsep.join((str(side / "src"), str(side)))} | environment
    if not (side / "src" / "glassformer" / "native" / "lib").is_dir():
        found.setdefault("GLASSFORMER_ENGINE", "jit")
    command = [sys.executable, "-W", "ignore", "-W", "error:glassformer runs in PyTorch", *map(str, arguments)]
    return subprocess.run(
        command, input=given, env=found, cwd=side, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines()[-1]


if __name__ == "__main__":
    main()
