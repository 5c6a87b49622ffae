"""Process settings of the command: malloc, pages of libraries, threads and how they wait, garbage, Ctrl-C, the end.

Only the command sets them, since it owns the process; the library sets none. ``cli`` imports this module first, so
its own imports are inside the functions.
"""

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_MADV_DONTNEED, _MADV_HUGEPAGE = 4, 14
_LARGE_PAGE_HEAP = (1 << 30) - (1 << 20)
"""Bytes of the heap in large pages. The address space is taken at once, memory only as it is used."""
_PR_SET_PDEATHSIG = 1
LAUNCHER = "GLASSFORMER_LAUNCHER"
"""Environment variable with the process id of the launcher of several processes."""
_CODE_IN_MEMORY = r"(?m)^([0-9a-f]+-[0-9a-f]+) r-xp \S+ \S+ +[1-9].*((?:\n[A-Z].*)*)"
"""Mapping of a file's code in ``/proc/self/smaps``: its addresses, and its lines of sizes."""
_CHANGED = r"(?m)^(Anonymous|Swap|Private_Hugetlb|Shared_Hugetlb): +[1-9]"
"""Code that was written to in memory, as by a debugger, even if swapped out since; or huge pages."""

_owned: list[bool] = []
_exit_code: list[int] = []
_loading: list[bool] = []
_raised: list[bool] = []
"""Not empty once Ctrl-C has raised KeyboardInterrupt, which code between here and ``main`` may swallow."""


# A last garbage collection of some 300,000 imported objects would take 0.2 to 0.4 s after importing torch.
atexit.register(gc.freeze)


def own_process() -> None:
    """Let this process serve one command: it may import PyTorch in part, and end without freeing its objects.

    Freeing each of them would take 0.15 s. If functions at exit were registered before this module was imported, such
    as those of a tracing tool, the process ends as usual: they would come after the end.
    """
    _owned.append(True)
    if getattr(atexit, "_ncallbacks", int)() == 1:  # gc.freeze; other Pythons may have no such function
        atexit.register(_end_owned_process)


def owns_process() -> bool:
    """True after ``own_process``."""
    return bool(_owned)


def end_with_code(code: int) -> None:
    """Set the exit code of an owned process; the next thing to do is ``sys.exit(code)``."""
    _exit_code[:] = [code]


def _end_owned_process() -> None:
    """The last function at exit; after an uncaught exception the process ends as usual."""
    if _exit_code:
        end_process(_exit_code[0])


def end_process(code: int) -> None:
    """End this process without Python's shut-down: it frees each object, and threads of PyTorch may abort in it."""
    import ctypes

    with suppress(OSError, ValueError, AttributeError):  # a reader that has gone, or no such stream
        sys.stdout.flush()
        sys.stderr.flush()
        if os.name == "posix":
            ctypes.CDLL(None).fflush(None)  # output of C libraries
    os._exit(code)


def shorten_waiting() -> None:
    """Let PyTorch's threads spin for about 40 µs when they wait, and then sleep. Before PyTorch is imported.

    GNU's OpenMP spins for some milliseconds by default. That time is lost to the threads of the kernels and to other
    processes: training beside one busy process is a fifth faster, and alone 4 %. An environment that says how to wait
    is left as it is.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "2000"


def silence_torch_warnings() -> None:
    """Keep PyTorch's C++ code from printing a stack trace when another process ends. Before PyTorch is imported.

    The error of this process says which one ended. An environment that sets the level of these messages stays as it is.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def keep_freed_memory() -> bool:
    """Set glibc's malloc to keep freed blocks for the next step; return False for another C library.

    By default each large tensor is mapped afresh, and its pages are faulted in. A training step frees and allocates
    nearly the same sizes again. The cost is memory: batches differ in shape, so the heap fragments and the resident
    size grows (to 3.6 GiB in half an hour at 7.6 M parameters).
    """
    import ctypes

    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = {_M_MMAP_THRESHOLD: 1 << 30, _M_TRIM_THRESHOLD: (1 << 31) - 1, _M_TOP_PAD: 64 << 20}
    return all(mallopt(name, value) for name, value in settings.items())


