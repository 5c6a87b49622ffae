"""Exports of the panels: every number is that of the trace, and no character of a text breaks a file."""

import csv
import html
import io
import json
import re
import runpy
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from glassformer.errors import DataError
from glassformer.explain.example import Example
from glassformer.explain.formula.formula import explain
from glassformer.text.decimals import aligned, compact, decimal, precise
from glassformer.web.explorer.exports import formats
from glassformer.web.explorer.exports.content import ExportContent
from glassformer.web.explorer.exports.formats import FORMATS, ExportedFile, harmless
from glassformer.web.explorer.page import export_panel, render_page
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun

FORCED = {"source": "the old cat sleeps", "target": "le vieux chat dort", "mode": "forced"}
PATH = "decoder.layers.1.cross_attention"
PLACE = {"part": "decoder", "layer": 1, "sublayer": "cross_attention", "head": 1}
OFF = {"off": f"{PATH}.1:zero"}
VIEWS: dict[str, dict[str, Any]] = {
    "model": {},
    "layer": {"part": "decoder", "layer": 1},
    "embedding": {"part": "source_embedding"},
    "heads": {key: PLACE[key] for key in ("part", "layer", "sublayer")},
    "head": PLACE,
    "matrix": {**PLACE, "stage": "weights"},
    "masked": {**PLACE, "sublayer": "self_attention", "stage": "masked_scores"},
    "cell": {**PLACE, "stage": "weights", "row": 2, "column": 1},
    "vector": {"part": "decoder", "layer": 0, "sublayer": "feed_forward_norm", "stage": "norm.mean", "row": 1},
    "off": {**PLACE, **OFF, "stage": "context", "row": 1, "column": 1},
    "tour": {"panel": "tour"},
    "beam": {"panel": "beam"},
    "lab": {"panel": "lab", **OFF},
}


@pytest.fixture(scope="module")
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings())


def exported(session: Session, name: str, of: str = "stage", **fields: Any) -> tuple[ExportedFile, bytes]:
    file = export_panel(session, f"?{urlencode({**FORCED, **fields, 'of': of})}", name)
    return file, b"".join(file.pieces)


def text_of(session: Session, name: str, of: str = "stage", **fields: Any) -> str:
    return exported(session, name, of, **fields)[1].decode()


def rows_of(session: Session, of: str = "stage", **fields: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text_of(session, "csv", of, **fields))))


def last_example(session: Session) -> Example:
    return next(reversed(session._traces.values()))


@pytest.mark.parametrize("view", VIEWS)
def test_every_link_of_a_menu_gives_a_file(session: Session, view: str) -> None:
    page = render_page(session, f"?{urlencode({**FORCED, **VIEWS[view]})}").html
    addresses = re.findall(r'(?:href|data-png|data-copy-of)="export/(\w+)(\?[^"]+)"', page)
    assert {name for name, _ in addresses} >= {"svg", "csv", "tex", "npz", "py", "html"}
    for name, address in dict.fromkeys(addresses):
        if name == "html" and view not in ("model", "off"):
            continue  # the same report of the same sentence
        file = export_panel(session, html.unescape(address), name)
        content = b"".join(file.pieces)
        assert re.fullmatch(r"run-step_\d+-[A-Za-z0-9._-]+" + re.escape(FORMATS[name].suffix), file.name)
        assert content
        if name == "svg":
            assert_standalone(content)


def assert_standalone(svg: bytes) -> None:
    """A picture that needs no other file, and does not change with the reader's colors."""
    text = svg.decode()
    ElementTree.fromstring(text)
    for forbidden in ("var(", "light-dark", "prefers-color-scheme", "<script", "<a ", "data-key", "data-index"):
        assert forbidden not in text
    assert re.findall(r'(?:href|src)="(?!data:image/png)', text) == []
    assert text.count("<image") == text.count('href="data:image/png')
    assert text.count("url(") == text.count("url(#tip)")


@pytest.mark.parametrize("stage", ["q", "scores", "weights", "context"])
def test_csv_of_a_matrix_is_that_of_the_trace(session: Session, stage: str) -> None:
    rows = rows_of(session, **PLACE, stage=stage)
    example = last_example(session)
    recorded = example.trace[f"{PATH}.{stage}"][0, 1].double()
    assert [float(row["value"]) for row in rows] == recorded.flatten().tolist()
    columns = recorded.size(1)
    assert [(int(row["row"]), int(row["column"])) for row in rows] == [divmod(i, columns) for i in range(len(rows))]
    queries, keys = example.attention_sides("decoder", "cross_attention")
    if stage == "weights":
        assert [row["row_label"] for row in rows[::columns]] == [label.text for label in queries.labels]
        assert [row["column_label"] for row in rows[:columns]] == [label.text for label in keys.labels]


