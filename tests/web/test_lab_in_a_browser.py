"""The lab in headless Chromium: a patch by a click, a row by its bars and by the keyboard, and answers in two parts."""

from typing import Any

import pytest

from web.conftest import SOURCE, TARGET, ServedPage, open_view, wait_for_level, wait_until

FORCED = {"source": SOURCE, "target": TARGET, "mode": "forced"}
DONOR = "the old dog sleeps"
CROSS = "decoder.layers.1.cross_attention"
WEIGHTS = {"part": "decoder", "layer": 1, "sublayer": "cross_attention", "head": 1, "stage": "weights", "row": 2}


def units(page: Any) -> list[int]:
    """Weights of the edited row in the address."""
    text = page.evaluate("new URLSearchParams(location.search).get('edit')")
    return [int(one) for one in text.rpartition(":")[2].split("-")]


def test_second_sentence_and_a_patch_change_every_panel(page: Any, served: ServedPage) -> None:
    page.locator(".tabs a", has_text="Lab").click()
    page.wait_for_selector(".donor")
    before = page.locator(".candidates").inner_text()
    page.locator("#donor").fill(DONOR)
    page.locator("#donor").press("Enter")
    page.wait_for_selector(".patches")
    assert "donor=the+old+dog+sleeps" in page.url
    assert page.locator("#donor").input_value() == DONOR
    assert page.locator(".candidates").inner_text() == before
    page.locator(".groups a", has_text="encoder: self-attention output").click()
    page.wait_for_selector(".patches td a[data-key='patch-encoder.layers.0.self_attention.result@all']")
    page.locator(".patches td a").last.click()
    page.wait_for_selector(".chips li")
    assert "all positions: patched" in page.locator(".chips").inner_text()
    assert page.locator(".patches .pressed").count() == 1
    assert page.locator(".candidates").inner_text() != before
    assert page.locator(".before-after").inner_text().count("original") == 1
    page.locator(".map a[aria-label^='Multi-head attention']").last.click()
    wait_for_level(page, "head")
    assert "patched" in page.locator(".chips").inner_text()
    page.locator(".chips a[aria-label^=remove]").click()
    page.wait_for_selector(".chips li", state="detached")
    assert page.locator(".candidates").inner_text() == before
    assert served.complaints == []


def test_arrow_keys_move_within_the_grid(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, panel="lab", donor=DONOR)
    page.locator(".patches td a").first.focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    key = page.evaluate("document.activeElement.dataset.key")
    assert key.endswith("@1")
    page.keyboard.press("Enter")
    page.wait_for_selector(".chips li")
    assert page.evaluate("document.activeElement.dataset.key") == key
    assert page.locator(".patches a[aria-pressed=true]").get_attribute("data-key") == key


def test_row_follows_its_bars_and_everything_follows_the_row(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, **WEIGHTS, column=0, step=2)
    before = page.locator(".candidates").inner_text()
    bar = page.locator(".bars input[type=range]").nth(1)
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2, steps=4)
    page.wait_for_timeout(400)  # a drag that rests is not taken away
    numbers = [float(one.input_value()) for one in page.locator(".bars input[type=number]").all()]
    assert numbers[1] > 0.9
    assert sum(numbers) == pytest.approx(1, abs=0.01)
    page.mouse.up()
    page.wait_for_selector(".chips li")
    assert units(page)[1] >= 950
    shown = [
        float(cell.get_attribute("data-value")) for cell in page.locator(".numbers tbody tr").nth(2).locator("a").all()
    ]
    total = sum(units(page))
    assert shown == pytest.approx([unit / total for unit in units(page)], abs=1e-6)
    assert page.locator(".candidates").inner_text() != before
    assert "row 2" in page.locator(".chips").inner_text()
    page.locator("[data-key=row-reset]").click()
    page.wait_for_selector(".chips li", state="detached")
    assert page.locator(".candidates").inner_text() == before
    assert served.complaints == []


def test_row_follows_arrow_keys_and_typed_numbers(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, **WEIGHTS, column=0)
    bar = page.locator(".bars input[type=range]").first
    value = int(bar.input_value())
    bar.focus()
    page.keyboard.press("ArrowRight" if value < 900 else "ArrowLeft")
    page.wait_for_selector(".chips li")
    assert abs(units(page)[0] - value) <= 10
    wait_until(page, "() => document.activeElement.dataset.key === 'bar-0'")
    number = page.locator(".bars input[type=number]").nth(2)
    number.fill("0.5")
    number.press("Enter")
    wait_until(page, "() => new URLSearchParams(location.search).get('edit').split(/[:-]/)[3] === '500'")
    assert sum(units(page)) == pytest.approx(1000, abs=3)
    assert page.locator(".bars input[type=range]").nth(2).input_value() == "500"


def test_weights_keep_their_shares(page: Any, served: ServedPage) -> None:
    script = """async all => {
        const { renormalized } = await import("/static/lab.js");
        return all.map(one => renormalized(...one));
    }"""
    free, hidden = [True, True, True], [True, True, False]
    cases = [
        [[500, 300, 200], 0, 0, free],
        [[500, 300, 200], 0, 1000, free],
        [[1000, 0, 0], 0, 400, free],
        [[600, 400, 0], 1, 100, hidden],
        [[1000, 0, 0], 0, 10, [True, False, False]],
        [[500, 300, 200], 1, 2000, free],
        [[500, 300, 200], 1, -5, free],
    ]
    assert page.evaluate(script, cases) == [
        [0, 600, 400],
        [1000, 0, 0],
        [400, 300, 300],
        [900, 100, 0],
        [1000, 0, 0],
        [0, 1000, 0],
        [714, 0, 286],
    ]


def test_long_analyses_follow_the_view(page: Any, served: ServedPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.web.explorer.traced.SMALL", 0)
    text = "the young cat sleeps"
    open_view(page, served, source=text, target=TARGET, mode="forced")
    parts: list[str] = []
    page.on("request", lambda request: parts.append(request.headers.get("x-fragment", "")))
    page.locator(".tabs a", has_text="Lab").click()
    wait_until(page, "() => document.querySelector('.toggles') && !document.querySelector('[data-pending]')")
    assert [part for part in parts if part] == ["first", "whole"]
    assert page.locator(".toggles td").first.inner_text() != "on"
    assert served.complaints == []


def test_lens_leads_to_another_step(page: Any, served: ServedPage) -> None:
    page.locator(".tabs a", has_text="Logit lens").click()
    page.wait_for_selector(".lens .check.passed")
    page.locator(".lens-grid tbody tr").first.locator("a").nth(2).click()
    wait_until(page, "() => location.search.includes('step=2')")
    assert page.locator(".lens-grid td[aria-current]").count() == 3
    assert served.complaints == []
