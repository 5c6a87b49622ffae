"""Compare two states of the package: training, resuming, and the output of every command.

    python -m benchmarks.unchanged make FOLDER      with the state before
    python -m benchmarks.unchanged compare FOLDER   with the state after

``make`` trains small models of every task, to the end, to the middle, and from there on, and stores what the commands
say of them. ``compare`` trains again, resumes the runs of the middle, and runs the commands on the runs of the state
before. It lists every difference: of weights and training states bit for bit, of metrics, and of outputs. Both use the
command line alone. Compare on one kind of processor: bits depend on its instructions.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import tomli_w

CLOCK = {"seconds", "validation_seconds", "source_tokens_per_second", "target_tokens_per_second", "crc32"}
STEPS, MIDDLE = 24, 10
TABLE = "series.csv"
ANIMALS, VERBS = ["dog", "cat", "bird", "horse"], ["runs", "sleeps", "sings", "waits"]
SENTENCES = [f"the {animal} {verb}." for animal in ANIMALS for verb in VERBS]
SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 32}
BERT = {"kind": "bert", **SIZES, "n_layers": 1, "dropout": 0.1, "max_length": 32}
GPT = {"kind": "gpt", **SIZES, "n_layers": 2, "dropout": 0.1, "max_length": 24}
VIT = {"kind": "vit", "patch_size": 4, **SIZES, "n_layers": 1, "dropout": 0.1}
SERIES = {"kind": "series", **SIZES, "n_layers": 1, "patch_length": 6, "patch_stride": 3, "dropout": 0.1}
TRANSLATION = {**SIZES, "n_encoder_layers": 1, "n_decoder_layers": 2, "dropout": 0.1}
RECURRENT = {"kind": "recurrent", "d_model": 16, "n_encoder_layers": 1, "n_decoder_layers": 1, "dropout": 0.1}
PAIRS = {"source": "en", "target": "fr", "train": ["pairs"], "validation": ["pairs"], "batch_tokens": 200}
ALL = {
    "text": {"vocab_size": 300, "bpe_dropout": 0.1},
    "optimizer": {"schedule": "cosine", "kind": "adamw", "weight_decay": 0.1, "clip_norm": 1.0},
    "train": {"accumulate": 2, "ema": 0.9, "dropout_warmup_steps": 8},
    "validation": {"metric": "loss"},
}
"""Settings that have a state of their own."""
WIDE = {**TRANSLATION, "d_model": 64, "n_heads": 1, "d_ff": 64}
"""A width that the kernels train as a whole."""


def translation(model: dict[str, Any], **sections: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"model": model, "text": {"vocab_size": 300}, "data": PAIRS}
    return values | {"decoding": {"beam_size": 2, "max_extra": 5}} | sections


def encoder(task: str, train: str, **data: Any) -> dict[str, Any]:
    model = BERT if task == "masked" else BERT | {"masked_tokens": False}
    data = {"train": [train], "validation": [train], "max_length": 32, "batch_tokens": 128} | data
    return {"task": task, "model": model, "text": {"kind": "char"}, "data": data}


CASES: dict[str, dict[str, Any]] = {
    "translation": translation(TRANSLATION),
    "translation_all": translation(WIDE, **ALL),
    "translation_pre_norm": translation(
        TRANSLATION | {"norm_order": "pre", "positions": "learned", "activation": "gelu"}
    ),
    "recurrent": translation(RECURRENT),
    "language": {
        "task": "language",
        "model": GPT,
        "text": {"kind": "char"},
        "data": {"train": ["text.txt"], "validation_share": 0.1, "context": 16, "batch_size": 8},
    },
    "masked": encoder("masked", "text.txt", documents="line", batch_tokens=256) | {"text": {"vocab_size": 60}},
    "classification": encoder("classification", "labels.tsv") | {"text": {"kind": "word", "min_frequency": 1}},
    "tagging": encoder("tagging", "tags.conll"),
    "images": {
        "task": "images",
        "model": VIT,
        "data": {"train": ["images.npz"], "validation": ["images.npz"], "batch_size": 8},
    },
    "forecasting": {
        "task": "forecasting",
        "model": SERIES,
        "data": {"file": TABLE, "context": 24, "horizon": 6, "split": [0.6, 0.2, 0.2], "batch_size": 8},
    },
}
PAIR = ["pairs.en", "pairs.fr"]
TRANSLATORS: list[list[str]] = [
    ["translate", "{run}", "pairs.en"],
    ["translate", "{run}", "pairs.en", "--json", "--n-best", "2"],
    ["translate", "{run}", "pairs.en", "--sample", "--seed", "3"],
    ["score", "{run}", *PAIR, "--json"],
    ["evaluate", "{run}", *PAIR, "--json"],
    ["tokenize", "{run}", "pairs.en", "--json"],
]
ATTENTIVE: list[list[str]] = [
    ["translate", "{run}", "pairs.en", "--alignments"],
    ["align", "{run}", *PAIR],
    ["align", "{run}", *PAIR, "--layer", "0", "--head", "0", "--shifted"],
    ["figure", "{run}", SENTENCES[1], "--view", "decoder.1.cross_attention", "-o", "figure.svg"],
    ["figure", "{run}", SENTENCES[1], "--view", "logit_lens", "-o", "figure.csv"],
]
COMMANDS: dict[str, list[list[str]]] = {
    "translation": [*TRANSLATORS, *ATTENTIVE],
    "recurrent": TRANSLATORS,
    "language": [
        ["generate", "{run}", "the d", "--max-length", "12", "--seed", "1"],
        ["generate", "{run}", "the d", "--max-length", "12", "--beam-size", "2", "--n-best", "2", "--json"],
        ["evaluate", "{run}", "text.txt", "--json"],
        ["figure", "{run}", "the dog", "--view", "decoder.0.self_attention", "-o", "figure.svg"],
    ],
    "masked": [
        ["fill", "{run}", "the [MASK] runs.", "--json"],
        ["embed", "{run}", "pairs.en"],
        ["evaluate", "{run}", "text.txt", "--json"],
    ],
    "classification": [
        ["classify", "{run}", SENTENCES[0], "--json"],
        ["evaluate", "{run}", "labels.tsv", "--json"],
    ],
    "tagging": [["tag", "{run}", "pairs.en", "--json"], ["evaluate", "{run}", "tags.conll", "--json"]],
    "images": [["classify", "{run}", "image.png", "--json"], ["evaluate", "{run}", "images.npz", "--json"]],
    "forecasting": [["forecast", "{run}", TABLE], ["evaluate", "{run}", "--json"]],
}
EXAMPLES = {"images": "image.png", "forecasting": TABLE, "masked": "the [MASK] runs."}
"""Examples of walkthroughs, where they are not a plain sentence."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["make", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    options = parser.parse_args()
    folder = options.folder.resolve()
    os.environ["XDG_CACHE_HOME"], os.environ["OMP_NUM_THREADS"] = str(folder / "cache"), "1"
    if options.verb == "make":
        make(folder, options.cases)
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        different = [line for lines in pool.map(partial(differences, folder), options.cases) for line in lines]
    print("\n".join(different) or f"{len(options.cases)} cases are equal")
    sys.exit(bool(different))