def test_csv_of_the_output_has_every_word(session: Session) -> None:
    rows = rows_of(session, "output", step=2)
    recorded = last_example(session).trace["output_projection.probabilities"][0, 2].double()
    assert [float(row["value"]) for row in rows] == recorded.tolist()


def test_csv_of_a_number_has_every_operand(session: Session) -> None:
    rows = rows_of(session, "cell", **{**VIEWS["cell"], "stage": "scores"})
    trace = last_example(session).trace
    q, k = trace[f"{PATH}.q"][0, 1, 2].double(), trace[f"{PATH}.k"][0, 1, 1].double()
    found = sorted((float(row["value 1"]), float(row["value 2"])) for row in rows)
    assert found == sorted(zip(q.tolist(), k.tolist(), strict=True))
    assert sum(float(row["term"]) for row in rows) == pytest.approx(float(trace[f"{PATH}.scores"][0, 1, 2, 1]))


def test_csv_of_the_steps_has_the_probabilities(session: Session) -> None:
    rows = rows_of(session, "timeline")
    example = last_example(session)
    predicted = torch.tensor(example.predicted_ids)[:, None]
    values = example.trace["output_projection.probabilities"][0].gather(1, predicted)[:, 0].double()
    assert [float(row["probability"]) for row in rows] == values.tolist()
    assert [row["token"] for row in rows] == example.predicted_tokens


def test_csv_of_the_beam_has_every_hypothesis(session: Session, tiny: TinyRun) -> None:
    rows = rows_of(session, **VIEWS["beam"])
    outcomes = {row["outcome"] for row in rows}
    assert {"continues", "ended", "pruned"} <= outcomes
    size = next(reversed(session._searches.values())).beam_size
    best = tiny.translator.hypotheses([FORCED["source"]], beam_size=size, n_best=1, sample=False)[0][0]
    ended = [float(row["total"]) for row in rows if (row["outcome"], row["hypothesis"]) == ("ended", best.text)]
    assert ended == [pytest.approx(best.hypothesis.log_prob, abs=1e-4)]


def test_npz_has_whole_tensors_with_axes_and_the_selection(session: Session) -> None:
    _, content = exported(session, "npz", **VIEWS["matrix"])
    with np.load(io.BytesIO(content)) as arrays:
        trace = last_example(session).trace
        assert set(arrays) == {"axes", "selection", f"{PATH}.weights"}
        assert np.array_equal(arrays[f"{PATH}.weights"], trace[f"{PATH}.weights"].numpy())
        assert json.loads(str(arrays["axes"])) == {f"{PATH}.weights": ["batch", "head", "query", "key"]}
        selection = json.loads(str(arrays["selection"]))
    assert (selection["source"], selection["head"], selection["stage"]) == (FORCED["source"], 1, "weights")


def test_npz_of_a_layer_has_every_tensor_of_it(session: Session) -> None:
    _, content = exported(session, "npz", **VIEWS["layer"])
    trace = last_example(session).trace
    with np.load(io.BytesIO(content)) as arrays:
        own = {name for name in trace if name.startswith("decoder.layers.1.")}
        assert own <= set(arrays)
        for name in set(arrays) - {"axes", "selection"}:
            assert np.array_equal(arrays[name], trace[name].numpy())


def test_svg_has_the_labels_and_numbers_of_the_trace(session: Session) -> None:
    svg = ElementTree.fromstring(text_of(session, "svg", **VIEWS["matrix"]))
    texts = [one.text for one in svg.iter("{http://www.w3.org/2000/svg}text")]
    example = last_example(session)
    queries, keys = example.attention_sides("decoder", "cross_attention")
    assert {label.short for label in (*queries.labels, *keys.labels)} <= set(texts)
    numbers = [compact(value) for value in example.trace[f"{PATH}.weights"][0, 1].double().flatten().tolist()]
    start = texts.index(numbers[0])
    assert texts[start : start + len(numbers)] == numbers


