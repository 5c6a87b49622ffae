"""The page opened by double-click, that is from file://, in a browser without a network."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer import examine
from glassformer.explain.report import report
from glassformer.text.decimals import aligned, weight
from random_translator import random_translator

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")

LINES = ["a small dog sees the big cat", "der kleine Hund sieht die große Katze"]
PATIENCE = 180_000  # milliseconds: a machine may have other work
SIZES = {"desktop": {"width": 1360, "height": 900}, "phone": {"width": 390, "height": 844}}
CONTROLS = "a[href], button, select, summary, [tabindex='0']"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report(examine(random_translator(LINES), *LINES)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"], timeout=PATIENCE
        )
        yield started
        started.close()


class Opened:
    """A page with all that it asked of the network and all that it complained of."""

    def __init__(self, browser: Any, file: Path, scheme: str = "light", size: str = "desktop"):
        self.context = browser.new_context(viewport=SIZES[size], color_scheme=scheme, reduced_motion="reduce")
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.route("**/*", lambda route: self._asked(route, file.as_uri()))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(file.as_uri())

    def _asked(self, route: Any, own: str) -> None:
        self.requests.append(route.request.url)
        if route.request.url.partition("#")[0] == own:
            route.continue_()
        else:
            route.abort()

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def all(self, script: str, *arguments: Any) -> Any:
        return self.page.evaluate(script, *arguments)


def test_it_asks_nothing_of_anybody_and_complains_of_nothing(browser: Any, file: Path) -> None:
    with Opened(browser, file) as opened:
        for button in opened.page.locator("button:visible").all()[::7]:
            button.click()
        opened.page.locator("select").first.select_option("entropy")
        assert opened.requests == [file.as_uri()]
        assert opened.complaints == []


def test_a_token_lights_up_in_every_panel(browser: Any, file: Path) -> None:
    with Opened(browser, file) as opened:
        opened.page.locator("[data-side=source][data-position='2'].token").hover()
        panels = opened.all(
            "() => [...new Set([...document.querySelectorAll('.linked')].map(e => e.closest('section')?.id))]"
        )
        for panel in ("step-1", "step-3", "step-4", "step-6", "step-9", "attention", "alignment"):
            assert panel in panels
        others = "() => [...document.querySelectorAll('.linked')].every(e => e.dataset.side === 'source')"
        assert opened.all(others.replace(".linked", "[data-side].linked"))
        assert opened.page.locator(".gallery.row-marked").count() >= 2
        opened.page.locator("h1").hover()
        assert opened.page.locator(".linked").count() == 0


def test_a_cell_lights_up_who_asks_and_who_is_asked(browser: Any, file: Path) -> None:
    with Opened(browser, file) as opened:
        opened.page.locator("#step-9 .numbers-table tbody tr").nth(1).locator("td").nth(3).hover()
        lit = "[...document.querySelectorAll('nav .linked')]"
        found = opened.all(f"() => {lit}.map(e => e.dataset.side + e.dataset.position)")
        assert found == ["source3", "target1"]
        assert "→" in opened.page.locator("#step-9 .readout").inner_text()


def test_a_pressed_token_stays_marked(browser: Any, file: Path) -> None:
    with Opened(browser, file) as opened:
        token = opened.page.locator(".token").nth(1)
        token.click()
        opened.page.locator("h1").hover()
        opened.page.locator("h1").click()
        assert token.get_attribute("aria-pressed") == "true"
        assert opened.page.locator(".linked").count() > 5
        token.click()
        assert token.get_attribute("aria-pressed") == "false"


def test_tab_reaches_every_control(browser: Any, file: Path) -> None:
    with Opened(browser, file) as opened:
        controls = f"""[...document.querySelectorAll("{CONTROLS}")]"""
        seen = f"{controls}.filter(e => e.tabIndex >= 0 && e.checkVisibility())"
        expected = opened.all(f"() => {seen}.map((e, place) => e.dataset.control = place).length")
        reached = set()
        for _ in range(expected + 1):
            opened.page.keyboard.press("Tab")
            reached.add(opened.all("() => document.activeElement.dataset.control"))
        assert {str(place) for place in range(expected)} <= reached
        first = opened.page.locator(".skip")
        first.focus()
        opened.page.keyboard.press("Enter")
        assert opened.all("() => document.activeElement.id") == "story"


def test_arrow_keys_move_within_a_matrix_and_among_heads(browser: Any, file: Path) -> None:
    with Opened(browser, file) as opened:
        table = opened.page.locator("#step-8 .numbers-table").last
        table.locator("td[tabindex='0']").focus()
        for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft"):
            opened.page.keyboard.press(key)
        where = "() => [document.activeElement.parentElement.sectionRowIndex, document.activeElement.cellIndex]"
        assert opened.all(where) == [1, 2]
        opened.page.keyboard.press("Home")
        assert opened.all(where) == [1, 1]
        opened.page.keyboard.press("ArrowLeft")
        assert opened.all(where) == [1, 1]
        head = opened.page.locator("#step-3 .head").first
        head.focus()
        opened.page.keyboard.press("ArrowRight")
        second = opened.page.locator("#step-3 .head").nth(1)
        assert second.get_attribute("aria-checked") == "true"
        assert opened.page.locator("#step-3 .stage .title").inner_text() == "weights of head 1"


def test_another_head_shows_its_own_numbers(browser: Any, file: Path) -> None:
    example = examine(random_translator(LINES), *LINES)
    weights = example.trace["encoder.layers.0.self_attention.weights"][0, 1]
    with Opened(browser, file) as opened:
        opened.page.locator("#step-3 .head").nth(1).click()
        shown = opened.page.locator("#step-3 .stage tbody tr").nth(2).locator("td").all_inner_texts()
        assert shown == [f"{value:.2f}" for value in [*weights[2].tolist(), 1.0]]


def test_scripts_round_as_python_does(browser: Any, file: Path) -> None:
    """Also at ties, as in the uniform attention to eight keys."""
    values = [
        0.0,
        0.125,
        0.375,
        0.625,
        0.875,
        -0.125,
        1.0,
        0.005,
        1.005,
        0.285,
        1e-9,
        *np.linspace(-2, 2, 401).tolist(),
    ]
    with Opened(browser, file) as opened:
        assert opened.all("values => values.map(weight)", values) == list(map(weight, values))
        for digits in (1, 2, 3):
            written = opened.all("([values, digits]) => values.map(one => aligned(one, digits))", [values, digits])
            assert written == [aligned(value, digits) for value in values]


def test_heads_can_be_ordered(browser: Any, file: Path) -> None:
    with Opened(browser, file) as opened:
        for order in ("distance", "entropy", "layer"):
            opened.page.locator("#attention .order").last.select_option(order)
            group = opened.page.locator("#attention .heads").last.locator(".head")
            values = [float(str(one.get_attribute(f"data-{order}"))) for one in group.all()]
            assert values == sorted(values)
            assert len(values) == 4


def test_a_matrix_is_copied_in_full(browser: Any, file: Path) -> None:
    example = examine(random_translator(LINES), *LINES)
    weights = example.trace["decoder.layers.0.self_attention.weights"][0, 0]
    with Opened(browser, file) as opened:
        opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
        figure = opened.page.locator("#step-8 .sheet").last
        figure.locator("[data-copies=csv]").click()
        opened.page.wait_for_function("() => document.querySelector('.spoken').textContent === 'Copied.'")
        lines = opened.all("() => navigator.clipboard.readText()").splitlines()
        assert lines[0].split(",")[1] == "<s>"
        assert len(lines) == 1 + len(weights)
        assert [float(value) for value in lines[3].split(",")[1:]] == weights[2].tolist()
        opened.all("() => { document.querySelector('.spoken').textContent = ''; }")
        figure.locator("[data-copies=latex]").click()
        opened.page.wait_for_function("() => document.querySelector('.spoken').textContent === 'Copied.'")
        assert "\\begin{tabular}{lrrrrrrrr}" in opened.all("() => navigator.clipboard.readText()")
        assert opened.all("() => escaped('x_1 − {∞}')") == r"x\_1 $-$ \{$\infty$\}"


def test_a_number_leads_to_its_formula(browser: Any, file: Path) -> None:
    with Opened(browser, file) as opened:
        chain = opened.page.locator("#step-12 .formula")
        chain.first.locator("mn.next").first.click()
        assert opened.all("() => document.activeElement.dataset.place") == chain.nth(1).get_attribute("data-place")


def test_light_and_dark_can_be_switched(browser: Any, file: Path) -> None:
    ground = "() => getComputedStyle(document.body).backgroundColor"
    with Opened(browser, file) as opened:
        before = opened.all(ground)
        opened.page.locator(".theme").click()
        assert opened.all(ground) != before
        opened.page.locator(".theme").click()
        assert opened.all(ground) == before


@pytest.mark.parametrize(("scheme", "size"), [("light", "desktop"), ("dark", "phone")])
def test_axe_finds_no_fault(browser: Any, file: Path, scheme: str, size: str) -> None:
    axe = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
    source = (Path(str(axe.__file__)).parent / "axe.min.js").read_text(encoding="utf-8")
    with Opened(browser, file, scheme, size) as opened:
        opened.all(source + "\n;0")
        faults = "(await axe.run()).violations.map(v => [v.id, v.nodes.map(n => n.html).slice(0, 3)])"
        found = opened.all(f"async () => {faults}")
        assert found == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_it_fits_the_window(browser: Any, file: Path, tmp_path: Path, scheme: str, size: str) -> None:
    with Opened(browser, file, scheme, size) as opened:
        assert opened.all("() => document.documentElement.scrollWidth <= innerWidth")
        picture = tmp_path / f"{size}-{scheme}.png"
        opened.page.screenshot(path=picture)
        assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with two unbreakable words of 900 characters."""
    lines = ["x" * 900 + " dog", "der " + "y" * 900]
    path = tmp_path_factory.mktemp("unbroken") / "report.html"
    path.write_text(report(examine(random_translator(lines), *lines)), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [390, 1024, 1280])