def make(folder: Path, cases: list[str]) -> None:
    folder.mkdir(parents=True)
    write_data(folder)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name in pool.map(partial(make_case, folder), cases):
            print(name, flush=True)


def make_case(folder: Path, name: str) -> str:
    (folder / f"{name}.toml").write_text(tomli_w.dumps(settings(name)), encoding="utf-8")
    train(folder, name, f"{name}.middle", f"train.max_steps={MIDDLE}")
    train(folder, name, name)
    shutil.copytree(folder / f"{name}.middle", folder / f"{name}.resumed")
    train(folder, name, f"{name}.resumed", "--resume")
    for i, command in enumerate(commands(name)):
        (folder / f"{name}.{i}.out").write_bytes(output_of(folder, name, command))
    return name


def differences(folder: Path, name: str) -> list[str]:
    return list(_differences(folder, name, f"{name}.new"))


def _differences(folder: Path, name: str, new: str) -> Iterator[str]:
    shutil.rmtree(folder / new, ignore_errors=True)
    train(folder, name, f"{new}/again")
    shutil.copytree(folder / f"{name}.middle", folder / new / "resumed")
    train(folder, name, f"{new}/resumed", "--resume")
    for run, how in ((name, "again"), (f"{name}.resumed", "resumed")):
        before, now = state_of(folder / run), state_of(folder / new / how)
        yield from (f"{name}: {how}: {key}" for key in sorted(before | now) if before.get(key) != now.get(key))
    for i, command in enumerate(commands(name)):
        if (folder / f"{name}.{i}.out").read_bytes() != output_of(folder, name, command):
            yield f"{name}: {' '.join(command)}"