def test_svg_of_the_output_has_the_probabilities(session: Session) -> None:
    text = text_of(session, "svg", "output", step=1)
    row = last_example(session).trace["output_projection.probabilities"][0, 1].double()
    for value in row.topk(5).values.tolist():
        assert aligned(value, 4) in text
        assert f'width="{240 * value:.2f}"' in text


def test_svg_of_the_beam_has_the_page_s_nodes_and_colors(session: Session) -> None:
    svg = text_of(session, "svg", **VIEWS["beam"])
    assert svg.count('class="node ') == len(rows_of(session, **VIEWS["beam"]))
    assert ".node.best rect { stroke: #1b4f91;" in svg


def test_latex_of_a_matrix_has_its_numbers(session: Session) -> None:
    text = text_of(session, "tex", **VIEWS["matrix"])
    rows = last_example(session).trace[f"{PATH}.weights"][0, 1].double().tolist()
    lines = [line for line in text.splitlines() if line.startswith(r"\texttt")]
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        assert line.removesuffix(r" \\").split(" & ")[1:] == [aligned(value, 2) for value in row]


def test_latex_of_a_number_is_its_formula(session: Session) -> None:
    text = text_of(session, "tex", "cell", **VIEWS["cell"])
    formula = explain(last_example(session).trace, f"{PATH}.weights", head=1, query=2, key=1)
    assert formula.latex() in text
    assert decimal(formula.value) in text


def test_latex_of_the_steps_has_the_probabilities(session: Session) -> None:
    text = text_of(session, "tex", "timeline")
    for row in rows_of(session, "timeline"):
        assert precise(float(row["probability"])) in text


