"""The machine a figure was measured on, and what its matrix products reach at that moment."""

import os
import platform
import statistics
import subprocess
import time
from datetime import UTC, datetime
from typing import Any

import torch

import glassformer


def describe(device: str = "cpu") -> dict[str, Any]:
    """Processor, cores, memory, versions, commit, time, and the ceilings of ``device`` measured now."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "device": device,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "glassformer": glassformer.__version__,
        "commit": _commit(),
        "gflops": {
            str(dtype).removeprefix("torch."): ceiling(dtype, device) for dtype in (torch.float32, torch.bfloat16)
        },
    }


def device() -> str:
    """Where training and decoding are measured."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def ceiling(dtype: torch.dtype, device: str = "cpu") -> float:
    """Median GFLOP/s of a product: on a CPU of 2,048 × 512 and 512 × 2,048, on a GPU of two of 8,192 × 8,192."""
    outer, inner, repeats = (2048, 512, 15) if device == "cpu" else (8192, 8192, 200)  # a GPU takes a while to wake
    left = torch.randn(outer, inner, device=device).to(dtype)
    right, seconds = left.t().contiguous(), []
    for _ in range(repeats):
        began = time.perf_counter()
        left @ right
        if device != "cpu":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
        if sum(seconds) > 5 and device == "cpu":  # bfloat16 without its instructions: 9 s a product
            break
    return round(2 * outer * inner * outer / statistics.median(seconds[-15:]) / 1e9, 1)


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as stream:
        names = [line.partition(":")[2].strip() for line in stream if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _commit() -> str:
    found = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return found.stdout.strip()
