"""Attention against the length of its sequence: forward and backward of one layer, time and memory.

    python -m benchmarks.length

Each figure comes from a process of its own. ``definition`` holds the n × n scores of every head, as PyTorch's passes
do where dropout is on; ``kernel`` holds a few rows of them. Both compute all n² products: time grows with the square,
memory need not.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from benchmarks.contenders.memory import peak_mib
from benchmarks.machine import describe
from glassformer import trace
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.dropout import Dropout

LENGTHS = [128, 256, 512, 1024, 2048, 4096, 8192]
HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--one", nargs=2, metavar=("KIND", "LENGTH"), help="measure this and print it")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]))))
        return
    rows = []
    for length in options.lengths:
        for kind in ("definition", "kernel"):
            command = [sys.executable, "-m", "benchmarks.length", "--one", kind, str(length)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            ran = done.returncode == 0
            rows.append({"kind": kind, "length": length, **(json.loads(done.stdout) if ran else {"failed": True})})
            print(rows[-1], flush=True)
    report = {"machine": describe(), "d_model": 256, "n_heads": 4, "dropout": 0.1, "results": rows}
    (HERE / "results" / "length.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def measure(kind: str, length: int, repeats: int = 5) -> dict[str, float]:
    """Milliseconds of forward and backward, causal, one sequence; memory beyond what the process had before."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(256, 4, 64, 64, Dropout(0.1)).train()
    mask = torch.ones(length, length, dtype=torch.bool).tril()[None, None]
    x = torch.randn(1, length, 256, requires_grad=True)
    before, times = peak_mib(), []
    for _ in range(repeats):
        began = time.perf_counter()
        if kind == "definition":
            with trace(layer, keep="q"):  # a trace asks for the definition
                layer(x, mask=mask).sum().backward()
        else:
            layer(x, mask=mask).sum().backward()
        times.append(time.perf_counter() - began)
    return {"ms": round(1e3 * statistics.median(times), 2), "mib": round(peak_mib() - before, 1)}


if __name__ == "__main__":
    main()
