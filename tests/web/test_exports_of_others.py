"""Exports of every kind of model that reads texts, and of long sentences."""

import csv
import io
import re
from pathlib import Path
from urllib.parse import urlencode

import pytest
import torch

from glassformer.web.explorer.page import export_panel, render_page
from glassformer.web.explorer.selection import parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun
from tiny_tasks import made
from web.test_exports import rows_of, run_script, text_of
from web.test_panels_of_others import TEXTS


@pytest.mark.parametrize("task", TEXTS)
def test_files_of_every_task_give_its_numbers(
    task: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    session = Session(made(tmp_path_factory, task).run, WebSettings())
    fields = {"source": TEXTS[task], "target": "", "mode": "beam"}
    assert render_page(session, f"?{urlencode(fields)}").status == 200
    example = next(reversed(session._traces.values()))
    name = next(one for one in example.trace if one.endswith("self_attention.weights"))
    part, _, layer, sublayer, stage = name.split(".")
    place = {**fields, "part": part, "layer": layer, "sublayer": sublayer, "stage": stage, "head": 1}
    for off in ({}, {"off": f"{part}.layers.0.{sublayer}.0:mean"}):
        query = urlencode({**place, **off})
        values, traced = run_script(session, query, tmp_path)
        rows = list(csv.DictReader(io.StringIO(b"".join(export_panel(session, f"?{query}", "csv").pieces).decode())))
        assert [float(row["value"]) for row in rows] == values.double().flatten().tolist()
        shown = next(reversed(session._traces.values()))
        for one in shown.trace:
            assert torch.equal(traced.trace[one], shown.trace[one]), one
    for panel, format_ in (("stage", "svg"), ("output", "csv"), ("timeline", "tex"), ("map", "svg")):
        assert text_of(session, format_, panel, **fields)


def test_long_sentence_is_whole_in_numbers_and_pooled_in_pictures(tiny: TinyRun) -> None:
    session = Session(tiny.run, WebSettings())
    words = "cat " * 70
    page = render_page(session, f"?{urlencode({'source': words, 'target': 'le chat', 'mode': 'forced'})}")
    if page.status == 422:
        words = "cat " * 40
    place = {"part": "encoder", "layer": 0, "sublayer": "self_attention", "stage": "weights", "head": 0}
    fields = {"source": words, "target": "le chat", "mode": "forced", **place}
    rows = rows_of(session, **fields)
    recorded = next(reversed(session._traces.values())).trace["encoder.layers.0.self_attention.weights"][0, 0].double()
    assert [float(row["value"]) for row in rows] == recorded.flatten().tolist()
    svg = text_of(session, "svg", **fields)
    pooled = re.search(r"(\d+) × (\d+) pooled by max", svg)
    assert (pooled is not None) == (len(recorded) > 64)


EDITS = {
    "language": ["decoder.layers.0.self_attention.result@1", "decoder.layers.1.self_attention.1.2:0-1-2"],
    "masked": ["encoder.layers.0.self_attention.result@all", "encoder.layers.0.self_attention.0:mean"],
    "classification": ["encoder.layers.0.self_attention.0:zero", "encoder.layers.0.self_attention.1:mean"],
}


@pytest.mark.parametrize("task", EDITS)
def test_script_of_a_pair_with_interventions_gives_the_trace_of_the_page(
    task: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    session = Session(made(tmp_path_factory, task).run, WebSettings())
    texts = {"source": "the old dog" if task != "masked" else "the [MASK] dog", "donor": "the sad cat"}
    if task == "masked":
        texts["donor"] = "the [MASK] cat"
    if task == "classification":
        texts |= {"target": "a second text"}
    known = session.examine(parse_address(f"?{urlencode(texts)}")[0], []).example
    edits = EDITS[task]
    if task == "language":
        name, keys = edits[1].split(":")[0], known.trace["decoder.layers.1.self_attention.weights"].size(-1)
        edits = [edits[0], f"{name}:{'-'.join(['1', '2', '3', *['0'] * (keys - 3)])}"]
    fields = {**texts, "edit": edits, "stage": "logits", "part": "output_projection"}
    query = f"?{urlencode(fields, doseq=True)}"
    traced = session.examine(parse_address(query)[0], [])
    assert len(traced.interventions) == len(edits), traced.notes
    _, script = run_script(session, f"{query[1:]}&of=tensors", tmp_path)
    assert set(script.trace) == set(traced.example.trace)
    for one in script.trace:
        assert torch.equal(script.trace[one], traced.example.trace[one]), one
    changed = [one for one in script.trace if not torch.equal(script.trace[one], traced.original.trace[one])]
    assert changed
