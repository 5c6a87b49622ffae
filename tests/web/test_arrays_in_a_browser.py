"""Pages of images and of series in Chromium: accessibility, width and keyboard."""

from collections.abc import Iterator
from typing import Any

import pytest

from tiny_tasks import made
from web.conftest import PATIENCE, TOKEN, ServedPage, faults_of_axe, open_view, served_page, wait_until

HEAD = {"part": "encoder", "layer": 0, "sublayer": "self_attention", "head": 1}
VIEWS: dict[str, dict[str, Any]] = {"first": {}, "head": HEAD, "compare": {**HEAD, "panel": "compare"}}


@pytest.fixture(scope="module", params=["images", "forecasting"])
def arrays(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPage]:
    with served_page(made(tmp_path_factory, request.param).run) as one:
        yield one


@pytest.fixture
def tab(arrays: ServedPage, browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    opened = context.new_page()
    opened.goto(f"{arrays.origin}/?token={TOKEN}")
    yield opened
    context.close()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_in_images_and_series(tab: Any, arrays: ServedPage, view: str, scheme: str) -> None:
    tab.emulate_media(color_scheme=scheme)
    open_view(tab, arrays, **VIEWS[view])
    assert faults_of_axe(tab) == []


@pytest.mark.parametrize("width", [1440, 1024, 390])
@pytest.mark.parametrize("view", VIEWS)
def test_images_and_series_fit_the_window(tab: Any, arrays: ServedPage, view: str, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 844})
    open_view(tab, arrays, **VIEWS[view])
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_another_input_is_chosen_by_keyboard(tab: Any, arrays: ServedPage) -> None:
    open_view(tab, arrays, source=0)
    tab.locator("#input input[name=source]").focus()
    tab.keyboard.press("ArrowUp")
    wait_until(tab, "() => location.search.includes('source=1')")
