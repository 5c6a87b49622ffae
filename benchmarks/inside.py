"""What seeing inside costs: nothing when nobody looks, and seconds for the whole walkthrough of a long sentence.

    python -m benchmarks.inside RUN [--sentence TEXT]

The share of idle taps is counted, not timed in a training step: a step makes so many calls, and each takes so long; a
difference of a tenth of a thousandth would drown in the noise of timing whole steps.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import glassformer
from benchmarks.machine import describe
from glassformer import taps
from glassformer.explain.report import report
from glassformer.explain.walkthrough.walkthrough import walkthrough
from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig

RESULTS = Path(__file__).parent / "results" / "inside.json"
SENTENCE = (
    "A man in a blue shirt is standing on a ladder cleaning a window while two women with red umbrellas watch him from "
    "the other side of the busy street ."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run or checkpoint folder")
    parser.add_argument("--sentence", default=SENTENCE)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    results = {"machine": describe(), "taps": idle_taps(), "walkthrough": whole(options)}
    print(json.dumps({name: results[name] for name in ("taps", "walkthrough")}, indent=1))
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def idle_taps(rows: int = 32, length: int = 64) -> dict[str, float]:
    """Of the small model: calls a forward pass makes, what they take, and the time of forward and backward."""
    sizes = {"vocab_size": 8000, "d_model": 256, "n_heads": 4, "d_ff": 1024}
    model = EncoderDecoder(EncoderDecoderConfig(**sizes, n_encoder_layers=3, n_decoder_layers=3))
    source, target = torch.randint(4, 8000, (2, rows, length)).unbind()
    with taps.record(model, keep="*.logits") as counted:
        model(source[:1], target[:1])
    calls = len(counted._seen)
    module, tensor = torch.nn.Identity(), torch.ones(1)
    each = seconds(lambda: [taps.tap(module, "x", tensor) for _ in range(10_000)]) / 10_000
    step = seconds(lambda: model(source, target).logsumexp(-1).sum().backward())
    return {"calls": calls, "seconds_each": each, "seconds_of_a_step": step, "share": calls * each / step}


def whole(options: argparse.Namespace) -> dict[str, float]:
    """From the loaded model to the finished report."""
    translator = glassformer.load(options.run)
    translator.translate([options.sentence])
    example = glassformer.examine(translator, options.sentence)
    return {
        "source_tokens": len(example.source_ids),
        "examine": seconds(lambda: glassformer.examine(translator, options.sentence), options.repeats),
        "twelve_steps": seconds(lambda: walkthrough(example), options.repeats),
        "report": seconds(lambda: report(example), options.repeats),
        "report_bytes": len(report(example).encode()),
    }


def seconds(work: Callable[[], object], repeats: int = 7) -> float:
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


if __name__ == "__main__":
    main()