def test_report_with_900_unbroken_characters_does_not_scroll_sideways(
    browser: Any, unbroken: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SIZES, "given", {"width": width, "height": 900})
    with Opened(browser, unbroken, "light", "given") as opened:
        assert opened.all("() => document.documentElement.scrollWidth <= innerWidth")
        outside = "() => [...document.querySelectorAll('h1 .said')].filter(e => e.scrollWidth > e.clientWidth).length"
        assert opened.all(outside) == 0


def test_report_headline_shrinks_with_its_length(browser: Any, file: Path, unbroken: Path) -> None:
    sizes = []
    for path in (file, unbroken):
        with Opened(browser, path, "light", "phone") as opened:
            sizes.append(opened.all("() => parseFloat(getComputedStyle(document.querySelector('h1')).fontSize)"))
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize(("size", "drawn"), [("desktop", "wide"), ("phone", "narrow")])
def test_model_diagram_fits_the_window(browser: Any, file: Path, size: str, drawn: str) -> None:
    with Opened(browser, file, "light", size) as opened:
        visible = "[...document.querySelectorAll('.drawing')].filter(e => e.checkVisibility())"
        assert opened.all(f"() => {visible}.map(e => e.classList.contains('{drawn}'))") == [True]
        assert opened.all(f"() => {visible}.every(e => e.scrollWidth <= e.clientWidth)")
        edges = f"() => {visible}.flatMap(e => [...e.querySelectorAll('rect')]).map(e => e.getBoundingClientRect())"
        assert opened.all(f"{edges}.every(box => box.left >= 0 && box.right <= innerWidth)")


def test_last_step_table_fits_without_scrolling(browser: Any, file: Path) -> None:
    for size in SIZES:
        with Opened(browser, file, "light", size) as opened:
            assert opened.all("() => (e => e.scrollWidth <= e.clientWidth)(document.querySelector('#step-12 .words'))")


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_table_of_contents_marks_the_visible_section(browser: Any, file: Path, size: str) -> None:
    with Opened(browser, file, "light", size) as opened:
        for section in ("summary", "step-3", "step-12", "alignment"):
            opened.all(f"() => document.getElementById('{section}').scrollIntoView()")
            opened.page.wait_for_function(
                f"() => document.querySelector('.contents [aria-current]')?.hash === '#{section}'"
            )
        box = opened.page.locator(".way summary").bounding_box()
        assert box is not None
        assert 0 <= box["y"] < 900
