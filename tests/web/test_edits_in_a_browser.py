"""Edits of the inputs in headless Chromium: none is lost, and an answer that is no page leaves the view as it was."""

from typing import Any

import pytest

from web.conftest import SOURCE, TARGET, ServedPage, open_view, wait_for_level, wait_until

FORCED = {"source": SOURCE, "target": TARGET, "mode": "forced"}
PLACE = {"part": "decoder", "layer": 1, "sublayer": "cross_attention", "head": 1}
CLICK = "new MouseEvent('click', {bubbles: true, cancelable: true})"
TYPE = """edits => { for (const [name, value] of edits) {
    const input = document.querySelector(`#input [name=${name}]`);
    input.focus();
    input.value = value;
    input.dispatchEvent(new Event("input", {bubbles: true}));
} }"""
"""Edit several inputs of the page, without a pause between them."""


def test_edits_that_follow_each_other_at_once_are_all_shown(page: Any, served: ServedPage) -> None:
    page.evaluate(TYPE, [["source", "the dog"], ["target", "le chat"]])
    page.wait_for_selector("h1:has-text('the dog')")
    wait_until(page, "() => location.search.includes('the+dog') && location.search.includes('le+chat')")
    assert page.locator("input[name=source]").input_value() == "the dog"
    assert page.locator("input[name=target]").input_value() == "le chat"
    page.evaluate(TYPE, [["target", "le chien"], ["mode", "greedy"]])
    wait_until(page, "() => !location.search.includes('forced')")
    assert page.locator("select[name=mode]").input_value() == "greedy"
    assert page.locator("input[name=target]").input_value() != "le chien"


def test_edit_is_kept_by_a_link_that_is_followed_at_once(page: Any, served: ServedPage) -> None:
    box = ".map a[aria-label^='Feed-forward']"
    page.evaluate(f'{TYPE[:-1]}; document.querySelector("{box}").dispatchEvent({CLICK}); }}', [["source", "the dog"]])
    wait_for_level(page, "head")
    assert "source=the+dog" in page.url
    assert page.locator("input[name=source]").input_value() == "the dog"


def test_edit_during_an_answer_is_not_lost(page: Any, served: ServedPage) -> None:
    page.evaluate(
        f"""([first, second]) => {{
            const type = {TYPE};
            const fetched = window.fetch;
            window.fetch = async (...all) => {{
                window.fetch = fetched;
                const answer = await fetched(...all);
                type(second);
                return answer;
            }};
            type(first);
        }}""",
        [[["source", "the dog"]], [["target", "le chat"]]],
    )
    wait_until(page, "() => location.search.includes('the+dog') && location.search.includes('le+chat')")
    assert page.locator("input[name=target]").input_value() == "le chat"


def test_emptied_source_gets_a_note(page: Any, served: ServedPage) -> None:
    page.locator("input[name=source]").fill("")
    page.wait_for_selector(".notes p:has-text('The sentence was empty')")


@pytest.mark.parametrize("status", [403, 422, 500])
def test_answer_that_is_no_page_is_a_message_and_the_view_stays(page: Any, served: ServedPage, status: int) -> None:
    before, html = page.url, page.locator("[data-slot=stage]").inner_html()
    page.route("**/?*part=*", lambda route: route.fulfill(status=status, body="It failed; go back.\n"))
    page.locator(".map a[aria-label^='Feed-forward']").last.click()
    page.wait_for_selector("#status:not(.spoken):has-text('It failed; go back.')")
    assert page.url == before
    assert page.locator("[data-slot=stage]").inner_html() == html
    assert page.evaluate("document.body.dataset.level") == "model"
    page.locator(".steps a.step").nth(2).click()
    wait_until(page, "() => location.search.includes('step=2')")


def test_escape_leaves_a_menu_before_the_view(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, **PLACE)
    page.locator("select[name=mode]").focus()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement === document.body")
    wait_for_level(page, "head")
    page.keyboard.press("Escape")
    wait_until(page, "() => !location.search.includes('head=')")


def test_long_sentence_leaves_room_for_the_view(page: Any, served: ServedPage) -> None:
    open_view(page, served, source="the old cat sleeps " * 40)
    lines = "(e => e.getBoundingClientRect().height / parseFloat(getComputedStyle(e).lineHeight))"
    assert page.evaluate(f"{lines}(document.querySelector('h1'))") < 3.5
