"""The canvas of a large matrix in headless Chromium: its numbers, its keys, its zoom and its colors."""

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from web.conftest import ServedPage, faults_of_axe, open_view, wait_for_level, wait_until

PLACE = {"part": "decoder", "layer": 1, "sublayer": "self_attention", "head": 1, "stage": "weights"}
LONG = {"source": "the old cat", "target": "le " * 300, "mode": "forced", **PLACE}
SHORT = {**LONG, "target": "le " * 90}
PIXEL = """() => { const canvas = document.querySelector('.plot canvas');
    return Array.from(canvas.getContext('2d').getImageData(canvas.width - 3, 3, 1, 1).data); }"""
"""Color of the last key of the first query, which a causal mask hides."""


def weights(served: ServedPage) -> NDArray[np.float32]:
    values: NDArray[np.float32] = served.example().trace["decoder.layers.1.self_attention.weights"][0, 1].numpy()
    return values


def read(tab: Any) -> float:
    """The number that the page names."""
    wait_until(tab, "() => !!document.querySelector('.plot output')?.dataset.value")
    return float(tab.locator(".plot output").get_attribute("data-value"))


def test_numbers_under_the_keyboard_are_those_of_the_trace(page: Any, served: ServedPage) -> None:
    open_view(page, served, **SHORT)
    recorded = weights(served)
    assert 64 < len(recorded) <= 256
    assert read(page) == recorded[0, 0]
    page.locator(".plot canvas").first.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert read(page) == recorded[3, 1]
    text = page.locator(".plot output").inner_text()
    assert "(query) 3 “" in text and "(key) 1 “" in text
    page.keyboard.press("End")
    assert read(page) == recorded[3, -1] == 0
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    wait_for_level(page, "cell")
    assert "row=3" in page.url and "column=0" in page.url
    assert read(page) == recorded[3, 0]
    assert float(page.locator(".cell .value").get_attribute("data-value")) == recorded[3, 0]
    assert served.complaints == []


def test_numbers_under_the_pointer_are_those_of_the_trace(page: Any, served: ServedPage) -> None:
    open_view(page, served, **SHORT)
    recorded = weights(served)
    read(page)
    page.locator(".plot canvas").first.scroll_into_view_if_needed()
    box = page.locator(".plot canvas").first.bounding_box()
    served.requests.clear()
    for row, column in ((5, 2), (60, 59), (len(recorded) - 1, 0)):
        x, y = ((place + 0.5) / len(recorded) for place in (column, row))
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
        assert page.locator(".plot output").get_attribute("data-cell") == f"{row},{column}"
        assert read(page) == recorded[row, column]
    assert [one for one in served.requests if "/checkpoints" not in one] == []  # which the page asks for by itself


def test_zoom_gives_every_number_exactly(page: Any, served: ServedPage) -> None:
    open_view(page, served, **LONG)
    recorded = weights(served)
    assert read(page) == recorded[:2, :2].max()
    assert "largest of its block" in page.locator(".plot output").inner_text()
    assert "each block of 2 × 2 shows its largest number" in page.locator("[data-extent]").inner_text()
    assert page.locator(".plot-open").is_hidden()
    page.locator(".plot canvas").first.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "+"):
        page.keyboard.press(key)
    page.wait_for_selector(".plot-open")
    assert read(page) == recorded[4, 2]
    assert "every number is drawn" in page.locator("[data-extent]").inner_text()
    for _ in range(60):
        page.keyboard.press("ArrowDown")
    assert read(page) == recorded[64, 2]
    page.keyboard.press("PageDown")
    page.keyboard.press("PageDown")
    wait_until(page, "() => !document.querySelector('.plot-open').hidden")
    assert read(page) == recorded[-1, 2]
    page.keyboard.press("0")
    assert "each block" in page.locator("[data-extent]").inner_text()
    page.keyboard.press("Escape")
    wait_for_level(page, "head")
    assert served.complaints == []


def test_click_zooms_in_and_then_opens_the_number(page: Any, served: ServedPage) -> None:
    open_view(page, served, **LONG)
    read(page)
    canvas = page.locator(".plot canvas").first
    box = canvas.bounding_box()
    canvas.click(position={"x": 0.4 * box["width"], "y": 0.7 * box["height"]})
    page.wait_for_selector(".plot-open")
    canvas.click(position={"x": 0.5 * box["width"], "y": 0.5 * box["height"]})
    wait_for_level(page, "cell")
    row, column = (int(page.url.partition(f"{name}=")[2].partition("&")[0]) for name in ("row", "column"))
    assert float(page.locator(".cell .value").get_attribute("data-value")) == weights(served)[row, column]


def test_colors_are_those_of_tables_in_every_scheme(page: Any, served: ServedPage) -> None:
    hidden = {}
    for scheme, forced in (("light", "none"), ("dark", "none"), ("dark", "active")):
        page.emulate_media(color_scheme=scheme, forced_colors=forced)
        open_view(page, served, **{**SHORT, "stage": "scaled_scores"})
        read(page)
        cell = "() => getComputedStyle(document.querySelector('.numbers tbody td')).backgroundColor"
        bar = """() => { const bar = document.querySelector('canvas.bar');
            return [...bar.getContext('2d').getImageData(0, 0, bar.width, 1).data]; }"""
        colors = np.array(page.evaluate(bar)).reshape(-1, 4)[:, :3]
        level = page.evaluate("() => Number(document.querySelector('.numbers tbody td').className.slice(1))")
        shown = [int(part) for part in re.findall(r"\d+", page.evaluate(cell))][:3]
        if forced == "none":
            assert colors[level].tolist() == shown
        hidden[scheme, forced] = colors[0].tolist()
    assert len({tuple(color) for color in hidden.values()}) == 3


def test_theme_button_recolors_the_canvas(page: Any, served: ServedPage) -> None:
    page.emulate_media(color_scheme="light")
    open_view(page, served, **{**SHORT, "stage": "masked_scores"})
    read(page)
    before = page.evaluate(PIXEL)
    page.locator("#theme").click()
    wait_until(page, f"before => String(({PIXEL})()) !== String(before)", before)


def test_zoom_stays_at_another_head(page: Any, served: ServedPage) -> None:
    open_view(page, served, **LONG)
    read(page)
    page.locator(".plot [data-zoom=in]").click()
    page.wait_for_selector(".plot-open")
    page.keyboard.press("Escape")
    wait_for_level(page, "head")
    page.locator(".stage .head").first.click()
    page.wait_for_selector("h1:has-text('head 0')")
    page.locator(".card[data-key$='self_attention.weights']").click()
    wait_for_level(page, "matrix")
    recorded: Any = served.example().trace["decoder.layers.1.self_attention.weights"][0, 0]
    assert read(page) == float(recorded[:2, :2].max())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_in_a_canvas(page: Any, served: ServedPage, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    open_view(page, served, **SHORT)
    read(page)
    assert faults_of_axe(page) == []


def test_canvas_fits_a_narrow_window(page: Any, served: ServedPage) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_view(page, served, **LONG)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_two_pages_at_once_show_their_own_numbers(page: Any, served: ServedPage) -> None:
    other = page.context.new_page()
    open_view(page, served, **LONG)
    open_view(other, served, **{**SHORT, "head": 0})
    values = {tab: read(tab) for tab in (page, other)}
    trace = served.example().trace
    assert values[other] == float(trace["decoder.layers.1.self_attention.weights"][0, 0, 0, 0])
    open_view(page, served, **LONG)
    assert read(page) == weights(served)[:2, :2].max() == values[page]
