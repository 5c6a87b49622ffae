"""Call the kernels with random arguments, valid and invalid, and compare with PyTorch.

    python -m benchmarks.random_calls --calls 100000 --seed 1
    .ci/sanitize -m benchmarks.random_calls --calls 2000

A call must return what PyTorch returns, to the tolerance of its kernel, or raise an error where PyTorch raises one (or
where an invalid size happens to be one that PyTorch broadcasts); ``refused`` counts those. Errors are relative to the
largest expected number, at least 1. Two results may round apart, in bfloat16, in int8 or where the terms of a long sum
cancel; ``rounded`` counts those beyond the tolerance that are at most ``ROUNDING`` times as far from a more precise
result as PyTorch's, or by 10⁻⁷ for each term of a sum that the kernel adds one by one; in bfloat16 stacks as PyTorch's
for arguments that differ by 2⁻⁹: gradients of ReLU jump where its input is almost 0. Entries that are not finite must
be the same ones, unless a mask hides keys: the kernels skip those, PyTorch multiplies by 0. Where PyTorch cannot
reshape an empty tensor, a finite result is enough.

Every kernel runs in a process of its own, so that a crash ends this kernel only. Prints a table; for each failure the
command that repeats the call, and exits with 1. The arguments themselves are in the modules ``random_training``,
``random_decoding`` and ``random_models``.
"""

import argparse
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.random_arguments import Call, Draw
from benchmarks.random_decoding import DECODING
from benchmarks.random_models import MODELS
from benchmarks.random_training import TRAINING
from glassformer.native.library import kernels

ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)


KERNELS = TRAINING | DECODING | MODELS
ROUNDING = 8
"""In 74 calls of bfloat16 stacks the error of a gradient was 0.93 times PyTorch's at the median and 0.4 to 8 times at
the ends: it is that of one row with a small deviation, which the normalization multiplies."""


@dataclass
class Count:
    """Outcomes of the calls of one kernel."""

    calls: int = 0
    refused: int = 0
    rounded: int = 0
    largest_error: float = 0.0


