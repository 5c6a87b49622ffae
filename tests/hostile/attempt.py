"""Load bundles one after the other, with little memory, and tell how each ended: a line of JSON each.

    python attempt.py FOLDER < NAMES

A process of its own, since what is tried may hang, take all memory, or end it.
"""

import json
import resource
import signal
import sys
import warnings
from pathlib import Path

import glassformer
from glassformer.config import GlassformerError

EXTRA = 200 << 20
TEXTS = ["the doctor carries them."]


def attempt(folder: Path) -> dict[str, str]:
    """How loading and using the checkpoint ended."""
    try:
        translator = glassformer.load(folder)
        return {"end": "used", "message": str(translator.translate(TEXTS))}
    except GlassformerError as error:
        return {"end": "refused", "message": str(error)}
    except BaseException as error:
        return {"end": type(error).__name__, "message": str(error)}


def data_bytes() -> int:
    """Memory of this process that counts against ``RLIMIT_DATA``."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmData")).split()[1])


def main(pristine: Path) -> None:
    warnings.simplefilter("ignore")
    attempt(pristine)  # what is imported on the way is no extra memory
    limit = data_bytes() + EXTRA
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    for line in sys.stdin:
        signal.alarm(60)
        print(json.dumps(attempt(Path(line.removesuffix("\n")))), flush=True)
        signal.alarm(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
