"""That a program which was started ends with who started it, however that ends. Standard library only."""

import ctypes
import signal
import sys

PR_SET_PDEATHSIG = 1


def ends_with_parent() -> None:
    """For ``preexec_fn``. Only Linux knows it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
