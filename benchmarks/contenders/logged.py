"""Contenders that are programs of their own: text in their segmentation goes in, and their log tells how fast they are.

Standard library and numpy only.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ending import ends_with_parent
from memory import peak_mib
from timing import FIRST_WORD, read

WARM_UP_LINES = 2


class Text(NamedTuple):
    """Tokens with the ends of sentences and without padding."""

    source_of_target: float
    """Source tokens for each target token."""
    source_of_batch: int


def write_text(batches: str, folder: Path) -> Text:
    """Write ``source`` and ``target``, a word ``wN`` for each token N but the special ones."""
    pairs = read(batches)
    counts = [0, 0]
    for side, name in enumerate(("source", "target")):
        with (folder / name).open("w", encoding="ascii") as file:
            for pair in pairs:
                for row in pair[side].tolist():
                    words = [f"w{token}" for token in row if token >= FIRST_WORD]
                    counts[side] += len(words) + 1
                    file.write(" ".join(words) + "\n")
    return Text(counts[0] / counts[1], counts[0] // len(pairs))


def measure(
    command: list[str], pattern: str, tokens: Callable[[re.Match[str]], tuple[float, float, float]], seconds: float
) -> None:
    """Run ``command`` until the lines of its log that ``pattern`` finds, but for the first two, tell of ``seconds``.

    ``tokens`` reads source tokens, target tokens and seconds off such a line. The result is printed as JSON.
    """
    told, lines, found, peak = [0.0, 0.0, 0.0], [], 0, 0.0
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, preexec_fn=ends_with_parent, **pipes) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if not (match := re.search(pattern, line)):
                continue
            found += 1
            if found > WARM_UP_LINES:
                told = [total + more for total, more in zip(told, tokens(match), strict=True)]
            if told[2] >= seconds:
                peak = peak_mib(process.pid)
                break
        process.kill()
    if not peak:
        sys.exit("".join(lines[-20:]))
    reached = {"source": told[0], "target": told[1], "seconds": told[2], "lines": found - WARM_UP_LINES}
    print(json.dumps({**reached, "peak_mib": peak}))
