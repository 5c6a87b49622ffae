"""The checkpoints of a run over one text: computed one after the other, a few in each request, and remembered."""

import time
import tomllib
import warnings
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from glassformer.alignment.links import Links, read_links
from glassformer.errors import GlassformerError
from glassformer.explain.analysis.learning import snapshot
from glassformer.web.explorer.models import load_explored
from glassformer.web.explorer.panels.head_picker import chosen_head
from glassformer.web.explorer.panels.training import TrainingPoint, TrainingView, training_of
from glassformer.web.explorer.runs import CheckpointChoice, ExploredRun, listed_checkpoints, version_of
from glassformer.web.explorer.session import Session
from glassformer.web.explorer.snapshots import LARGEST, StoredSnapshot
from glassformer.web.explorer.traced import TracedSelection

MOST_CHECKPOINTS = 24
"""Checkpoints of a series; of more, as many are chosen, evenly, with the first and the last."""
SECONDS = 0.4
"""Time of one request, so that others get their turn; at least one checkpoint is computed."""
GOLD_LINES = 20_000
"""Lines of the validation text in which a sentence with its alignment is looked for."""


def training_series(session: Session, traced: TracedSelection) -> TrainingView:
    """The panel with as many checkpoints as are known or can be computed now; it asks again for the others."""
    example, store, target = traced.example, session.snapshots, _target(session, traced)
    path, _ = chosen_head(example, traced.selection, {})
    checkpoints, skipped = _chosen(listed_checkpoints(traced.run)[0])
    points, missing, end = [], 0, 0.0
    for one in checkpoints:
        key = (*version_of(one.path), traced.selection.source, target, traced.explored.translates, path)
        known = store.find(key)
        if known is None and (not end or time.monotonic() < end):
            end = end or time.monotonic() + SECONDS
            known = _compute(session, traced, one.path, path, target)
            store.add(key, known)
        missing += known is None
        address = replace(traced.selection, checkpoint=one.name).address
        points.append(
            TrainingPoint(
                one.label.removesuffix(" · used"),
                address,
                one.path == traced.checkpoint,
                known.snapshot if known else None,
                known.problem if known else "",
            )
        )
    gold = gold_links(traced.run, example.source, target) if example.translated else None
    text = f"Every checkpoint reads “{example.source}”{f' and “{target}”' if example.translated else ''}."
    return training_of(example, traced.selection, path, points, gold, (missing, skipped), text)


def _target(session: Session, traced: TracedSelection) -> str:
    """The target that all checkpoints read: the forced one, else the translation of the one that commands use.

    Of a model that does not translate, what its input has besides the source: a second text, or a variable.
    """
    if not traced.explored.translates:
        return traced.selection.target
    selection = replace(traced.selection, checkpoint="", interventions=())
    if selection.mode == "forced":
        return traced.example.target
    return session.examine(selection, []).example.target


def _compute(session: Session, traced: TracedSelection, checkpoint: Path, path: str, target: str) -> StoredSnapshot:
    """The same text in another checkpoint, every head on. A checkpoint that cannot be read is a sentence."""
    example = traced.example
    size = example.trace[f"{path}.weights"].numel()
    if size > LARGEST:
        return StoredSnapshot(None, f"an attention of {size:,} numbers is too large for a series; shorten the text")
    try:
        explored = load_explored(checkpoint, session.settings.inputs, [traced.explored])
        if explored.translates != traced.explored.translates:
            return StoredSnapshot(None, "is a model of another task")
        selection = replace(traced.selection, mode="forced", target=target)
        for tokens, most in explored.lengths(selection):
            if tokens > most:
                return StoredSnapshot(None, f"reads at most {most:,} tokens, and the text has {tokens:,}")
        if not explored.translates:
            selection = explored.choose(traced.selection, [])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they name words of the text, which must not be written to a log
            return StoredSnapshot(snapshot(explored.example(selection, target, None), path))
    except GlassformerError as error:
        return StoredSnapshot(None, str(error).removeprefix(f"{checkpoint}: "))


def _chosen(checkpoints: list[CheckpointChoice]) -> tuple[list[CheckpointChoice], int]:
    """At most ``MOST_CHECKPOINTS``, evenly, and how many are left out."""
    count = len(checkpoints)
    if count <= MOST_CHECKPOINTS:
        return checkpoints, 0
    places = [round(number * (count - 1) / (MOST_CHECKPOINTS - 1)) for number in range(MOST_CHECKPOINTS)]
    return [checkpoints[place] for place in places], count - MOST_CHECKPOINTS


def gold_links(run: ExploredRun, source: str, target: str) -> Links | None:
    """Right word links of a pair of the run's validation text, if a file ``….align`` lies beside it."""
    with suppress(OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, GlassformerError):
        data = tomllib.loads((run.path / "config.toml").read_text(encoding="utf-8"))["data"]
        for prefix in data["validation"]:
            suffixes = (data["source"], data["target"], "align")
            texts = [Path(f"{prefix}.{suffix}").read_text(encoding="utf-8").splitlines() for suffix in suffixes]
            for here, there, line in islice(zip(*texts, strict=True), GOLD_LINES):
                if (here.strip(), there.strip()) == (source.strip(), target.strip()):
                    return read_links(line, len(source.split()), len(target.split()))
    return None
