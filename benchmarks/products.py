"""The kernels' float32 products beside PyTorch's (MKL's on x86), for every shape of the models of the benchmarks.

    python -m benchmarks.products

The three products of a linear layer in training, packing included, and the product in use, of weights that are already
packed: those of decoders and, where the processor multiplies float32 in parts, those of encoders. Both sides compute
the same tensors, alternating. Before that, the errors of both against float64, relative to the sum of the magnitudes.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from benchmarks.machine import describe
from glassformer.native.library import loaded
from glassformer.native.ops import product
from glassformer.native.packed import Packed

RESULTS = Path(__file__).parent / "results" / "products.json"
SHAPES = [
    *((2048, width, wide) for width, wide in ((64, 128), (128, 256), (128, 512), (192, 768), (256, 704))),
    *((2048, width, wide) for width, wide in ((256, 256), (256, 1024), (384, 384), (384, 1536))),
    *((2048, width, wide) for width, wide in ((512, 512), (512, 2048), (256, 8000), (512, 8000))),
    (4096, 384, 1536),
    (4096, 256, 1024),
]
"""Rows, inputs and outputs; likewise with inputs and outputs exchanged."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    report = {"machine": describe(), "variant": loaded().arithmetic, "errors": errors(), "products": []}
    print(json.dumps(report["errors"], indent=1), flush=True)
    shapes = sorted({shape for rows, a, b in SHAPES for shape in ((rows, a, b), (rows, b, a))})
    for rows, inputs, outputs in shapes:
        for name, (ours, theirs) in contenders(rows, inputs, outputs).items():
            work = 2 * rows * inputs * outputs
            speeds = [compare(ours, theirs, work) for _ in range(options.turns)]
            ratio = statistics.median(a / b for a, b in speeds)
            report["products"].append(
                {"rows": rows, "inputs": inputs, "outputs": outputs, "product": name, "gflops": speeds, "ratio": ratio}
            )
            options.results.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
            print(f"{rows:5} × {inputs:5} × {outputs:5} {name:16} {ratio:5.2f}  {speeds[0]}", flush=True)


def contenders(rows: int, inputs: int, outputs: int) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Ours and PyTorch's, of each product."""
    linear = nn.Linear(inputs, outputs).requires_grad_(False)
    x, d_y, packed = torch.randn(rows, inputs), torch.randn(rows, outputs), Packed(loaded(), int8=False)
    w, bias, ready = linear.weight, linear.bias, packed.linear(linear)
    encoders = Packed(loaded(), int8=False, parts=True)
    in_parts = encoders.linear(linear)
    found: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "y = x Wᵀ + b": (lambda: product(x, w.t(), bias), lambda: torch.addmm(bias, x, w.t())),
        "dx = dy W": (lambda: product(d_y, w), lambda: d_y @ w),
        "dW = dyᵀ x": (lambda: product(d_y.t(), x), lambda: d_y.t() @ x),
        "in use": (lambda: packed.apply(ready, x), lambda: torch.addmm(bias, x, w.t())),
    }
    if encoders.parts:
        found["in use, parts"] = (lambda: encoders.apply(in_parts, x), lambda: torch.addmm(bias, x, w.t()))
    return found


def errors() -> list[dict[str, object]]:
    """Root mean square and largest error of ours and PyTorch's, in units of 2^-24, float32's rounding."""
    found: list[dict[str, object]] = []
    torch.manual_seed(0)
    for depth in (64, 256, 1024, 8000):
        for kind in ("normal", "positive", "wide"):
            a, b = torch.randn(1024, depth), torch.randn(depth, 192)
            if kind == "positive":
                a, b = a.abs(), b.abs()
            elif kind == "wide":  # log-normal magnitudes over ten powers of ten
                a, b = (x * torch.exp(4 * torch.randn_like(x)) for x in (a, b))
            exact, scale = a.double() @ b.double(), a.double().abs() @ b.double().abs()
            row: dict[str, object] = {"depth": depth, "numbers": kind}
            for name, y in (("glassformer", product(a, b)), ("PyTorch", a @ b)):
                error = (y.double() - exact).abs() / scale * 2**24
                row[name] = [round(float(error.square().mean().sqrt()), 2), round(float(error.max()), 2)]
            found.append(row)
    return found


def compare(ours: Callable[[], object], theirs: Callable[[], object], work: int) -> tuple[float, float]:
    """GFLOP/s of both: medians of runs of 20 ms, alternating."""
    repeats = max(1, round(0.02 * 1e11 / work))
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(9):
        for run, seconds in zip((ours, theirs), found, strict=True):
            time.sleep(0.02)  # until the threads of the one before sleep
            run()
            began = time.perf_counter()
            for _ in range(repeats):
                run()
            seconds.append((time.perf_counter() - began) / repeats)
    first, second = (round(work / statistics.median(seconds) / 1e9, 1) for seconds in found)
    return first, second


if __name__ == "__main__":
    main()
