"""Alignment, atlas and text to vectors in headless Chromium: a journey through each, and the job at the HTTP door."""

from threading import Event
from typing import Any

import pytest

from glassformer.alignment import write_pharaoh
from glassformer.web.explorer.atlas_job import AtlasJob
from glassformer.web.explorer.selection import parse_address
from web.conftest import SOURCE, TARGET, ServedPage, open_view, wait_for_level, wait_until

FORCED = {"source": SOURCE, "target": TARGET, "mode": "forced"}


def test_journey_through_the_alignment(page: Any, served: ServedPage) -> None:
    page.locator(".tabs a", has_text="Alignment").click()
    page.wait_for_selector(".word-links")
    assert page.locator(".aligners td a[aria-current]").count() == 1
    page.locator("input[name=gold]").fill("0-0 1-1 2-2 3-3")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Which head aligns?")
    assert "gold=0-0+1-1+2-2+3-3" in page.url
    page.locator(".aligners tbody tr").first.locator("a:has-text('★')").first.click()
    wait_until(page, "() => location.search.includes('reading=')")
    best = page.locator(".aligners td a[aria-current]")
    assert "★" in best.inner_text()
    reading = parse_address(page.url.partition("?")[2])[0].reading
    layer, head, name = reading.split(".")
    translator = served.example().translator
    links = translator.align(SOURCE, TARGET, int(layer), None if head == "mean" else int(head), name == "shifted")
    assert page.locator(".pharaoh").inner_text() == write_pharaoh(links)
    with page.expect_download() as download:
        page.locator("a[download='links.pharaoh']").click()
    assert download.value.suggested_filename == "links.pharaoh"
    assert download.value.path().read_text(encoding="utf-8") == write_pharaoh(links) + "\n"
    page.locator("#input [name=source]").fill("the dog")
    page.wait_for_selector("h1:has-text('the dog')")
    assert "gold=" not in page.url
    assert served.complaints == []


def test_journey_through_the_atlas_with_its_job(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, panel="atlas", n=6)
    page.wait_for_selector(".atlas:not([data-live]) [role=status]:has-text('6 sentences of')")
    assert page.locator(".heads-table tbody tr").count() == 10
    page.locator(".heads-table th a", has_text="importance").click()
    page.wait_for_selector(".heads-table [aria-sort=ascending]")
    page.locator(".heads-table th a", has_text="importance").click()
    page.wait_for_selector(".heads-table [aria-sort=descending]")
    values = [
        float(one.get_attribute("data-value")) for one in page.locator(".heads-table tbody td:nth-child(4)").all()
    ]
    assert values == sorted(values, reverse=True)
    page.locator(".heads-table tbody th a").first.press("Enter")
    wait_for_level(page, "head")
    assert served.complaints == []


def held_after(sentences: int, monkeypatch: pytest.MonkeyPatch) -> Event:
    """Let each job wait after so many sentences until the event."""
    measure, free = AtlasJob.step, Event()
    monkeypatch.setattr(AtlasJob, "step", lambda job: measure(job) if job.done < sentences or free.wait(0.01) else None)
    return free


def test_job_is_stopped_and_goes_on_while_other_pages_are_answered(
    page: Any, served: ServedPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = held_after(20, monkeypatch)
    open_view(page, served, **FORCED, panel="atlas", n=200, texts="\n".join(["the old cat sleeps " * 3] * 200))
    page.locator("button[data-post='atlas/cancel']").click()
    page.wait_for_selector(".atlas [role=status]:has-text('Stopped after')")
    account = page.locator(".atlas [role=status]").inner_text()
    free.set()
    other = page.context.new_page()
    open_view(other, served, **FORCED)
    page.reload()
    assert page.locator(".atlas [role=status]").inner_text() == account
    page.locator("button[data-post='atlas/resume']").click()
    page.wait_for_selector(".atlas:not([data-live]):not(:has([data-post])) .heads-table")
    assert page.locator("progress").get_attribute("value") == "200"
    assert served.complaints == []


def test_typed_sentences_survive_the_answers_of_a_job(
    page: Any, served: ServedPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = held_after(20, monkeypatch)
    open_view(page, served, **FORCED, panel="atlas", n=200, texts="\n".join(["she sings"] * 40))
    page.locator("textarea[name=texts]").fill("she sings ||| elle chante")
    free.set()
    page.wait_for_selector(".atlas:not([data-live]) [role=status]:has-text('40 sentences of the field')")
    assert page.evaluate("document.activeElement.name") == "texts"
    assert page.locator("textarea[name=texts]").input_value() == "she sings ||| elle chante"
    page.locator(".atlas form button").click()
    wait_until(page, "() => location.search.includes('elle+chante')")
    page.wait_for_selector(".atlas [role=status]:has-text('1 sentence')")


def test_page_of_a_job_asks_again_when_another_view_came_first(
    page: Any, served: ServedPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = held_after(3, monkeypatch)
    refused: list[str] = []
    open_view(page, served, **FORCED, panel="atlas", n=200, texts="\n".join(["he sings"] * 10))

    def refuse_once(route: Any) -> None:
        if refused or route.request.headers.get("x-fragment") != "1":
            route.fallback()
        else:
            refused.append(route.request.url)
            route.fulfill(status=503, body="Another view came first; ask again.\n")

    page.route("**/*", refuse_once)
    free.set()
    page.wait_for_selector(".atlas:not([data-live]) [role=status]:has-text('10 sentences of the field')")
    assert len(refused) == 1


def test_journey_through_the_vectors_by_keyboard(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, panel="vectors")
    slider = page.locator("input[name=merge]")
    count = int(slider.get_attribute("max"))
    slider.focus()
    page.keyboard.press("Home")
    page.wait_for_selector(f"text=merges applied: 0 of {count}")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(f"text=merges applied: 1 of {count}")
    assert page.evaluate("document.activeElement.name") == "merge"
    assert page.locator(".symbols .new").count() == 1
    page.locator("input[type=number][name=dimension]").focus()
    page.keyboard.press("ArrowUp")
    wait_until(page, "() => location.search.includes('dimension=5')")
    page.locator(".curve a").nth(1).press("Enter")
    wait_until(page, "() => location.search.includes('position=1')")
    number = page.locator(".vector td[aria-current] a").last
    value = number.get_attribute("data-value")
    number.click()
    wait_for_level(page, "cell")
    assert page.locator(".cell .value").get_attribute("data-value") == value
    assert page.locator(".cell .check").inner_text().startswith("✓")
    assert served.complaints == []


def test_beam_size_is_chosen_in_the_tree(page: Any, served: ServedPage) -> None:
    open_view(page, served, **FORCED, panel="beam")
    page.locator("input[name=beam]").fill("1")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=considered with a beam of 1:")
    assert page.locator(".node.ended").count() <= 1
