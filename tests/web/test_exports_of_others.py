"""Exports of every kind of model that reads texts, and of long sentences."""

import csv
import io
import re
from pathlib import Path
from urllib.parse import urlencode

import pytest
import torch

from glassformer.web.explorer.page import export_panel, render_page
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