def use_large_pages() -> bool:
    """Put the next gibibyte of the heap into pages of 2 MB, after ``keep_freed_memory``; return True if Linux agrees.

    A step reads and writes some hundred megabytes, and in a virtual machine each look-up of a small page takes several
    reads: it is 5 % faster on a Xeon, 1 % on Zen 4. ``GLIBC_TUNABLES=glibc.malloc.hugetlb=1`` does the same, but only
    from the start of a process.
    """
    import ctypes
    import mmap

    # malloc would write to all of it, or Linux count all of it as used.
    if "MALLOC_PERTURB_" in os.environ or _counts_address_space():
        return False
    libc, address, size = ctypes.CDLL(None), ctypes.c_void_p, ctypes.c_size_t
    libc.sbrk.restype = libc.malloc.restype = address
    before = libc.sbrk(ctypes.c_ssize_t(0))
    libc.free(address(libc.malloc(size(_LARGE_PAGE_HEAP))))
    after = libc.sbrk(ctypes.c_ssize_t(0))
    start = -(-before // mmap.PAGESIZE) * mmap.PAGESIZE
    return after > start and libc.madvise(address(start), size(after - start), _MADV_HUGEPAGE) == 0


def _counts_address_space() -> bool:
    """True if Linux limits the address space that all processes take, used or not."""
    try:
        with open("/proc/sys/vm/overcommit_memory", encoding="ascii") as setting:
            return setting.read().strip() == "2"
    except OSError:
        return False


def prepare_training(threads: int) -> None:
    """Set malloc, and PyTorch's ``threads`` (``train.threads``; 0 leaves the number as it is), for a training.

    Raises:
        ConfigError: This process has fewer cores than ``threads``.
    """
    import torch

    from glassformer.train.host_process import check_cores

    check_cores(threads)
    if keep_freed_memory():
        use_large_pages()
    # Also if the number does not change: setting it fixes how MKL cuts its sums, and a resumed run must agree.
    torch.set_num_threads(threads or torch.get_num_threads())


def end_with_launcher() -> None:
    """Let the system end this process when the one that started it ends. Linux only.

    A launcher passes signals on to its processes, except SIGKILL, which it does not see. Checkpoints stay whole, as
    after any SIGKILL. ``GLASSFORMER_LAUNCHER`` is the process that must still be the parent.
    """
    import ctypes

    if sys.platform != "linux":
        return
    parent = int(os.environ.get(LAUNCHER, os.getppid()))
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:  # it ended before
        os._exit(128 + signal.SIGKILL)


def release_libraries() -> None:
    """Return the pages of libraries' code to the system; those that are used again come back from the file cache.

    Importing PyTorch and loading a model map 60 to 150 MiB of library code, depending on the file cache; translating
    uses a third of it. Releasing takes less than 10 ms. Linux only, and only code that was not written to.
    """
    import ctypes
    import re

    if sys.platform != "linux":
        return
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if advise is None:
        return
    try:
        with open("/proc/self/smaps", encoding="utf-8", errors="replace") as file:
            mappings = file.read()
    except OSError:
        return
    for span, sizes in re.findall(_CODE_IN_MEMORY, mappings):
        if "\nAnonymous:" in sizes and not re.search(_CHANGED, sizes):
            start, stop = (int(number, 16) for number in span.split("-"))
            advise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _MADV_DONTNEED)


@contextmanager
def loading() -> Iterator[None]:
    """Import or load in this block: without garbage collection, and Ctrl-C waits for its end.

    At its end the objects are exempted from later collections, and the libraries' code is released.
    """
    collecting = gc.isenabled()
    gc.disable()
    _loading.append(True)
    try:
        yield
        release_libraries()
    finally:
        _loading.pop()
        gc.freeze()
        if collecting:
            gc.enable()


def interrupt_where_it_can_be() -> None:
    """From now on Ctrl-C waits for the end of an import, or of ``loading``.

    Libraries mishandle a KeyboardInterrupt during import: some report it as an error, abort or swallow it. Only the
    main thread can set signal handlers; in another thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        return
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _end):
        signal.signal(signal.SIGALRM, _interrupt)
        signal.signal(signal.SIGINT, _interrupt)


def end_at_interrupt() -> bool:
    """Let Ctrl-C end the process at once from now on; return True if one was pressed and is not acted on yet.

    An exception in a destructor or in a callback of C code is printed and lost: Ctrl-C there ends the command here.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, _end)
    pressed = _ask_again_in(0) or bool(_raised)
    _raised.clear()
    return pressed


def _end(number: int, frame: FrameType | None) -> None:
    """Exit at once: while Python shuts down, KeyboardInterrupt would be printed as an uncaught exception."""
    os._exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _loading or _importing(frame):
        _ask_again_in(0.05)
        return
    _ask_again_in(0)  # two presses raise one KeyboardInterrupt
    now = signal.getsignal(signal.SIGINT)
    if now is _interrupt or not callable(now):
        _raised.append(True)
        raise KeyboardInterrupt
    now(signal.SIGINT, frame)  # a handler installed since Ctrl-C was pressed


def _ask_again_in(seconds: float) -> bool:
    """Set the timer of the next attempt, 0 for none; return True if one was pending."""
    return hasattr(signal, "setitimer") and signal.setitimer(signal.ITIMER_REAL, seconds)[0] > 0


def _importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None
