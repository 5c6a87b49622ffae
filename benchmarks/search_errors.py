"""Search errors: references that a model itself prefers to what its search found, and an account of every hypothesis.

    python -m benchmarks.search_errors RUN --data DIR/test_2016_flickr --sentences 1000 --beams 1 2 5

A search error is a pair whose reference has a higher score than the best hypothesis of the search, by more than
``MARGIN``; the others that differ are model errors (Stahlberg & Byrne 2019, arXiv:1908.10090). The trees of the
first ``--trees`` sentences must account for each hypothesis. ``--against 16`` compares with what a beam of 16 finds
instead, where references are too good to be missed. ``--name`` adds the figures to
``benchmarks/results/search_errors.json``; the addresses of ``glassformer explore`` of some examples are printed.
"""

import argparse
import json
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.machine import describe
from glassformer.data.readers import read_lines
from glassformer.predict.translator import Translator
from glassformer.web.explorer.panels.beam_tree import ENDED, OPEN, PRUNED, BeamSearch, search_of
from glassformer.web.explorer.selection import Selection

RESULTS = Path(__file__).parent / "results" / "search_errors.json"
MARGIN = 1e-3
"""Difference of two scores, in nats, below which rounding could decide."""


class Pair(NamedTuple):
    """A sentence, its reference, what the search found, and by how much the model prefers the reference."""

    source: str
    reference: str
    found: str
    difference: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--data", required=True, help="prefix of the two files")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument(
        "--against", type=int, default=0, help="compare with the result of this beam size instead of the reference"
    )
    parser.add_argument("--trees", type=int, default=50)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 2, 5])
    parser.add_argument("--examples", type=int, default=5)
    parser.add_argument("--name", help="name of the figures in the results")
    arguments = parser.parse_args()
    translator = Translator.load(arguments.run)
    languages = languages_of(arguments.run)
    sources, references = (
        list(read_lines(f"{arguments.data}.{language}"))[: arguments.sentences] for language in languages
    )
    if arguments.against:
        references = translator.translate(sources, beam_size=arguments.against)
    measured: dict[str, Any] = {"sentences": len(sources), "beams": {}}
    for beam_size in arguments.beams:
        pairs = compare(translator, sources, references, beam_size)
        errors = sorted((one for one in pairs if one.difference > MARGIN), key=lambda one: len(one.source))
        figures = {
            "equal to the reference": sum(one.found == one.reference for one in pairs),
            "search errors": len(errors),
            **account(translator, sources[: arguments.trees], beam_size),
        }
        measured["beams"][str(beam_size)] = figures
        print(f"beam {beam_size}: {json.dumps(figures)}", flush=True)
        for one in errors[: arguments.examples]:
            address = Selection(source=one.source, target=one.reference, mode="forced", panel="beam", beam=beam_size)
            print(f"  {one.source} → {one.found} | {one.reference}: {one.difference:+.4f}\n  {address.address}")
    if arguments.name:
        known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"runs": {}}
        known |= {"command": "python -m benchmarks.search_errors RUN --data PREFIX", "machine": describe()}
        known["runs"][arguments.name] = measured
        RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def languages_of(run: str) -> tuple[str, str]:
    """Suffixes of the two files, as in the configuration of the run."""
    data = tomllib.loads((Path(run) / "config.toml").read_text(encoding="utf-8"))["data"]
    return data["source"], data["target"]


@torch.inference_mode()
def compare(translator: Translator, sources: Sequence[str], references: Sequence[str], beam_size: int) -> list[Pair]:
    """Every sentence with the scores of its reference and of the best hypothesis, under one length penalty."""
    found = translator.hypotheses(sources, beam_size=beam_size, n_best=1)
    scores = translator.score(sources, references)
    return [
        Pair(source, reference, best.text, own.score - best.hypothesis.score)
        for source, reference, [best], own in zip(sources, references, found, scores, strict=True)
    ]


def account(translator: Translator, sources: Sequence[str], beam_size: int) -> dict[str, int]:
    """Hypotheses of the trees of ``sources`` by outcome; they add up to all that were considered."""
    counts: Counter[str] = Counter()
    for source in sources:
        search = search_of(translator, source, beam_size)
        check(search)
        counts.update(node.state for node in search.nodes)
        counts["considered"] += len(search.nodes)
    left = sum(counts[state] for state in (ENDED, PRUNED, OPEN))
    assert left + counts["continues"] == counts["considered"]
    return dict(counts)


def check(search: BeamSearch) -> None:
    """Only hypotheses that continue have successors, and a step has at most a beam of them."""
    for node in search.nodes:
        assert node.parent == -1 or search.nodes[node.parent].state == "continues"
    alive = Counter(node.step for node in search.nodes if node.state in ("continues", OPEN))
    assert max(alive.values(), default=0) <= search.beam_size


if __name__ == "__main__":
    main()
