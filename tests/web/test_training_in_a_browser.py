"""The slider over checkpoints, the comparison and the series in headless Chromium."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glassformer.web.explorer.selection import Selection
from tiny_run import TinyRun
from web.conftest import PATIENCE, SOURCE, TARGET, TOKEN, ServedPage, open_view, served_page, wait_until

FORCED = {"source": SOURCE, "target": TARGET, "mode": "forced"}
PLACE = {"part": "decoder", "layer": 1, "sublayer": "cross_attention", "head": 1}
SLIDER = "#training"


def test_slider_moves_every_panel_through_training(page: Any, served: ServedPage) -> None:
    before = {slot: page.locator(f"[data-slot={slot}]").inner_html() for slot in ("stage", "inspector", "timeline")}
    slider = page.locator(SLIDER)
    assert slider.get_attribute("max") == "3"
    slider.focus()
    page.keyboard.press("Home")
    wait_until(page, "() => location.search.includes('checkpoint=step_00000040')")
    wait_until(page, "() => !document.documentElement.hasAttribute('data-busy')")
    for slot, html in before.items():
        assert page.locator(f"[data-slot={slot}]").inner_html() != html, slot
    assert page.locator("select[name=checkpoint]").input_value() == "step_00000040"
    assert slider.get_attribute("aria-valuetext") == "step 40"
    assert page.evaluate("document.activeElement.id") == "training"
    page.keyboard.press("ArrowRight")
    wait_until(page, "() => location.search.includes('checkpoint=step_00000080')")
    page.locator("select[name=checkpoint]").select_option("step_00000120")
    wait_until(page, "() => document.querySelector('#training').value === '2'")
    assert served.complaints == []


def test_slider_is_where_the_address_says(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, checkpoint="step_00000080")
    wait_until(page, "() => document.querySelector('#training').value === '1'")
    assert page.locator("output[for=training]").inner_text() == "step 80"
    page.locator(SLIDER).fill("0")
    wait_until(page, "() => location.search.includes('checkpoint=step_00000040')")
    other = page.context.new_page()
    other.goto(page.url)
    wait_until(other, "() => document.querySelector('#training').value === '0'")
    for slot in ("stage", "inspector", "timeline"):
        assert other.locator(f"[data-slot={slot}]").inner_text() == page.locator(f"[data-slot={slot}]").inner_text()


def test_training_is_played_to_its_end_with_motion(page: Any, served: ServedPage) -> None:
    page.emulate_media(reduced_motion="no-preference")
    open_view(page, served, **FORCED, checkpoint="step_00000040")
    page.locator("#play").click()
    assert page.locator("#play").get_attribute("aria-label") == "pause"
    wait_until(page, "() => document.querySelector('#training').value === '3'")
    wait_until(page, "() => document.querySelector('#play').getAttribute('aria-label') === 'play the training'")
    assert "checkpoint=step_00000160" in page.url
    assert served.complaints == []


def test_training_moves_one_step_a_press_without_motion(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, checkpoint="step_00000040")
    assert page.locator("#play").get_attribute("aria-label") == "next checkpoint"
    page.locator("#play").click()
    wait_until(page, "() => location.search.includes('checkpoint=step_00000080')")
    page.wait_for_timeout(1500)
    assert page.locator(SLIDER).input_value() == "1"


def test_comparison_follows_its_form_and_its_address(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, **PLACE, panel="compare")
    assert page.locator(".map-figure").count() == 3
    page.locator("select[name=other_checkpoint]").select_option("step_00000120")
    wait_until(page, "() => location.search.includes('other_checkpoint=step_00000120')")
    page.wait_for_selector(".map-figure figcaption:has-text('step 120')")
    other = page.context.new_page()
    other.goto(page.url)
    assert other.locator("[data-slot=stage]").inner_text() == page.locator("[data-slot=stage]").inner_text()
    page.locator("input[name=other_source]").fill("the young cat sleeps")
    page.keyboard.press("Enter")
    wait_until(page, "() => location.search.includes('other_source=the+young+cat+sleeps')")
    page.locator(".picker a").first.click()
    wait_until(page, "() => location.search.includes('head=0')")
    assert "other_checkpoint=step_00000120" in page.url
    page.go_back()
    wait_until(page, "() => location.search.includes('head=1')")
    page.keyboard.press("Escape")
    wait_until(page, "() => !location.search.includes('panel')")
    page.wait_for_selector("body[data-level=head]")
    assert served.complaints == []


def test_numbers_of_the_comparison_are_those_of_the_traces(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, **PLACE, panel="compare", other_checkpoint="step_00000040")
    session = served.session
    found = []
    for table in page.locator("table.small").all():
        rows = table.locator("tbody tr").all()
        found.append([[float(td.get_attribute("data-value")) for td in row.locator("td").all()] for row in rows])
    sides = []
    for checkpoint in ("step_00000040", ""):
        one = Selection(checkpoint=checkpoint, source=SOURCE, target=TARGET, mode="forced")
        example = session.examine(one, []).example
        sides.append(example.trace["decoder.layers.1.cross_attention.weights"][0, 1].double())
    assert found == [sides[0].tolist(), sides[1].tolist(), (sides[1] - sides[0]).tolist()]


def test_series_comes_by_itself_and_leads_to_its_checkpoints(page: Any, served: ServedPage) -> None:
    open_view(page, served, source="the young women love the red flower", panel="training")
    wait_until(page, "() => !document.querySelector('[data-again]')")
    assert page.locator(".tiles img").count() == 4
    assert page.locator(".chart").count() >= 3
    page.locator(".tiles a").first.click()
    wait_until(page, "() => location.search.includes('checkpoint=step_00000040')")
    wait_until(page, "() => !document.querySelector('[data-again]')")
    assert page.locator(".tiles a[aria-current]").inner_text().startswith("step 40")
    assert served.complaints == []


@pytest.fixture
def growing(tiny: TinyRun, tmp_path: Path) -> Iterator[ServedPage]:
    """The application of two runs that the test may change."""
    for name in ("growing", "other"):
        shutil.copytree(tiny.run, tmp_path / name)
    with served_page(tmp_path / "growing", [tmp_path / "other"]) as one:
        yield one


def test_new_checkpoint_appears_and_a_deleted_run_is_a_message(
    growing: ServedPage, browser: Any, tmp_path: Path
) -> None:
    tab = browser.new_page()
    tab.set_default_timeout(PATIENCE)
    tab.goto(f"{growing.origin}/?token={TOKEN}")
    open_view(tab, growing, **FORCED, checkpoint="step_00000080")
    saved = tmp_path / "growing" / "checkpoints"
    shutil.copytree(saved / "step_00000160", saved / "step_00000200")
    wait_until(tab, "() => document.querySelector('#training').max === '4'")
    assert tab.locator("select[name=checkpoint] option").last.get_attribute("value") == "step_00000200"
    assert tab.locator("select[name=checkpoint]").input_value() == "step_00000080"
    tab.locator(SLIDER).fill("4")
    wait_until(tab, "() => location.search.includes('checkpoint=step_00000200')")
    shutil.rmtree(tmp_path / "growing")
    tab.locator(SLIDER).fill("0")
    tab.wait_for_selector("[role=alert]")
    assert "there is no such run" in tab.locator("[role=alert]").inner_text()
    tab.locator("select[name=run]").select_option("other")
    tab.wait_for_selector("h1.sentence")
    assert "run=other" in tab.url
    assert "checkpoint" not in tab.url
    tab.close()