def main() -> int:
    arguments = parse()
    names = arguments.kernel or list(KERNELS)
    if kernels() is None:
        print("there are no kernels here", file=sys.stderr)
        return 2
    if arguments.progress:
        return run(names[0], arguments)
    columns = f"{'calls':>9}{'refused':>9}{'rounded':>9}{'error':>10}{'tolerance':>11}{'seconds':>9}"
    print(f"{'kernel':<18}{columns}", flush=True)
    return int(sum(run_apart(name, arguments) for name in names) > 0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000, help="Calls of each kernel.")
    parser.add_argument("--seed", type=int, default=1, help="Random seed; with its number it determines a call.")
    parser.add_argument("--first", type=int, default=0, help="Number of the first call.")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="Begin no call of a kernel later.")
    parser.add_argument("--kernel", choices=sorted(KERNELS), nargs="+", help="These kernels only.")
    parser.add_argument("--progress", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_apart(name: str, arguments: argparse.Namespace) -> bool:
    """Run the calls of one kernel in another process; True if one failed."""
    with tempfile.NamedTemporaryFile() as progress:
        progress.write(bytes(8))
        progress.flush()
        options = {key: getattr(arguments, key) for key in ("calls", "seed", "first", "seconds")}
        options |= {"kernel": name, "progress": progress.name}
        given = [f"--{key}={value}" for key, value in options.items()]
        command = [sys.executable, "-m", "benchmarks.random_calls", *given]
        # Threads of PyTorch that wait would take the processor from those that compute.
        code = subprocess.run(command, check=False, env=os.environ | {"OMP_WAIT_POLICY": "passive"}).returncode
        if code not in (0, 1):
            (number,) = struct.unpack("q", Path(progress.name).read_bytes())
            print(f"{name}: the process ended with {code}; {repeat(name, arguments.seed, number)}", flush=True)
    return code != 0


def run(name: str, arguments: argparse.Namespace) -> int:
    """Run the calls of one kernel in this process, writing the number of each to the file ``progress`` before it."""
    warnings.simplefilter("ignore")
    count, start = Count(), time.monotonic()
    with arguments.progress.open("r+b") as file, mmap.mmap(file.fileno(), 8) as progress:
        for number in range(arguments.first, arguments.first + arguments.calls):
            if time.monotonic() - start > arguments.seconds:
                break
            progress[:] = struct.pack("q", number)
            try:
                compare(random_call(name, arguments.seed, number), count)
            except MismatchError as mismatch:
                print(f"{name}: {mismatch}; {repeat(name, arguments.seed, number)}", flush=True)
                return 1
    seconds = time.monotonic() - start
    errors = f"{count.largest_error:>10.1e}{KERNELS[name].tolerance:>11.0e}"
    print(f"{name:<18}{count.calls:>9}{count.refused:>9}{count.rounded:>9}{errors}{seconds:>9.0f}", flush=True)
    return 0


def repeat(name: str, seed: int, number: int) -> str:
    return f"python -m benchmarks.random_calls --kernel {name} --seed {seed} --first {number} --calls 1"


def random_call(name: str, seed: int, number: int) -> Call:
    rng = Draw(f"{seed} {name} {number}")
    torch.manual_seed(rng.getrandbits(63))
    if torch.get_num_threads() != (threads := rng.threads()):
        torch.set_num_threads(threads)
    call = KERNELS[name].draw(rng)
    call.invalid = rng.spoiled
    return call


class MismatchError(Exception):
    """A call whose outcome is not PyTorch's."""


def compare(call: Call, count: Count) -> None:
    count.calls += 1
    (found, fault), (expected, reason) = outcome(call.native), outcome(call.torch)
    if found is None or expected is None:
        if found is not None and "0 elements" in reason and all(x.isfinite().all() for x in found):
            return
        refused = found is None and (expected is None or call.invalid)
        if not refused:
            raise MismatchError(f"{call.what}: the kernel: {fault or 'a result'}; PyTorch: {reason or 'a result'}")
        count.refused += 1
        return
    if [x.shape for x in found] != [x.shape for x in expected]:
        raise MismatchError(f"{call.what}: shapes {[x.shape for x in found]}, PyTorch's {[x.shape for x in expected]}")
    hides = call.hides and not all(x.isfinite().all() for x in expected)
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        error = error_of(one.double(), other.double(), hides)
        if error > call.tolerance and call.precise is not None:
            exact, others = call.precise()[index].double(), [other, *(each()[index] for each in call.nearby)]
            usual = max(error_of(each.double(), exact, hides) for each in others)
            if error_of(one.double(), exact, hides) <= max(ROUNDING * usual, 1e-7 * call.longest_sum):
                count.rounded += 1
                continue
        count.largest_error = max(count.largest_error, error)
        if error > call.tolerance:
            raise MismatchError(f"{call.what}: result {index} has the error {error:.2e}, above {call.tolerance:.0e}")


def outcome(function) -> tuple[Sequence[Tensor] | None, str]:  # type: ignore[no-untyped-def]
    try:
        return function(), ""
    except ERRORS as error:
        return None, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def error_of(found: Tensor, expected: Tensor, hides: bool) -> float:
    """Largest difference, relative to the largest number, at least 1; infinite for other places of NaN or infinity.

    ``hides``: NaN or infinity may be elsewhere, since the kernels skip hidden keys and PyTorch multiplies them by 0.
    """
    finite = expected.isfinite()
    if not hides and (found.isfinite() ^ finite).any():
        return float("inf")
    finite &= found.isfinite()
    if not finite.any():
        return 0.0
    return float((found - expected)[finite].abs().max() / expected[finite].abs().max().clamp(min=1))


if __name__ == "__main__":
    sys.exit(main())
