"""The page in headless Chromium: journeys by mouse and by keyboard, numbers, checks, and requests."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.generate import filters
from glassformer.text.decimals import weight
from web.conftest import (
    PATIENCE,
    SOURCE,
    TARGET,
    TOKEN,
    ServedPage,
    faults_of_axe,
    open_view,
    wait_for_level,
    wait_until,
)

WEIGHTS = "decoder.layers.1.cross_attention.weights"
PLACE = {"part": "decoder", "layer": 1, "sublayer": "cross_attention", "head": 1}
FORCED = {"source": SOURCE, "target": TARGET, "mode": "forced"}
VIEWS: dict[str, dict[str, Any]] = {
    "model": {},
    "layer": {"part": "decoder", "layer": 1},
    "embedding": {"part": "source_embedding"},
    "head": PLACE,
    "feed-forward": {"part": "encoder", "layer": 0, "sublayer": "feed_forward"},
    "matrix": {**PLACE, "stage": "weights"},
    "cell": {**PLACE, "stage": "weights", "row": 2, "column": 1},
    "probabilities": {"part": "output_projection", "stage": "probabilities", "row": 1, "column": 4},
    "error": {"source": "x" * 5000},
    "tour": {"panel": "tour"},
    "beam": {"panel": "beam"},
    "lens": {"panel": "lens", "step": 1},
    "attribution": {"panel": "attribution", "step": 2},
    "norm": {"part": "decoder", "layer": 1, "sublayer": "feed_forward_norm"},
    "step of the tour": {"part": "encoder", "layer": 0, "sublayer": "self_attention", "tour": 3},
    "words": {"units": "words", "special": "hidden"},
    "lab": {"panel": "lab", "edit": "decoder.layers.1.cross_attention.1:zero"},
    "patches": {"panel": "lab", "donor": "the old dog sleeps", "edit": "encoder.layers.0.self_attention.result@1"},
    "compare": {**PLACE, "panel": "compare", "other_checkpoint": "step_00000040"},
    "training": {**PLACE, "panel": "training"},
    "alignment": {"panel": "alignment", "gold": "0-0 1?1 2-2 3-3", "reading": "1.0.naive"},
    "atlas": {"panel": "atlas", "n": 3, "order": "-entropy"},
    "vectors": {"panel": "vectors", "position": 2, "merge": 1},
}


def test_journey_from_model_to_cell_by_mouse(page: Any, served: ServedPage) -> None:
    page.locator(".map a[aria-label^='Multi-head attention']").last.click()
    wait_for_level(page, "head")
    page.locator(".stage .head").nth(1).click()
    page.wait_for_selector("h1:has-text('head 1')")
    page.locator(".card", has_text="attention weights").click()
    wait_for_level(page, "matrix")
    page.locator(".numbers tbody tr").nth(2).locator("td a").nth(1).click()
    wait_for_level(page, "cell")
    assert page.locator(".cell .check").inner_text().startswith("✓")
    page.locator(".cell mn.next").first.click()
    page.wait_for_selector("h1:has-text('caled scores')")
    page.locator(".terms a").first.click()
    page.wait_for_selector("h1:has-text('Scores')")
    for level in ("matrix", "head"):
        page.keyboard.press("Escape")
        wait_for_level(page, level)
    page.go_back()
    wait_for_level(page, "matrix")
    assert served.complaints == []


def test_journey_from_model_to_cell_by_keyboard(page: Any, served: ServedPage) -> None:
    press_tab_to(page, ".map a[aria-label^='Masked']")
    page.keyboard.press("Enter")
    wait_for_level(page, "head")
    press_tab_to(page, ".card[data-key$='self_attention.weights']")
    page.keyboard.press("Enter")
    wait_for_level(page, "matrix")
    press_tab_to(page, ".numbers a")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    wait_for_level(page, "cell")
    assert "row=2" in page.url
    assert "column=1" in page.url
    assert page.evaluate("document.activeElement.dataset.key") == "cell-2-1"
    press_tab_to(page, ".terms a")
    page.keyboard.press("Enter")
    wait_until(page, "() => !location.search.includes('stage=weights')")
    for level in ("matrix", "head", "head", "layer", "model"):
        before = page.url
        page.keyboard.press("Escape")
        wait_until(page, "before => location.href !== before", before)
        wait_for_level(page, level)
    assert served.complaints == []


def press_tab_to(page: Any, selector: str) -> None:
    """Press Tab until the focus is on what matches ``selector``."""
    for _ in range(150):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"Tab does not reach {selector}")


@pytest.mark.parametrize("stage", ["q", "scores", "weights", "context"])
def test_every_number_of_a_matrix_is_that_of_the_trace(page: Any, served: ServedPage, stage: str) -> None:
    open_view(page, served, **FORCED, **PLACE, stage=stage)
    recorded = served.example().trace[f"decoder.layers.1.cross_attention.{stage}"][0, 1].double()
    rows = page.locator(".numbers tbody tr").all()
    values = [[float(cell.get_attribute("data-value")) for cell in row.locator("td a").all()] for row in rows]
    assert values == recorded.tolist()
    if stage == "weights":
        texts = [row.locator("td a").all_inner_texts() for row in rows]
        assert texts == [[weight(value) for value in row] for row in recorded.tolist()]


def test_every_number_of_a_cell_is_that_of_the_trace(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, **PLACE, stage="scores", row=2, column=1)
    trace, path = served.example().trace, "decoder.layers.1.cross_attention"
    assert float(page.locator(".cell .value").get_attribute("data-value")) == float(trace[f"{path}.scores"][0, 1, 2, 1])
    q, k = trace[f"{path}.q"][0, 1, 2].double(), trace[f"{path}.k"][0, 1, 1].double()
    terms = page.locator(".terms tbody tr").all()
    assert len(terms) == len(q)
    values = [[float(one.get_attribute("data-value")) for one in term.locator("a").all()] for term in terms]
    assert sorted(values) == sorted(map(list, zip(q.tolist(), k.tolist(), strict=True)))


def test_distribution_is_that_of_the_trace(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, step=2)
    row = served.example().trace["output_projection.probabilities"][0, 2]
    for one in page.locator(".candidates li").all():
        index = int(one.get_attribute("data-index"))
        assert float(one.get_attribute("data-probability")) == float(row[index])
        assert one.locator(".probability").inner_text() == f"{float(row[index]):.4f}"
    assert page.locator(".candidates li.target").count() == 1


def test_corrupted_tensor_turns_its_check_red(page: Any, served: ServedPage) -> None:
    trace = served.example().trace
    good = trace[WEIGHTS]
    bad = good.clone()
    bad[0, 1, 2, 1] += 0.25
    trace[WEIGHTS] = bad
    try:
        open_view(page, served, **FORCED, **PLACE, stage="weights", row=2, column=1)
        assert page.locator(".numbers td.wrong").count() == 1
        assert page.locator(".sheet .check.failed").inner_text().startswith("✗ 1 of")
        assert page.locator(".cell.failed .check.failed").inner_text().startswith("✗")
        trace[WEIGHTS] = bad + 0.25
        open_view(page, served, **FORCED, **PLACE)
        assert page.locator(".card.wrong", has_text="attention weights").count() == 1
    finally:
        trace[WEIGHTS] = good
    open_view(page, served, **FORCED, **PLACE, stage="weights", row=2, column=1)
    assert page.locator(".wrong, .failed").count() == 0


def test_editing_the_sentence_changes_every_panel(page: Any, served: ServedPage) -> None:
    before = {
        slot: page.locator(f"[data-slot={slot}]").inner_html() for slot in ("map", "stage", "inspector", "timeline")
    }
    page.locator("input[name=source]").fill("the young women love the red flower")
    page.wait_for_selector("h1:has-text('young women')")
    for slot, html in before.items():
        assert page.locator(f"[data-slot={slot}]").inner_html() != html, slot
    assert "young+women" in page.url
    assert page.evaluate("document.activeElement.name") == "source"
    page.locator("input[name=target]").fill("le chat")
    page.wait_for_selector(".steps li:nth-child(4)")
    assert page.locator("select[name=mode]").input_value() == "forced"
    page.locator("select[name=mode]").select_option("greedy")
    wait_until(page, "() => !location.search.includes('forced')")
    assert served.complaints == []


def test_address_gives_the_same_view_in_another_tab(page: Any, served: ServedPage) -> None:
    page.locator(".steps a.step").nth(2).click()
    wait_until(page, "() => location.search.includes('step=2')")
    page.locator(".map a[aria-label^='Feed-forward']").last.click()
    wait_for_level(page, "head")
    other = page.context.new_page()
    other.goto(page.url)
    for slot in ("map", "stage", "inspector", "timeline"):
        assert other.locator(f"[data-slot={slot}]").inner_text() == page.locator(f"[data-slot={slot}]").inner_text()


def test_no_request_leaves_the_origin(page: Any, served: ServedPage) -> None:
    for fields in VIEWS.values():
        open_view(page, served, **{**FORCED, **fields})
    assert len(served.requests) > 10
    assert [url for url in served.requests if not url.startswith((served.origin, "data:"))] == []
    assert [text for text in served.complaints if "422" not in text] == []


def test_script_in_a_text_is_text(page: Any, served: ServedPage) -> None:
    attack = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    for fields in ({}, PLACE, {"part": attack}, {"checkpoint": attack}, {**PLACE, "stage": attack}):
        open_view(page, served, source=f"the {attack} cat", target=attack, mode="forced", **fields)
        assert page.title() != "owned"
        assert page.locator("main script, main img[src=x], .notes script").count() == 0
    open_view(page, served, source=f"the {attack} cat", target="le chat", mode="forced")
    assert "<script>" in page.locator("h1").inner_text()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault(page: Any, served: ServedPage, view: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    open_view(page, served, **{**FORCED, **VIEWS[view]})
    assert faults_of_axe(page) == []


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_views_fit_the_window(page: Any, served: ServedPage, view: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    open_view(page, served, **{**FORCED, **VIEWS[view]})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_answer_of_a_click_is_in_sight_in_one_column(page: Any, served: ServedPage) -> None:
    page.set_viewport_size({"width": 390, "height": 844})

    def top_of(selector: str) -> float:
        top: float = page.evaluate("s => document.querySelector(s).getBoundingClientRect().top", selector)
        return top

    open_view(page, served, **FORCED, step=2)
    page.get_by_role("link", name="by head").click()
    page.wait_for_selector(".lab")
    wait_until(page, "() => document.querySelector('.stage').getBoundingClientRect().top < 422")
    assert top_of(".stage") >= -1
    open_view(page, served, **{**FORCED, **PLACE, "stage": "weights"})
    page.locator(".numbers td a").nth(5).click()
    wait_for_level(page, "cell")
    wait_until(page, "() => Math.abs(document.querySelector('.cell').getBoundingClientRect().top) < 422")
    assert top_of(".cell") >= -1
    shown = page.evaluate("scrollY")
    page.locator(".steps a").last.click()  # the timeline is always in sight, and the view stays
    wait_until(page, "() => document.querySelector('.steps li:last-child [aria-current]') !== null")
    assert page.evaluate("scrollY") == shown


def test_step_of_the_address_is_in_sight_in_the_timeline(page: Any, served: ServedPage) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    inside = """() => {
      const boxes = [".steps", ".steps [aria-current]"].map(s => document.querySelector(s).getBoundingClientRect());
      const [outer, inner] = boxes;
      return outer.left <= inner.left && inner.right <= outer.right;
    }"""
    count = len(served.example().predicted_ids)
    for step in (0, count // 2, count - 1, 0):
        open_view(page, served, **FORCED, step=step)
        assert page.evaluate(inside), step
    assert page.evaluate("document.querySelector('.steps').scrollWidth > document.querySelector('.steps').clientWidth")


def test_first_view_is_small(page: Any, served: ServedPage) -> None:
    context = page.context.browser.new_context()
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()
    session = context.new_cdp_session(tab)
    session.send("Network.enable")
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    tab.goto(f"{served.origin}/?token={TOKEN}", wait_until="networkidle")
    context.close()
    assert len(sizes) >= 7
    assert sum(sizes) <= 300_000


def test_scripts_of_the_page_stay_small() -> None:
    import glassformer.web.explorer

    folder = Path(glassformer.web.explorer.__file__).parent / "static"
    scripts = [path.read_text(encoding="utf-8") for path in folder.glob("*.js")]
    assert sum(text.count("\n") for text in scripts) <= 3000
    for text in scripts:
        assert text.startswith("// @ts-check\n")
        assert not re.search(r"https?://", text)


@pytest.mark.parametrize(
    ("temperature", "k", "p"),
    [(1.0, 30, 1.0), (0.3, 30, 1.0), (2.5, 5, 1.0), (1.0, 30, 0.6), (1.7, 7, 0.5), (0.1, 1, 0.1)],
)
def test_sliders_compute_what_decoding_does(
    page: Any, served: ServedPage, temperature: float, k: int, p: float
) -> None:
    logits = torch.randn(1, 30, dtype=torch.float64) * 2
    kept = logits
    for one in (filters.temperature(temperature), filters.top_k(k), filters.top_p(p)):
        kept = one(kept, torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    script = """async ([logits, settings]) => {
        const { distribution } = await import("/static/output.js");
        const values = Float64Array.from(logits);
        const order = Uint32Array.from(values, (_, i) => i).sort((a, b) => values[b] - values[a]);
        return Array.from(distribution(values, order, settings));
    }"""
    settings = {"temperature": temperature, "topK": k, "topP": p}
    found = page.evaluate(script, [logits[0].tolist(), settings])
    assert found == pytest.approx(kept.softmax(-1)[0].tolist(), abs=1e-9)


def test_sliders_change_the_distribution(page: Any, served: ServedPage) -> None:
    first = page.locator(".candidates .probability").first
    before = first.inner_text()
    page.locator("[name=temperature]").fill("3")
    wait_until(page, "before => document.querySelector('.candidates .probability').textContent !== before", before)
    logits = served.example().trace["output_projection.logits"][0, 0].double()
    assert first.inner_text() == f"{float((logits / 3).softmax(-1).max()):.4f}"
    page.locator("[name=top_k]").fill("0")
    wait_until(page, "() => document.querySelector('[data-left]').textContent.startsWith('1 word')")
    assert first.inner_text() == "1.0000"
    page.locator("[data-reset]").click()
    wait_until(page, "before => document.querySelector('.candidates .probability').textContent === before", before)


def test_sliders_stay_where_they_are_at_another_step(page: Any, served: ServedPage) -> None:
    page.locator("[name=temperature]").fill("3")
    page.locator(".steps a.step").nth(2).click()
    wait_until(page, "() => location.search.includes('step=2')")
    assert page.locator("[name=temperature]").input_value() == "3"
    logits = served.example().trace["output_projection.logits"][0, 2].double()
    text = f"{float((logits / 3).softmax(-1).max()):.4f}"
    wait_until(page, "text => document.querySelector('.candidates .probability').textContent === text", text)


def test_node_of_the_beam_tree_becomes_the_target(page: Any, served: ServedPage) -> None:
    open_view(page, served, source=SOURCE)
    page.locator(".tabs a", has_text="Beam").click()
    page.wait_for_selector(".node.best")
    node = page.locator(".node.pruned[href]").last
    text = node.get_attribute("aria-label").rpartition(":")[0]
    node.press("Enter")
    page.wait_for_selector(".beam", state="detached")
    assert page.locator("input[name=target]").input_value() == text
    assert page.locator("select[name=mode]").input_value() == "forced"
    assert served.complaints == []


def test_head_is_switched_off_and_on_again(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, panel="lab")
    before = page.locator(".candidates").inner_text()
    page.locator(".toggles tbody tr").last.locator("a").nth(1).click()
    page.wait_for_selector(".chips li")
    assert "cross-attention, head 1: zero" in page.locator(".chips").inner_text()
    assert page.locator(".candidates").inner_text() != before
    assert page.locator(".toggles .off").count() == 1
    page.locator(".map a[aria-label^='Multi-head attention']").last.click()
    wait_for_level(page, "head")
    assert page.locator(".stage .head.off").count() == 1
    page.locator(".chips a[aria-label^=remove]").click()
    page.wait_for_selector(".chips li", state="detached")
    assert page.locator(".candidates").inner_text() == before
    assert served.complaints == []


def test_quick_steps_with_motion_end_at_the_last_view(page: Any, served: ServedPage) -> None:
    page.emulate_media(reduced_motion="no-preference")
    places = (".map a[aria-label^='Feed-forward']", ".map a[aria-label^='Softmax']", ".map a[aria-label^='Masked']")
    for place in places:
        page.locator(place).last.click()
    page.wait_for_selector("h1:has-text('Self-attention')")
    wait_for_level(page, "head")
    page.keyboard.press("Escape")
    wait_for_level(page, "layer")
    assert served.complaints == []
