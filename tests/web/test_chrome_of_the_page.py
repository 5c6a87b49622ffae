"""The frame of the page in a browser: folded inputs, help, steps by keyboard, tables that stay open, forced colors."""

from collections.abc import Iterator
from typing import Any

import pytest

from glassformer.text.decimals import aligned
from web.conftest import PATIENCE, SOURCE, TARGET, TOKEN, ServedPage, faults_of_axe, open_view, wait_until
from web.test_explorer_in_a_browser import FORCED, PLACE, VIEWS

TALLEST_HEADER = 150  # pixels of a folded header


def test_narrow_header_is_folded_and_unfolds(page: Any, served: ServedPage) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.querySelector('header').offsetHeight") <= TALLEST_HEADER
    assert page.locator("#input [name=source]").is_visible()
    assert not page.locator("#input [name=target]").is_visible()
    assert not page.locator("#training").is_visible()
    page.locator("#fold").focus()
    page.keyboard.press("Enter")
    assert page.locator("#fold").get_attribute("aria-expanded") == "true"
    for name in ("target", "mode", "checkpoint"):
        assert page.locator(f"#input [name={name}]").is_visible()
    assert page.locator("#training").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("#input [name=target]").fill("le chat dort")
    page.wait_for_selector(".result:has-text('le chat dort')")
    assert page.locator("#input [name=target]").is_visible()  # it stays unfolded
    page.set_viewport_size({"width": 1440, "height": 900})
    assert not page.locator("#fold").is_visible()
    assert served.complaints == []


def test_help_opens_by_keyboard_and_closes_by_escape(page: Any, served: ServedPage) -> None:
    page.locator(".help summary").focus()
    page.keyboard.press("Enter")
    assert page.locator(".help .export-menu").is_visible()
    assert faults_of_axe(page) == []
    page.keyboard.press("Escape")
    assert not page.locator(".help .export-menu").is_visible()
    assert page.evaluate("document.activeElement.closest('.help') !== null")


