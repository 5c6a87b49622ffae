"""The logit lens of the page: its last layer is the model's output, and its numbers are those of the lens."""

from urllib.parse import urlencode

import pytest
import torch

from explain.page_reader import Reader
from explain.small_examples import EXAMPLES
from glassformer.explain.analysis.lens import logit_lens
from glassformer.text.decimals import probability
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.panels.lens import has_lens, lens_of
from glassformer.web.explorer.places import resolve_selection
from glassformer.web.explorer.selection import Selection, parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun

FORCED = "?source=the+old+cat+sleeps&target=le+vieux+chat+dort&mode=forced&panel=lens"


@pytest.fixture(scope="module")
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings())


@pytest.mark.parametrize("step", [0, 3])
def test_numbers_of_the_lens_and_its_last_layer(session: Session, step: int) -> None:
    selection = parse_address(f"{FORCED}&step={step}")[0]
    example = session.examine(selection, []).example
    view = lens_of(example, selection)
    lens = logit_lens(example.trace, torch.tensor([example.predicted_ids]))
    assert [layer.title for layer in view.layers] == ["embedding", "layer 0", "layer 1"]
    for place, layer in enumerate(view.layers):
        row = lens.logits[place, 0, step].double().softmax(0)
        assert [word.probability for word in layer.words] == [
            probability(value) for value in row.topk(5).values.tolist()
        ]
        assert layer.rank == str(1 + int((row > row[example.predicted_ids[step]]).sum()))
        assert layer.target == probability(float(row[example.predicted_ids[step]]))
    last = example.trace["output_projection.probabilities"][0, step]
    assert view.layers[-1].words[0].probability == probability(float(last.max()))
    assert view.passed
    assert view.check.startswith("✓ After the last layer the lens gives the model's logits exactly")
    best = [cell.text for cell in view.rows[0][1]]  # the last layer comes first
    vocabulary = example.sides[-1].vocabulary
    assert best == vocabulary.tokens(example.trace["output_projection.logits"][0].argmax(-1).tolist())


def test_check_of_the_lens_fails_if_the_logits_are_others(session: Session) -> None:
    trace = session.examine(parse_address(FORCED)[0], []).example.trace
    good = trace["output_projection.logits"]
    trace["output_projection.logits"] = good + 0.25
    try:
        page = render_page(session, FORCED).html
    finally:
        trace["output_projection.logits"] = good
    assert "✗ After the last layer" in page
    assert "✗" not in render_page(session, FORCED).html


def test_links_of_the_lens_lead_to_the_residual_stream_and_to_steps(session: Session) -> None:
    selection = parse_address(f"{FORCED}&step=1")[0]
    view = lens_of(session.examine(selection, []).example, selection)
    targets = [parse_address(layer.address)[0] for layer in view.layers]
    assert [(one.part, one.layer, one.stage) for one in targets] == [
        ("target_embedding", None, "positioned"),
        ("decoder", 0, "normed"),
        ("decoder", 1, "normed"),
    ]
    assert [parse_address(cell.address)[0].step for cell in view.rows[0][1]] == list(range(len(view.columns)))
    assert view.current == 1


def test_lens_follows_interventions(session: Session) -> None:
    plain = Reader(render_page(session, FORCED).html).text
    zeroed = [f"decoder.layers.{layer}.cross_attention.{head}:zero" for layer in (0, 1) for head in (0, 1)]
    edited = Reader(render_page(session, f"{FORCED}&{urlencode({'edit': zeroed}, doseq=True)}").html).text
    assert edited != plain
    assert "✓ After the last layer the lens gives the model's logits exactly" in edited


@pytest.mark.parametrize("kind", [name for name in EXAMPLES if name not in ("vit", "series")])
def test_lens_of_every_kind_of_model(kind: str) -> None:
    example = EXAMPLES[kind]()
    assert has_lens(example) == (kind in ("gpt", "llama", "masked"))
    if has_lens(example):
        view = lens_of(example, resolve_selection(Selection(), example, []))
        assert view.passed
        assert (
            len(view.layers)
            == len(example.model.get_submodule("encoder" if kind == "masked" else "decoder").layers) + 1
        )
