"""Load and use checkpoints one by one, with limited memory; print each outcome as a line of JSON.

    python attempt.py FOLDER < NAMES

Runs in a separate process, because an attempt may hang, exhaust memory or crash.
"""

import json
import resource
import signal
import sys
import warnings
from pathlib import Path

import glassformer
from glassformer.errors import GlassformerError

EXTRA = 200 << 20
TEXTS = ["the doctor carries them."]


def attempt(folder: Path) -> dict[str, str]:
    """Load and use the checkpoint; return the outcome."""
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
    attempt(pristine)  # imports do not count as extra memory
    limit = data_bytes() + EXTRA
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    for line in sys.stdin:
        signal.alarm(60)
        print(json.dumps(attempt(Path(line.removesuffix("\n")))), flush=True)
        signal.alarm(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