@pytest.mark.parametrize(
    "fields",
    [
        VIEWS["matrix"],
        {**VIEWS["matrix"], **OFF},
        {**VIEWS["matrix"], "off": [f"{PATH}.0:mean", f"{PATH}.1:zero", "decoder.layers.0.self_attention.1:mean"]},
        {"part": "decoder", "layer": 1, "sublayer": "feed_forward_norm", "stage": "normed", **OFF},
        {"stage": "memory"},
    ],
)
def test_script_gives_the_numbers_of_the_page(session: Session, tmp_path: Path, fields: dict[str, Any]) -> None:
    query = urlencode({**FORCED, **fields, "of": "stage"}, doseq=True)
    values, _ = run_script(session, query, tmp_path)
    page = render_page(session, f"?{query}").html
    page = page[page.index('<table class="numbers"') :].partition("</table>")[0]
    numbers = [float(one) for one in re.findall(r'<td class="[^"]*"[^>]*><a[^>]* data-value="([^"]+)"', page)]
    shape = page.count('<tr><th scope="row"')
    table = values.double()
    assert numbers == table[:shape, : len(numbers) // shape].flatten().tolist()


def run_script(session: Session, query: str, folder: Path) -> tuple[Any, Example]:
    """The ``values`` of the script of a view, and the example that it traced."""
    file = export_panel(session, f"?{query}", "py")
    script = folder / file.name
    script.write_bytes(b"".join(file.pieces))
    names = runpy.run_path(str(script))
    return names["values"], names["example"]


def test_script_with_heads_off_gives_other_numbers(session: Session, tmp_path: Path) -> None:
    fields = {"part": "output_projection", "stage": "logits"}
    plain, _ = run_script(session, urlencode({**FORCED, **fields}), tmp_path)
    without, _ = run_script(session, urlencode({**FORCED, **fields, **OFF}), tmp_path)
    assert not torch.equal(plain, without)
    rows = rows_of(session, **fields, **OFF)
    assert [float(row["value"]) for row in rows] == without.double().flatten().tolist()


@pytest.mark.parametrize(
    ("panel", "fields"),
    [
        ("stage", {}),
        ("stage", VIEWS["heads"]),
        ("cell", VIEWS["cell"]),
        ("output", {"step": 2}),
        ("stage", VIEWS["lab"]),
    ],
)
def test_script_of_a_panel_gives_the_numbers_of_its_csv(
    session: Session, tmp_path: Path, panel: str, fields: dict[str, Any]
) -> None:
    query = urlencode({**FORCED, **fields, "of": panel})
    values, _ = run_script(session, query, tmp_path)
    rows = rows_of(session, panel, **fields)
    if panel == "cell":
        weights = last_example(session).trace[f"{PATH}.weights"]
        assert float(values) == float(weights[0, 1, 2, 1])
    else:
        assert [float(row["value"]) for row in rows] == pytest.approx(values.double().flatten().tolist(), abs=1e-7)


def test_script_of_the_beam_gives_the_totals(session: Session, tmp_path: Path) -> None:
    values, _ = run_script(session, urlencode({**FORCED, "panel": "beam", "of": "stage"}), tmp_path)
    totals = [value for step in values for value in step.tolist() if value != float("-inf")]
    assert totals == [float(row["total"]) for row in rows_of(session, **VIEWS["beam"])]


ATTACK = '=cmd|"/c calc"!A1 """ \\end{table} \\input{/etc/passwd} %&$#_{}~^ <script>alert(1)</script> ]]> \x0b \u202e'
ATTACKED = [("stage", name) for name in ("svg", "csv", "tex")] + [
    ("timeline", "csv"),
    ("timeline", "tex"),
    ("output", "svg"),
]


@pytest.mark.parametrize("view", ["model", "matrix", "beam"])
@pytest.mark.parametrize(("of", "name"), ATTACKED)
def test_no_character_of_a_text_breaks_a_file(session: Session, view: str, of: str, name: str) -> None:
    texts = {"source": f"the {ATTACK} cat", "target": f"le {ATTACK}"}
    file, content = exported(session, name, of, **VIEWS[view], **texts)
    assert re.fullmatch(r"[A-Za-z0-9._-]+", file.name)
    text = content.decode()
    if name == "svg":
        assert_standalone(content)
    elif name == "csv":
        rows = list(csv.reader(io.StringIO(text)))
        assert len({len(row) for row in rows}) == 1
        assert [cell for row in rows for cell in row if cell.startswith(("=", "@", "\t", "\r"))] == []
    else:
        assert "\\input" not in text
        assert text.count("\\end{table}") == text.count("\\begin{table}")
        plain = re.sub(r"\$[^$]*\$", "", re.sub(r"\\[&%$#_{}]", "", text))
        assert re.findall("[%#$]", plain) == []


def test_script_of_any_text_is_python(session: Session, tmp_path: Path) -> None:
    texts = {"source": f"the {ATTACK} cat", "target": f"le {ATTACK}"}
    _, example = run_script(session, urlencode({**FORCED, **VIEWS["matrix"], **texts}), tmp_path)
    assert (example.source, example.target) == tuple(texts.values())


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1"])
def test_text_that_looks_like_a_formula_is_made_harmless(text: str) -> None:
    assert harmless(text) == f"'{text}"
    assert harmless(f"a{text}") == f"a{text}"


def test_name_of_a_file_has_no_character_that_breaks_a_header() -> None:
    content = ExportContent(name="../t", title="t")
    assert formats.file_name('a"b\r\nX: é', "step_1", content, ".csv") == "a_b_X-step_1-t.csv"
    assert formats.file_name("猫", "step_1", content, ".csv") == "step_1-t.csv"


def test_large_files_are_refused_with_their_limit(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MAX_CSV_NUMBERS", 5)
    monkeypatch.setattr(formats, "MAX_TENSOR_BYTES", 1 << 20)
    with pytest.raises(DataError, match=r"the tensor has \d+ numbers; a CSV file has at most 5: choose npz"):
        exported(session, "csv", **VIEWS["matrix"])
    monkeypatch.setattr(formats, "MAX_TENSOR_BYTES", 5)
    with pytest.raises(DataError, match="one file has at most 0 MiB: export a single tensor"):
        exported(session, "npz", **VIEWS["matrix"])


@pytest.mark.parametrize(("name", "panel"), [("exe", "stage"), ("csv", "nothing"), ("html", "stage"), ("png", "stage")])
def test_unknown_file_is_an_error(session: Session, name: str, panel: str) -> None:
    with pytest.raises(DataError, match="choose one of its menus"):
        exported(session, name, panel)


def test_report_is_of_this_sentence_target_and_interventions(session: Session) -> None:
    plain, edited = (text_of(session, "html", "report", **fields) for fields in ({}, OFF))
    for text in (plain, edited):
        assert "the old cat sleeps" in text
        assert "le vieux chat dort" in text
    assert "All" in plain and "checks passed" in plain
    assert "Interventions: decoder layer 1 cross-attention, head 1: zero." in edited
    assert "Interventions:" not in plain
    tensors = [
        re.findall(r"<script type=\"[^\"]*\"[^>]*>[^<]*</script>|<td[^>]*>[^<]*</td>", one) for one in (plain, edited)
    ]
    assert len(tensors[0]) > 100
    assert tensors[0] != tensors[1]
