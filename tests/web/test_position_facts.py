"""Facts of one position: the strongest neurons and what drives them, and the statistics of a normalization."""

import pytest

from explain.page_reader import Reader
from glassformer.text.decimals import aligned, decimal
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.panels.position_facts import position_facts_of
from glassformer.web.explorer.places import tensor_of
from glassformer.web.explorer.selection import parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun
from tiny_tasks import made
from web.test_panels_of_others import TEXTS

FORCED = "?source=the+old+cat+sleeps&target=le+vieux+chat+dort&mode=forced&step=2"
FEED = "&part=decoder&layer=1&sublayer=feed_forward"


@pytest.fixture(scope="module")
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings())


@pytest.mark.parametrize(("query", "position"), [("", 2), ("&position=0", 0), ("&position=999", None)])
def test_neurons_are_the_largest_and_lead_to_their_numbers(session: Session, query: str, position: int | None) -> None:
    selection = parse_address(FORCED + FEED + query)[0]
    example = session.examine(selection, []).example
    view = position_facts_of(example, selection)
    assert view is not None
    activated = example.trace["decoder.layers.1.feed_forward.activated"][0].double()
    row = activated[-1 if position is None else position]
    assert [one.value for one in view.neurons] == row[row.abs().argsort(descending=True, stable=True)[:8]].tolist()
    for one in view.neurons:
        places = [parse_address(address)[0] for address in (one.address, one.before_address, one.driver_address)]
        numbers = [float(example.trace[tensor_of(place)][0, place.row, place.column]) for place in places]
        assert one.text == aligned(numbers[0], 3)
        assert one.before == aligned(numbers[1], 3)
        weight = example.model.get_submodule("decoder.layers.1.feed_forward").inner.weight[one.number].detach()
        terms = [float(x) * float(w) for x, w in zip(example.trace[tensor_of(places[2])][0, places[2].row], weight)]
        largest = max(range(len(terms)), key=lambda place: abs(terms[place]))
        assert one.driver == f"dimension {largest}: {aligned(terms[largest], 3)}"
        assert numbers[2] == float(example.trace[tensor_of(places[2])][0, places[2].row, largest])
    assert sum(current for _, _, current in view.tokens) == 1


def test_statistics_of_a_normalization_lead_to_their_numbers(session: Session) -> None:
    selection = parse_address(f"{FORCED}{FEED}_norm")[0]
    example = session.examine(selection, []).example
    view = position_facts_of(example, selection)
    assert view is not None
    mean, deviation, gain, bias = view.facts
    for fact in (mean, deviation):
        place = parse_address(fact.address)[0]
        assert fact.text == decimal(float(example.trace[tensor_of(place)][0, place.row]))
        assert place.row == 2
    norm = example.model.get_submodule("decoder.layers.1.feed_forward_norm").norm
    assert gain.text == f"{decimal(float(norm.weight.detach().min()))} to {decimal(float(norm.weight.detach().max()))}"
    assert (gain.address, bias.address) == ("", "")


@pytest.mark.parametrize("task", TEXTS)
def test_every_kind_of_model_has_facts(task: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    session = Session(made(tmp_path_factory, task).run, WebSettings())
    stack = "decoder" if task == "language" else "encoder"
    page = render_page(session, f"?source={TEXTS[task]}&part={stack}&layer=0&sublayer=feed_forward")
    assert page.status == 200
    assert "driven most by input" in Reader(page.html).text
