"""Menus of the exports in headless Chromium: by mouse and keyboard, copies, PNG pictures; and formulas that fit."""

import csv
import io
import struct
import zlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from web.conftest import ServedPage, faults_of_axe, open_view, wait_for_level
from web.test_explorer_in_a_browser import FORCED, PLACE, press_tab_to

# A button says "copied" for a second only: the tests decide when it is over.
KEEP_LABELS = "() => { window.later = []; window.setTimeout = call => window.later.push(call); }"
CELL = {**PLACE, "stage": "weights", "row": 2, "column": 1}
LONG_SUMS: dict[str, dict[str, Any]] = {
    "softmax": CELL,
    "dot product": {**PLACE, "stage": "scores", "row": 2, "column": 1},
    "linear": {"part": "encoder", "layer": 0, "sublayer": "feed_forward", "stage": "inner", "row": 1, "column": 3},
    "norm": {"part": "encoder", "layer": 0, "sublayer": "feed_forward_norm", "stage": "normed", "row": 1, "column": 3},
    "deviation": {"part": "encoder", "layer": 0, "sublayer": "feed_forward_norm", "stage": "norm.deviation", "row": 1},
    "log softmax": {"part": "output_projection", "stage": "log_probabilities", "row": 1, "column": 4},
    "probability": {"part": "output_projection", "stage": "probabilities", "row": 1, "column": 4},
}


def downloaded(page: Any, selector: str, by_key: bool = False) -> tuple[str, bytes]:
    """Name and bytes of the file that a link or button saves."""
    with page.expect_download() as pending:
        if by_key:
            page.keyboard.press("Enter")
        else:
            page.locator(selector).click()
    return pending.value.suggested_filename, Path(pending.value.path()).read_bytes()


def test_files_by_keyboard(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, **PLACE, stage="weights")
    press_tab_to(page, ".stage > .export summary")
    page.keyboard.press("Enter")
    press_tab_to(page, ".stage > .export a[data-key$='-csv']")
    name, content = downloaded(page, "", by_key=True)
    assert name.startswith("run-step_")
    assert name.endswith("-decoder.layers.1.cross_attention.weights.head1.csv")
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    recorded = served.example().trace["decoder.layers.1.cross_attention.weights"][0, 1].double()
    assert [float(row["value"]) for row in rows] == recorded.flatten().tolist()
    page.keyboard.press("Escape")
    assert page.locator("details.export[open]").count() == 0
    assert page.evaluate("document.activeElement.matches('.stage > .export summary')")
    wait_for_level(page, "matrix")
    page.keyboard.press("Escape")
    wait_for_level(page, "head")
    assert served.complaints == []


@pytest.mark.parametrize("fields", [{}, {**PLACE, "stage": "weights"}, {"panel": "beam"}, {"part": "decoder"}])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_png_is_the_light_svg_at_twice_its_size(
    page: Any, served: ServedPage, fields: dict[str, Any], scheme: str
) -> None:
    page.emulate_media(color_scheme=scheme)
    open_view(page, served, **FORCED, **fields)
    page.locator(".stage > .export summary").click()
    _, svg = downloaded(page, ".stage > .export section:first-of-type a[data-key$='-svg']")
    name, png = downloaded(page, ".stage > .export section:first-of-type [data-png]")
    assert name.endswith(".png")
    root = ElementTree.fromstring(svg)
    width, height = struct.unpack(">II", png[16:24])
    assert width == pytest.approx(2 * float(root.get("width", "0")), abs=2)
    assert height == pytest.approx(2 * float(root.get("height", "0")), abs=2)
    assert first_pixel(png) == (255, 255, 255)
    assert served.complaints == []


def first_pixel(png: bytes) -> tuple[int, ...]:
    """Color of the upper left corner; its filter has nothing to add there."""
    data, place = b"", 8
    while place < len(png):
        size = struct.unpack(">I", png[place : place + 4])[0]
        if png[place + 4 : place + 8] == b"IDAT":
            data += png[place + 8 : place + 8 + size]
        place += size + 12
    return tuple(zlib.decompress(data)[1:4])


def test_copy_is_the_file(page: Any, served: ServedPage) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_view(page, served, **FORCED, **CELL)
    page.evaluate(KEEP_LABELS)
    page.locator(".cell .export summary").click()
    for number, label in enumerate(("LaTeX", "Python", "CSV")):
        button = page.locator(".cell .export [data-copy-of]", has_text=label)
        button.click()
        page.locator(".cell .export-copies button", has_text="copied").nth(number).wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        _, content = downloaded(page, f".cell .export .export-files a:text-is('{label}')")
        assert copied.replace("\r\n", "\n") == content.decode()
    page.evaluate("() => { for (const call of window.later) call(); }")
    assert "copied" not in page.locator(".cell .export-copies").inner_text()
    assert served.complaints == []


def test_share_copies_the_address(page: Any, served: ServedPage) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate(KEEP_LABELS)
    page.locator("#share").click()
    page.wait_for_selector("#share:has-text('copied')")
    assert page.evaluate("navigator.clipboard.readText()") == page.url


def test_menu_closes_at_a_click_elsewhere(page: Any, served: ServedPage) -> None:
    page.locator(".stage > .export summary").click()
    assert page.locator("details.export[open]").count() == 1
    page.locator("nav.map").click(position={"x": 4, "y": 4})
    assert page.locator("details.export[open]").count() == 0


def test_file_that_is_too_large_says_so(page: Any, served: ServedPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.web.explorer.exports.formats.MAX_CSV_NUMBERS", 3)
    open_view(page, served, **FORCED, **PLACE, stage="weights")
    page.evaluate(KEEP_LABELS)
    page.locator(".stage > .export summary").click()
    page.locator(".stage > .export section:first-of-type [data-copy-of]").first.click()
    page.wait_for_selector(".export-copies button[title^='the tensor has']:has-text('failed')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("fields", [{}, CELL])
def test_open_menus_are_accessible_and_fit(page: Any, served: ServedPage, fields: dict[str, Any], scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    for width in (1440, 1024, 390):
        page.set_viewport_size({"width": width, "height": 844})
        open_view(page, served, **FORCED, **fields)
        page.evaluate("document.querySelectorAll('details.export').forEach(one => one.open = true)")
        box = page.locator(".stage .export-menu").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert faults_of_axe(page) == []


@pytest.mark.parametrize("width", [1440, 1024, 390])
@pytest.mark.parametrize("name", LONG_SUMS)
def test_long_sums_fit_their_panel(page: Any, served: ServedPage, name: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    open_view(page, served, **FORCED, **LONG_SUMS[name])
    assert page.locator(".cell .math math").count() == 1
    wide = page.locator(".cell .math").evaluate("one => one.scrollWidth - one.clientWidth")
    assert wide <= 0


def test_table_of_a_short_sentence_fits_beside_a_number(page: Any, served: ServedPage) -> None:
    open_view(page, served, source="the cat", target="le chat", mode="forced", **CELL)
    wide = page.locator(".sheet .scroll").evaluate("one => one.scrollWidth - one.clientWidth")
    assert wide <= 0
