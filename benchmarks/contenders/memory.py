"""How much memory a program took. Standard library only."""

from pathlib import Path


def peak_mib(process: int | str = "self") -> float:
    """Of a program alone, this one or another: what ``getrusage`` tells begins with the size of who started it."""
    return _told("VmHWM", process)


def own_peak_mib() -> float:
    """This program's without the pages of files, which are its libraries': others share them, and the system drops them
    when it wants. How many are counted depends on what its cache holds: more of a library just installed than of one
    long there.
    """
    return _told("VmHWM") - _told("RssFile")


def _told(what: str, process: int | str = "self") -> float:
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{what}:"))
