"""Training speed of the models of the family beside forty lines of plain PyTorch, alternating in turns.

    python -m benchmarks.family_training --data ../shared/data

Both sides train on the same batches: ours by the package's own step, theirs with fused attention, fused AdamW and, in
bfloat16, autocast (``contenders/plain_family.py``).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.contenders.ending import ends_with_parent
from benchmarks.machine import describe

RESULTS = Path(__file__).parent / "results" / "family_training.json"
SIDES = "glassformer", "plain"
OPTIMIZER = {"kind": "adamw", "schedule": "constant", "learning_rate": 1e-3, "weight_decay": 0.1}
PRECISIONS = "float32", "bfloat16"


def gpt(width: int, layers: int, heads: int, window: int, rows: int, **model: Any) -> dict[str, Any]:
    sizes = {"d_model": width, "n_layers": layers, "n_heads": heads, "d_ff": 4 * width, "max_length": window}
    data = {"train": ["{data}/tinyshakespeare/input.txt"], "context": window, "batch_size": rows, "cache": "{cache}"}
    model = {"kind": "gpt", "activation": "gelu", **sizes, **model}
    return {"task": "language", "model": model, "text": {"kind": "char"}, "data": data}


LLAMA = {"norm": "rms", "positions": "rotary", "activation": "silu", "gated": True, "bias": False}
IMAGES = {"train": ["{data}/mnist/t10k"], "batch_size": 64}
CASES: dict[str, dict[str, Any]] = {
    "gpt_small": gpt(128, 4, 4, 64, 12),
    "gpt_large": gpt(384, 6, 6, 256, 16),
    "llama": gpt(256, 4, 8, 128, 16, **LLAMA, d_ff=704, attention={"n_kv_heads": 2}),
    "bert": {
        "task": "masked",
        "model": {"kind": "bert", "d_model": 256, "n_layers": 4, "n_heads": 4, "d_ff": 1024, "max_length": 128},
        "text": {"vocab_size": 8000},
        "data": {"train": ["{data}/tinyshakespeare/input.txt"], "max_length": 128, "batch_tokens": 2048},
    },
    "vit": {
        "task": "images",
        "model": {"kind": "vit", "patch_size": 4, "d_model": 192, "n_layers": 6, "n_heads": 4, "d_ff": 768},
        "data": IMAGES,
    },
    "vit_128": {
        "task": "images",
        "model": {"kind": "vit", "patch_size": 7, "d_model": 128, "n_layers": 6, "n_heads": 4, "d_ff": 256},
        "data": IMAGES,
    },
    "series": {
        "task": "forecasting",
        "model": {"kind": "series"},
        "data": {
            "file": "{data}/etth1/ETTh1.csv.gz",
            "split": [8640, 2880, 2880],
            "context": 336,
            "horizon": 96,
            "batch_size": 32,
        },
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of tinyshakespeare/, mnist/ and etth1/")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.0, 0.2])
    parser.add_argument("--seconds", type=float, default=4.0, help="of a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": describe(), "seconds": options.seconds, "results": []}
    with tempfile.TemporaryDirectory() as cache:
        for name in options.cases:
            for precision in options.precisions:
                for dropout in options.dropout:
                    values = configured(CASES[name], precision, dropout, options.data, cache)
                    result = {"case": name, "precision": precision, "dropout": dropout}
                    report["results"].append(result | compare(values, options.seconds, options.turns))
                    print(line(report["results"][-1]), flush=True)
                    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def configured(case: dict[str, Any], precision: str, dropout: float, data: str, cache: str) -> dict[str, Any]:
    """The values of a run. Paths of the data take the place of ``{data}`` and ``{cache}``."""
    values = {"optimizer": OPTIMIZER, "train": {"precision": precision, "device": "cpu"}, **case}
    values["model"] = {**case["model"], "dropout": dropout}
    if case["model"]["kind"] == "vit":
        values["model"]["attention_dropout"] = dropout
    return json.loads(json.dumps(values).replace("{data}", str(Path(data).resolve())).replace("{cache}", cache))


def compare(values: dict[str, Any], seconds: float, turns: int) -> dict[str, Any]:
    """Targets a second of both sides in turns, each in a process of its own that waits meanwhile; and their ratio."""
    workers = {side: start(side, values) for side in SIDES}
    routes = {side: json.loads(answer(worker)) for side, worker in workers.items()}
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(turns):
        for side, worker in workers.items():
            worker.stdin.write(f"{seconds}\n")
            worker.stdin.flush()
            rates[side].append(round(float(answer(worker)), 1))
    for worker in workers.values():
        worker.stdin.close()
        worker.wait()
    ours, theirs = (statistics.median(rates[side]) for side in SIDES)
    ratio = statistics.median(a / b for a, b in zip(*(rates[side] for side in SIDES), strict=True))
    return {
        **rates,
        "median": {"glassformer": ours, "plain": theirs},
        "ratio": round(ratio, 3),
        "routes": routes[SIDES[0]],
    }


def start(side: str, values: dict[str, Any]) -> Any:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.contenders.family_training", side, json.dumps(values)]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ},
        preexec_fn=ends_with_parent,
    )


def answer(worker: Any) -> str:
    """The next line of a worker; without one the benchmark ends."""
    if text := worker.stdout.readline():
        return text
    raise SystemExit(f"a contender ended with exit code {worker.wait()}")


def line(result: dict[str, Any]) -> str:
    ours, theirs = (result["median"][side] for side in SIDES)
    name = f"{result['case']} {result['precision']} dropout {result['dropout']}"
    return f"{name:34} {ours:9.0f} {theirs:9.0f} targets/s, {result['ratio']:.2f} ×"


if __name__ == "__main__":
    main()
