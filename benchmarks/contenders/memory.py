"""How much memory a program took. Standard library only."""

from pathlib import Path


def peak_mib(process: int | str = "self") -> float:
    """Of a program alone, this one or another: what ``getrusage`` tells begins with the size of who started it."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))