def test_shift_with_an_arrow_moves_a_step_in_every_view(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, **PLACE, step=1)
    page.locator("#stage-title").focus()
    for key, step in (("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2)):
        page.keyboard.press(f"Shift+{key}")
        wait_until(page, f"() => location.search.includes('step={step}')")
        assert page.locator(".steps [aria-current]").get_attribute("data-key") == f"step-{step}"
    page.locator("#input [name=source]").focus()
    page.keyboard.press("Shift+ArrowRight")  # marks text
    page.wait_for_timeout(300)
    assert "step=2" in page.url
    assert served.complaints == []


def test_table_of_an_open_panel_stays_open_at_another_step(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, step=0)
    page.locator(".entropy summary").click()
    page.locator(".steps a.step").nth(2).click()
    wait_until(page, "() => location.search.includes('step=2')")
    assert page.locator(".entropy table").is_visible()
    row = served.example().trace["output_projection.probabilities"][0, 2].double()
    terms = [float(text) for text in page.locator(".entropy [data-term], .entropy [data-rest]").all_inner_texts()]
    expected = float(-(row * row.log()).sum())
    assert abs(sum(terms) - expected) < 1e-3
    assert page.locator("[data-entropy]").inner_text() == aligned(expected, 2)
    page.locator("#temperature").fill("2")
    wait_until(page, "() => document.querySelector('output[for=temperature]').textContent === '2.00'")
    hot = served.example().trace["output_projection.logits"][0, 2].double().div(2).softmax(0)
    expected = float(-(hot * hot.log()).sum())
    terms = [float(text) for text in page.locator(".entropy [data-term], .entropy [data-rest]").all_inner_texts()]
    assert abs(sum(terms) - expected) < 1e-3


def test_line_of_the_drawn_attention_leads_to_its_number(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, **PLACE, step=2)
    page.locator(".links [data-key=largest-weight]").click()
    page.wait_for_selector("body[data-level=cell]")
    weights = served.example().trace["decoder.layers.1.cross_attention.weights"][0, 1, 2]
    assert float(page.locator(".cell .value").get_attribute("data-value")) == float(weights.max())
    page.go_back()
    page.wait_for_selector("body[data-level=head]")
    page.locator(".link-lines path").last.dispatch_event("click")
    page.wait_for_selector("body[data-level=cell]")
    assert served.complaints == []


def test_words_are_chosen_above_the_drawn_attention(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED)
    page.locator(".drawn a", has_text="without").click()
    wait_until(page, "() => location.search.includes('special=hidden')")
    assert "</s>" not in page.locator(".links .token").all_inner_texts()
    page.locator(".map a[aria-label^='Multi-head']").last.click()
    page.wait_for_selector("body[data-level=head]")
    assert "special=hidden" in page.url  # the choice stays
    assert served.complaints == []


def test_tour_leads_from_view_to_view(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, panel="tour")
    count = page.locator(".stop").count()
    page.locator("[data-key=tour-start]").click()
    for number in range(1, count + 1):
        page.wait_for_selector(f".tour-line:has-text('step {number} of {count}')")
        assert page.locator(".error").count() == 0
        assert page.locator("#stage-title").count() == 1
        if number < count:
            page.locator("[data-key=tour-after]").focus()
            page.keyboard.press("Enter")
    assert page.locator("[data-key=tour-after]").count() == 0
    page.locator("[data-key=tour-end]").click()
    page.wait_for_selector(".tour-strip", state="detached")
    assert served.complaints == []


def test_chip_of_a_head_changes_its_replacement(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, edit="decoder.layers.1.cross_attention.1:zero", panel="lab")
    before = page.locator(".candidates").inner_text()
    page.locator(".chip-other").click()
    page.wait_for_selector(".chips:has-text('head 1: mean')")
    assert "edit=decoder.layers.1.cross_attention.1%3Amean" in page.url
    assert page.locator(".candidates").inner_text() != before
    page.locator(".chip-other").click()
    page.wait_for_selector(".chips:has-text('head 1: zero')")
    assert page.locator(".candidates").inner_text() == before
    assert served.complaints == []


@pytest.fixture
def forced(served: ServedPage, browser: Any) -> Iterator[Any]:
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, forced_colors="active", color_scheme="dark", reduced_motion="reduce"
    )
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()
    tab.goto(f"{served.origin}/?token={TOKEN}")
    open_view(tab, served, source=SOURCE, target=TARGET, mode="forced")
    yield tab
    context.close()


CHOSEN = "[aria-current], [aria-pressed=true]"
SEEN = """(chosen) => [...document.querySelectorAll(chosen)].filter((one) => one.checkVisibility()).filter((one) => {
    const style = (each) => { const s = getComputedStyle(each); return [s.outlineStyle !== 'none' && s.outlineWidth,
        s.borderTopWidth + s.borderTopStyle + s.borderTopColor, s.boxShadow, s.fill + s.stroke,
        s.strokeWidth, s.fontWeight, s.textDecorationLine, s.color, s.backgroundColor].join(); };
    const parts = [one, ...one.querySelectorAll('rect, text, circle')].map(style).join();
    const other = [...(one.parentElement?.parentElement?.querySelectorAll(one.tagName) ?? [])]
        .find((each) => each !== one && !each.matches(chosen) && each.className.baseVal === one.className.baseVal);
    return other && parts === [other, ...other.querySelectorAll('rect, text, circle')].map(style).join();
}).map((one) => one.outerHTML.slice(0, 120))"""
"""Chosen things that look like one beside them that is not chosen."""


@pytest.mark.parametrize("view", [view for view in VIEWS if view not in ("error", "training", "atlas")])
def test_chosen_things_are_seen_in_forced_colors(forced: Any, served: ServedPage, view: str) -> None:
    open_view(forced, served, **FORCED, **VIEWS[view])
    assert forced.evaluate(SEEN, CHOSEN) == []
    assert forced.evaluate("getComputedStyle(document.querySelector('.map .box')).fill") == forced.evaluate(
        "getComputedStyle(document.body).backgroundColor"
    )
