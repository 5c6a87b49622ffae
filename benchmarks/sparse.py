"""Sparse attention against dense attention, causal, by length: one core, forward alone and with backward.

    python -m benchmarks.sparse

``sdpa`` is PyTorch's fused kernel with ``is_causal``, ``kernel`` the compiled kernel of training under a causal mask,
``window …`` and the others are patterns of ``glassformer.layers.sparse``. All take turns in one process, so that what
else the machine does meets all of them; milliseconds are of this process's own time on the core (``ms``, the median;
``best`` and ``worst``) and of the clock (``clock_ms``, the least). A ``backward`` pass has the forward pass in it.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.machine import describe
from glassformer.layers.mask import causal_mask
from glassformer.layers.sparse import Window, fixed, global_tokens, strided
from glassformer.native.ops import attention

LENGTHS = [256, 512, 1024, 2048, 4096, 8192, 16384]
D_HEAD = 64
KERNEL_UP_TO = 2048
"""Beyond, it is known to be slower than ``sdpa``, and its mask alone takes 16 MiB and more."""
HERE = Path(__file__).parent

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
PATTERNS = {
    "window 128": Window(128, causal=True),
    "window 256": Window(256, causal=True),
    "window 128 + 4 global": Window(128, causal=True) | global_tokens((0, 1, 2, 3), causal=True),
    "strided 128": strided(128, causal=True),
    "fixed 128, 8": fixed(128, 8, causal=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--heads", type=int, nargs="+", default=[8, 4])
    parser.add_argument("--output", type=Path, default=HERE / "results" / "sparse.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    report = {"machine": describe(), "batch": 1, "d_head": D_HEAD, "dtype": "float32", "results": rows}
    for heads, length, backward in product(options.heads, options.lengths, (False, True)):
        found = measure(heads, length, backward)
        print(f"{heads} heads, {length}:", {row["kind"]: row["ms"] for row in found}, flush=True)
        rows += found
        options.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def contenders(length: int) -> dict[str, Attention]:
    found: dict[str, Attention] = {"sdpa": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)}
    if length <= KERNEL_UP_TO:
        mask = causal_mask().dense(length, length)
        found["kernel"] = lambda q, k, v: _known(attention(q, k, v, mask))
    return found | {name: pattern.attend for name, pattern in PATTERNS.items()}


def measure(heads: int, length: int, backward: bool) -> list[dict[str, object]]:
    torch.manual_seed(0)
    q, k, v, ahead = (torch.randn(1, length, heads, D_HEAD).transpose(1, 2) for _ in range(4))
    leaves = [x.detach().requires_grad_(backward) for x in (q, k, v)]
    every = contenders(length)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in every}
    warm, repeats = (1, 10) if length <= 1024 else (1, 5) if length <= 4096 else (0, 3 if length <= 8192 else 2)
    for repeat in range(-warm, repeats):
        for name, attend in every.items():
            began = time.process_time(), time.perf_counter()
            context = attend(*leaves)
            if backward:
                torch.autograd.grad(context, leaves, ahead)
            if repeat >= 0:
                times[name].append((time.process_time() - began[0], time.perf_counter() - began[1]))
    return [{"heads": heads, "length": length, **summary(name, backward, each)} for name, each in times.items()]


def summary(name: str, backward: bool, each: list[tuple[float, float]]) -> dict[str, object]:
    own, clock = ([1e3 * seconds for seconds in column] for column in zip(*each, strict=True))
    found = {"ms": statistics.median(own), "best": min(own), "worst": max(own), "clock_ms": min(clock)}
    kind = {"kind": name, "pass": "backward" if backward else "forward", "repeats": len(each)}
    return {**kind, **{key: round(value, 2) for key, value in found.items()}}


def _known(context: Tensor | None) -> Tensor:
    if context is None:
        raise SystemExit("there are no kernels here: nothing to compare the kernel with")
    return context


if __name__ == "__main__":
    main()
