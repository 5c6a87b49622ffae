"""Decoding speed beside peers: the same weights, sentences and beam, alternating in one run.

python -m benchmarks.decoding RUN --test ../shared/data/multi30k/raw/test_2016_flickr
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.contenders.ending import ends_with_parent
from benchmarks.machine import describe, device
from benchmarks.peers import PeerError, python_of
from glassformer.data import read_lines
from glassformer.interop.to_ctranslate2 import export_ctranslate2
from glassformer.metrics import bleu
from glassformer.predict.translator import Translator
from glassformer.storage.run_folder import resolve

HERE = Path(__file__).parent
ON = device()
RESULTS = HERE / "results" / ("decoding.json" if ON == "cpu" else "decoding_gpu.json")
CONTENDERS = {
    "glassformer": ("glassformer_decoding.py", None),
    "CTranslate2": ("ctranslate2_decoding.py", "ctranslate2"),
    "Hugging Face generate": ("huggingface_decoding.py", "transformers"),
}
TURNS = [  # on a CPU
    ("glassformer", "float32"),
    ("CTranslate2", "float32"),
    ("Hugging Face generate", "float32"),
    ("glassformer", "int8"),
    ("CTranslate2", "int8"),
]
if ON != "cpu":
    TURNS = [(name, precision) for precision in ("float32", "bfloat16") for name in CONTENDERS]
MEMORY = "peak_mib", "own_mib"
TOKENS = 0 if ON == "cpu" else 16384
"""Source tokens of a batch, the same for all on a GPU; on a CPU each has what is best for it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run or checkpoint folder")
    parser.add_argument("--test", required=True, help="prefix of the test text: PREFIX.en and PREFIX.de")
    parser.add_argument("--beam-sizes", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--precisions", nargs="+", choices=sorted({turn[1] for turn in TURNS}), default=None)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    wanted = [
        (name, precision)
        for name, precision in TURNS
        if name in options.contenders and (options.precisions is None or precision in options.precisions)
    ]
    checkpoint = resolve(options.run)
    translator = Translator.load(checkpoint)
    texts, references = (list(read_lines(f"{options.test}.{side}")) for side in ("en", "de"))
    end = translator.symbols.end
    ids = [[*one, end] for one in translator.tokenizers.source.encode_batch(texts)]
    report: dict[str, Any] = {"machine": describe(ON), "sentences": len(texts), "results": []}
    report["left_out"] = left_out = {}
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "input.json"
        given.write_text(json.dumps({"texts": texts, "ids": ids}), encoding="utf-8")
        converted: dict[tuple[str, str], Path] = {}
        for name, precision in wanted:
            if name == "CTranslate2":
                stored = "int8" if precision == "int8" else "float32"  # it rounds to bfloat16 as it loads
                exported = export_ctranslate2(checkpoint, Path(folder) / precision, stored, texts[:4])
                converted[name, precision] = exported.path
        for beam_size in options.beam_sizes:
            turns: dict[tuple[str, str], list[dict[str, Any]]] = {turn: [] for turn in wanted}
            for _ in range(options.repeats):
                for name, precision in wanted:
                    if f"{name} {precision}" in left_out:
                        continue
                    model = converted.get((name, precision), checkpoint)
                    try:
                        turns[name, precision].append(turn(name, model, given, beam_size, precision))
                    except PeerError as error:
                        left_out[f"{name} {precision}"] = str(error)
                        print(f"{name} {precision} is left out: {error}", file=sys.stderr)
            for (name, precision), done in turns.items():
                if not done:
                    continue
                row = {"name": name, "precision": precision, "beam_size": beam_size, **summary(done)}
                decode, found = translator.tokenizers.target.decode, done[0]["found"]
                row["bleu"] = bleu_of([one if isinstance(one, str) else decode(one) for one in found], references)
                report["results"].append(row)
                print(json.dumps(row), flush=True)
            RESULTS.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def bleu_of(found: list[str], references: list[str]) -> float:
    return round(bleu(found, references).score, 2)


def turn(name: str, model: Path, given: Path, beam_size: int, precision: str) -> dict[str, Any]:
    script, environment = CONTENDERS[name]
    command = [python_of(environment), str(HERE / "contenders" / script), "--checkpoint", str(model)]
    command += ["--input", str(given), "--beam-size", str(beam_size), "--precision", precision, "--repeats", "2"]
    command += ["--device", ON, "--tokens", str(TOKENS)]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=ends_with_parent)
    if done.returncode:
        raise (SystemExit if name == "glassformer" else PeerError)(f"{name}: {done.stderr[-2000:]}")
    print(f"  {name} {precision} beam {beam_size}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return json.loads(done.stdout.splitlines()[-1])


def summary(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians, and the spread of the speeds."""
    speeds = [max(one["per_second"]) for one in turns]
    return {
        "per_second": round(statistics.median(speeds), 1),
        "slowest_fastest": [round(min(speeds), 1), round(max(speeds), 1)],
        "alone_ms": round(statistics.median(one["alone_ms"] for one in turns), 2),
        "each_alone_ms": [round(one["alone_ms"], 2) for one in turns],
        **{name: None if turns[0][name] is None else round(max(one[name] for one in turns)) for name in MEMORY},
    }


if __name__ == "__main__":
    main()
