"""Predict a corpus: killed at random moments and continued, and the memory for short and long corpora.

    python -m benchmarks.corpus [--kills 20] [--lines 10000 200000] [--seed 1]

A small translator and a small classifier are trained. The first translates a corpus without interruption, and again
with ``kills`` SIGKILLs at random moments, each followed by the same command. Then both predict corpora of ``lines``
lines, and the peak of the resident memory of each process is compared. Every other kill comes while a window is being
written. Exits with 1 unless the bytes are equal.
"""

import argparse
import gzip
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomli_w

from benchmarks.contenders.memory import peak_mib
from benchmarks.kill_resume import train, write_config
from benchmarks.machine import describe
from glassformer.demo_corpus.grammar import sample_corpus

HERE = Path(__file__).parent
OPTIONS = {"translate": ["--beam-size", "1", "--json"], "classify": []}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--killed-lines", type=int, default=120_000, help="lines of the corpus that is killed")
    parser.add_argument("--lines", type=int, nargs="+", default=[10_000, 200_000])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=HERE / "results" / "corpus.json")
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": describe(), "seed": options.seed}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = {"translate": translator(folder, options.seed), "classify": classifier(folder, options.seed)}
        draw = random.Random(options.seed)
        report["killed"] = killed(runs["translate"], folder, options.kills, options.killed_lines, draw)
        print(json.dumps(report["killed"]), flush=True)
        report["memory"] = []
        for verb, run in runs.items():
            for lines in options.lines:
                report["memory"].append(memory(verb, run, folder, lines, options.seed))
                print(json.dumps(report["memory"][-1]), flush=True)
                options.results.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    sys.exit(0 if report["killed"]["equal"] else 1)


def translator(folder: Path, seed: int) -> Path:
    config = write_config(folder, seed, 300)
    if train(config, folder / "translator").wait():
        sys.exit((folder / "translator.log").read_text(encoding="utf-8"))
    return folder / "translator"


def classifier(folder: Path, seed: int) -> Path:
    """Train a classifier of sentences of the grammar, by their number of words."""
    texts = [pair.source for pair in sample_corpus(1_000, seed)]
    rows = [f"{text}\t{'long' if len(text.split()) > 6 else 'short'}" for text in texts]
    (folder / "train.tsv").write_text("\n".join(["text\tlabel", *rows, ""]), encoding="utf-8")
    values = {
        "task": "classification",
        "model": {"kind": "bert", "d_model": 32, "n_heads": 2, "d_ff": 64, "n_layers": 1, "masked_tokens": False},
        "text": {"kind": "word"},
        "data": {"train": [str(folder / "train.tsv")], "validation": [str(folder / "train.tsv")]},
        "train": {"max_steps": 20, "threads": 1},
    }
    (folder / "classifier.toml").write_text(tomli_w.dumps(values), encoding="utf-8")
    if train(folder / "classifier.toml", folder / "classifier").wait():
        sys.exit((folder / "classifier.log").read_text(encoding="utf-8"))
    return folder / "classifier"


def write_corpus(path: Path, lines: int, seed: int) -> None:
    """Write sentences of the grammar, compressed; each 1,000th line is empty."""
    sentences = [pair.source for pair in sample_corpus(min(lines, 20_000), seed)]
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
        for number in range(lines):
            file.write(f"{sentences[number % len(sentences)] if number % 1000 else ''}\n")


def predict(verb: str, run: Path, source: Path, output: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "glassformer", verb, str(run), str(source), "-o", str(output), *OPTIONS[verb]]
    with output.with_name(f"{output.name}.log").open("ab") as log:
        return subprocess.Popen(command, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"})


def killed(run: Path, folder: Path, kills: int, lines: int, draw: random.Random) -> dict[str, Any]:
    """Translate a corpus without interruption, and with ``kills`` interruptions before its end."""
    source, whole, output = folder / "killed.gz", folder / "whole.gz", folder / "continued.gz"
    write_corpus(source, lines, 1)
    began = time.perf_counter()
    if predict("translate", run, source, whole).wait():
        sys.exit((folder / "whole.gz.log").read_text(encoding="utf-8"))
    seconds = time.perf_counter() - began
    account = (folder / "whole.gz.log").read_text(encoding="utf-8").splitlines()[-1].partition("written: ")[2]
    rate = float(re.findall(r"([\d,]+) lines/s", account)[0].replace(",", ""))
    moments = []
    for number in range(kills):
        before = complete_lines(output)
        # at most this share of what is left, so that the job is not complete before the last kill
        goal = before + draw.random() * 2 * (lines - before) / (kills - number + 1)
        process = predict("translate", run, source, output)
        while process.poll() is None and complete_lines(output) < min(goal, lines - 3 * 2048):
            time.sleep(0.005)
        if number % 2:
            while process.poll() is None and not torn_bytes(output):
                pass
        else:
            time.sleep(draw.random() * 2048 / rate)  # within a window
        if process.poll() is not None:
            sys.exit(f"the translation ended with {process.returncode} before kill {number + 1}; give more lines")
        process.send_signal(signal.SIGKILL)
        process.wait()
        moments.append({"complete_lines": complete_lines(output), "torn_bytes": torn_bytes(output)})
    if predict("translate", run, source, output).wait():
        sys.exit((folder / "continued.gz.log").read_text(encoding="utf-8"))
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (whole, output)]
    return {
        "equal": digests[0] == digests[1],
        "sha256": digests,
        "lines": lines,
        "bytes": whole.stat().st_size,
        "uninterrupted_seconds": round(seconds, 1),
        "account": account,
        "kills": moments,
    }


def entries(output: Path) -> list[dict[str, Any]]:
    """Complete windows in the journal of ``output``."""
    try:
        lines = output.with_name(f"{output.name}.part.journal").read_bytes().splitlines(keepends=True)[1:]
    except FileNotFoundError:
        return []
    return [json.loads(line[9:]) for line in lines if line.endswith(b"\n")]


def complete_lines(output: Path) -> int:
    found = entries(output)
    return int(found[-1]["state"]["lines"]) if found else 0


def torn_bytes(output: Path) -> int:
    """Bytes of the part of ``output`` after its last complete window."""
    part = output.with_name(f"{output.name}.part")
    size = part.stat().st_size if part.exists() else 0  # before the journal, which may grow meanwhile
    found = entries(output)
    return max(0, size - (found[-1]["end"] if found else 0))


def memory(verb: str, run: Path, folder: Path, lines: int, seed: int) -> dict[str, Any]:
    """Peak resident memory and time of one command."""
    source, output = folder / f"{lines}.gz", folder / f"{verb}_{lines}.gz"
    write_corpus(source, lines, seed)
    if verb == "classify":  # an empty text has no class
        text = gzip.decompress(source.read_bytes()).replace(b"\n\n", b"\n").lstrip(b"\n")
        source.write_bytes(gzip.compress(text, 1))
    began = time.perf_counter()
    process = predict(verb, run, source, output)
    peak = 0.0
    while process.poll() is None:
        with suppress(OSError, StopIteration):  # it ends between two lines here
            peak = peak_mib(process.pid)
        time.sleep(0.01)
    if process.returncode:
        sys.exit(output.with_name(f"{output.name}.log").read_text(encoding="utf-8"))
    return {
        "verb": verb,
        "lines": lines,
        "input_bytes": source.stat().st_size,
        "peak_mib": round(peak, 1),
        "seconds": round(time.perf_counter() - began, 1),
    }


if __name__ == "__main__":
    main()
