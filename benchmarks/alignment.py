"""The demo with and without guided alignment: how well it translates, and how often its heads align wrongly.

    python -m benchmarks.alignment --seeds 1 2 3

The alignments of the demo's corpus are known exactly. Each run is added to ``benchmarks/results/alignment.json``.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from glassformer.cli.demo import demo_config, write_corpus
from glassformer.cli.process import prepare_training
from glassformer.metrics import bleu, exact_match
from glassformer.predict.alignment import HeadLinks, links_of_heads
from glassformer.predict.translator import Translator
from glassformer.storage.run_folder import RunFolder
from glassformer.train import train

RESULTS = Path(__file__).parent / "results" / "alignment.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    for seed in parser.parse_args().seeds:
        for guided in (False, True):
            measured = measure(seed, guided)
            print(json.dumps(measured), flush=True)
            known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"runs": {}}
            known |= {"command": "python -m benchmarks.alignment", "machine": describe()}
            known["runs"][f"seed {seed}, {'guided' if guided else 'plain'}"] = measured
            RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def measure(seed: int, guided: bool) -> dict[str, Any]:
    """One demo, and the lowest error rate of a single head in each of the two readings."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run")
        held_out = write_corpus(run.path / "corpus", seed)
        config = demo_config(run.path / "corpus", seed)
        if not guided:
            config = config.model_copy(update={"data": config.data.model_copy(update={"alignments": []})})
        prepare_training(config.train.threads)
        began = time.perf_counter()
        for _ in train(config, run):
            pass
        seconds = time.perf_counter() - began
        translator = Translator.load(run.path)
    sources, references = [pair.source for pair in held_out], [pair.target for pair in held_out]
    found = translator.translate(sources)
    heads = [one for one in links_of_heads(translator, sources, references) if one.head is not None]
    gold = [frozenset(pair.alignment) for pair in held_out]

    def best(shifted: bool) -> dict[str, Any]:
        def rate(one: HeadLinks) -> float:
            return one.error_rate(gold, shifted)

        head = min(heads, key=rate)
        return {"head": head.name, "AER": round(100 * rate(head), 2)}

    return {
        "BLEU": round(bleu(found, references, tokenize="none").score, 2),
        "exactly right": round(100 * exact_match(found, references), 1),
        "naive": best(False),
        "shifted": best(True),
        "seconds": round(seconds),
    }


if __name__ == "__main__":
    main()