def settings(name: str) -> dict[str, Any]:
    """The settings of a case; its own, in the sections that it has, come before those of all."""
    always: dict[str, Any] = {
        "optimizer": {"kind": "adamw", "schedule": "constant", "learning_rate": 0.01, "warmup_steps": 2},
        "train": {"max_steps": STEPS, "save_every": 5, "log_every": 4, "threads": 1},
        "validation": {"every": 5},
    }
    values = CASES[name]
    return values | {section: always[section] | values.get(section, {}) for section in always}


def commands(name: str) -> list[list[str]]:
    example = EXAMPLES.get(name, SENTENCES[0])
    own = COMMANDS.get(name, COMMANDS["translation"])
    return [*own, ["walkthrough", "{run}", example], ["info", "{run}", "--json"]]


def train(folder: Path, name: str, run: str, *arguments: str) -> None:
    (folder / run).parent.mkdir(exist_ok=True)
    done = run_command(folder, ["train", f"{name}.toml", "--run", run, *arguments])
    if done.returncode:
        raise RuntimeError(f"{name}, {run}: {done.stderr.decode()}")


def output_of(folder: Path, name: str, command: list[str]) -> bytes:
    """What a command prints, or writes into a file, without times; an error is its message."""
    arguments = [part.replace("{run}", name) for part in command]
    written = None
    if "-o" in arguments:  # a file for each case, since cases run side by side
        written = arguments[arguments.index("-o") + 1] = f"{name}.{arguments[-1]}"
    done = run_command(folder, arguments)
    if written is not None and not done.returncode:
        return (folder / written).read_bytes()
    return re.sub(rb'(\d+(\.\d+)? m?s\b|"seconds": [\d.]+)', b"TIME", done.stderr if done.returncode else done.stdout)


def run_command(folder: Path, arguments: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "glassformer", *arguments], cwd=folder, capture_output=True, check=False
    )


def state_of(run: Path) -> dict[str, Any]:
    """Fingerprints of all tensors of a run, and its metrics without what depends on the clock."""
    tensors = sorted(path for path in run.rglob("*.safetensors") if not path.is_symlink())
    state: dict[str, Any] = {str(path.relative_to(run)): sha256(path.read_bytes()).hexdigest() for path in tensors}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = [{key: value for key, value in line.items() if key not in CLOCK} for line in lines]
    return state | {"metrics": [line for line in kept if line["event"] != "started"]}


def write_data(folder: Path) -> None:
    import numpy as np
    from PIL import Image

    write_lines(folder / "text.txt", SENTENCES * 6)
    rows = [f"{text}\t{'loud' if 'sing' in text else 'quiet'}" for text in SENTENCES]
    write_lines(folder / "labels.tsv", ["text\tlabel", *rows])
    words = [text[:-1].split() for text in SENTENCES]
    write_lines(folder / "tags.conll", [f"{a} DET\n{b} NOUN\n{c} VERB\n" for a, b, c in words])
    write_lines(folder / "pairs.en", SENTENCES * 3)
    write_lines(folder / "pairs.fr", [text[:-1][::-1] + " ." for text in SENTENCES * 3])
    random, labels = np.random.default_rng(0), np.arange(24) % 2
    pixels = random.integers(0, 100, (24, 8, 8)).astype(np.uint8) + (120 * labels[:, None, None]).astype(np.uint8)
    np.savez(folder / "images.npz", images=pixels, labels=np.array(["dark", "light"])[labels])
    Image.fromarray(pixels[0]).save(folder / "image.png")
    hours = np.arange(120)
    dates = np.datetime64("2024-02-27T00") + hours
    table = zip(dates, 10 + 3 * np.sin(hours * np.pi / 6), 200 - 50 * np.cos(hours * np.pi / 6), strict=True)
    lines = [f"{str(date).replace('T', ' ')}:00,{a:.4f},{b:.4f}" for date, a, b in table]
    write_lines(folder / TABLE, ["date,low,high", *lines])


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
