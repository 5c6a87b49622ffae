"""The explorer in Chromium: times of its pages, and bytes of the first view.

``python -m benchmarks.explorer RUN`` starts ``glassformer explore RUN``, measures its start, the first view, an edited
sentence, a step, a head, a matrix and a number, hovering over a token, and heads that are switched off in the lab.
``--source`` and ``--target`` give the sentences of the lab. Needs the extra ``web``, playwright and Chromium. Times are
from the action to the frame in which the new view is drawn; the median of several.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

ROUNDS = 7
SWITCH = """([selector, number]) => new Promise(done => {
    const start = performance.now();
    const observer = new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => {
        observer.disconnect();
        done(performance.now() - start);
    })));
    observer.observe(document.querySelector("[data-slot=stage]"), { childList: true });
    const links = document.querySelectorAll(selector);
    links[number % links.length].click();
})"""
"""Milliseconds in the page from a click to the frame in which the new view is drawn."""


def measured(action: Callable[[int], None], done: Callable[[int], None]) -> str:
    """Median and largest time of an action until ``done`` returns, in milliseconds."""
    seconds = []
    for number in range(ROUNDS):
        start = time.perf_counter()
        action(number)
        done(number)
        seconds.append(time.perf_counter() - start)
    return f"{1000 * statistics.median(seconds):6.0f} ms, at most {1000 * max(seconds):.0f} ms"


def wait_for(page: Any, selector: str) -> None:
    page.wait_for_selector(selector, state="attached")


def in_page(page: Any, selector: str, count: int) -> str:
    """Median and largest time of clicks on the links of ``selector``, without Playwright's own."""
    times = [page.evaluate(SWITCH, [selector, number % count]) for number in range(ROUNDS)]
    return f"{statistics.median(times):6.0f} ms, at most {max(times):.0f} ms"


def measure(page: Any) -> None:
    """Print a line for each kind of action."""
    texts = ["the cat sleeps", "she sings", "the old dog runs", "he loves the cat", "a boy sees her", "we sleep"]
    texts.append("I sing")

    def type_text(number: int) -> None:
        page.locator("input[name=source]").fill(texts[number])

    heading = 'h1:has-text("{}")'
    print("sentence edited ", measured(type_text, lambda number: wait_for(page, heading.format(texts[number]))))
    page.locator(".map a[aria-label^='M']").last.click()
    wait_for(page, "body[data-level=head]")
    heads = page.locator(".stage .head").count()
    print(
        "head switched   ",
        measured(
            lambda number: page.locator(".stage .head").nth(number % heads).click(),
            lambda number: wait_for(page, f'.stage .head[aria-current] >> text="head {number % heads}"'),
        ),
    )
    print("head switched, in the page", in_page(page, ".stage .head", heads))
    page.locator(".card[data-key$='.weights']").click()
    wait_for(page, "body[data-level=matrix]")
    cells = page.locator(".numbers td a")
    print(
        "number opened   ",
        measured(lambda number: cells.nth(number).click(), lambda number: wait_for(page, ".numbers td[aria-current]")),
    )
    hover = """() => { const start = performance.now();
        document.querySelector(".step").dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
        return performance.now() - start; }"""
    print(f"token highlighted {statistics.median(page.evaluate(hover) for _ in range(ROUNDS)):5.1f} ms")


def measure_lab(page: Any, source: str, target: str) -> None:
    """Print a line for heads switched off, one after the other, and for views of the logit lens."""
    texts = {"source": source, "target": target, "mode": "forced"} if target else {"source": source}
    origin = page.url.partition("?")[0]
    page.goto(f"{origin}?{urlencode({**texts, 'panel': 'lab'})}")
    heads = page.locator(".toggles a")
    print(
        "head ablated    ",
        measured(
            lambda number: heads.nth(number).click(),
            lambda number: wait_for(page, f".toggles td.off >> nth={number}"),
        ),
    )
    print("head switched on, in the page", in_page(page, ".toggles .off a", 1))
    page.goto(f"{origin}?{urlencode({**texts, 'panel': 'lens'})}")
    steps = page.locator(".steps a.step")
    print(
        "step of the lens",
        measured(
            lambda number: steps.nth(1 + number % 2).click(),
            lambda number: wait_for(page, f".steps a[data-key=step-{1 + number % 2}][aria-current]"),
        ),
    )


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--source", default="she does not love the red flower")
    parser.add_argument("--target", default="")
    arguments = parser.parse_args()
    start = time.perf_counter()
    command = [sys.executable, "-m", "glassformer", "--quiet", "explore", arguments.run, "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    print(f"address printed   {time.perf_counter() - start:5.2f} s after the start")
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce").new_page()
            page.set_default_timeout(120_000)
            network = page.context.new_cdp_session(page)
            network.send("Network.enable")
            page.goto(address)
            wait_for(page, "#stage-title")
            print(f"first view        {time.perf_counter() - start:5.2f} s after the start")
            sizes: list[float] = []
            network.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
            page.reload(wait_until="networkidle")
            print(f"first view        {sum(sizes) / 1000:5.0f} kB in {len(sizes)} requests")
            measure(page)
            measure_lab(page, arguments.source, arguments.target)
            browser.close()
    finally:
        start = time.perf_counter()
        process.send_signal(2)
        process.wait(60)
        print(f"ended             {time.perf_counter() - start:5.2f} s after Ctrl-C")


if __name__ == "__main__":
    main()
