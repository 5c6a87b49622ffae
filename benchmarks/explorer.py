"""The explorer in Chromium: times of its views, from the action to the frame that shows the new view.

``python -m benchmarks.explorer RUN`` measures ``glassformer explore`` on three sizes: RUN, which is that of the demo; a
translator of base size with sentences of 32 tokens; and a language model and a translator of base size with 512 tokens.
The latter have random weights and are written to a temporary folder. ``--repeats`` actions of each kind, median and
largest, in ``benchmarks/results/explorer.json``; ``--cases`` measures some of the sizes.

A time ends with the first frame after the view is complete, so it includes up to two frames of 17 ms. Needs the extra
``web``, playwright and Chromium.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.explorer_runs import save_run, words
from benchmarks.machine import describe

HERE = Path(__file__).parent
DEMO = ["the cat sleeps", "she sings", "the old dog runs", "he loves the cat", "a boy sees her", "we sleep", "I sing"]
GOALS = {
    "token highlighted": 16,
    "head switched": 100,
    "head ablated": 300,
    "sentence edited": 500,
    "512 × 512 attention opened": 1000,
    "first view, from the start": 3000,
    "ended after Ctrl-C": 1000,
}
"""Milliseconds."""
FRAME = "await new Promise(requestAnimationFrame);"
HOVER = """() => { const tokens = document.querySelectorAll('.step');
    const start = performance.now();
    tokens[%d %% tokens.length].dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));
    document.body.getBoundingClientRect();
    return performance.now() - start; }"""
"""The time of the handler, and of the styles and the layout that it changes."""

Times = dict[str, list[float]]


def timed(page: Any, action: str, done: str) -> float:
    """Milliseconds from a statement in the page to the frame after its condition holds."""
    script = f"""async () => {{ const start = performance.now(); {action};
        while (!({done})) {{ {FRAME} }} {FRAME} return performance.now() - start; }}"""
    return float(page.evaluate(script))


def clicked(page: Any, selector: str, done: str) -> float:
    return timed(page, f"document.querySelector({selector!r}).dispatchEvent({CLICK})", done)


CLICK = "new MouseEvent('click', {bubbles: true, cancelable: true})"


def has(selector: str) -> str:
    """Condition: the page has an element."""
    return f"document.querySelector({selector!r}) !== null"


def at(text: str) -> str:
    """Condition: the address contains a text, and nothing is being loaded."""
    return f"location.search.includes({text!r}) && !document.documentElement.hasAttribute('data-busy')"


def typed(page: Any, name: str, text: str) -> float:
    """Type a text, with the pause after the last key; the view is complete when its address is that of the text."""
    action = f"""const input = document.querySelector('#input [name={name}]'); input.focus(); input.value = {text!r};
        input.dispatchEvent(new Event('input', {{bubbles: true}}))"""
    return timed(page, action, at(urlencode({name: text})))


@contextmanager
def explored(run: Path, browser: Any, times: Times) -> Iterator[tuple[Any, str]]:
    """A page of ``glassformer explore``, and its address without the key."""
    command = [sys.executable, "-m", "glassformer", "--quiet", "explore", str(run), "--no-browser"]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        times.setdefault("address printed", []).append(1000 * (time.perf_counter() - start))
        page = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce").new_page()
        page.set_default_timeout(300_000)
        page.goto(address)
        page.wait_for_selector("#stage-title")
        times.setdefault("first view, from the start", []).append(1000 * (time.perf_counter() - start))
        yield page, address.partition("?")[0]
        page.context.close()
    finally:
        start = time.perf_counter()
        process.send_signal(2)
        process.wait(60)
        times.setdefault("ended after Ctrl-C", []).append(1000 * (time.perf_counter() - start))


def first_view(page: Any, address: str) -> float:
    """Kilobytes of the first view, without a cache."""
    network = page.context.new_cdp_session(page)
    network.send("Network.enable")
    network.send("Network.setCacheDisabled", {"cacheDisabled": True})
    sizes: list[float] = []
    network.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(address, wait_until="networkidle")
    network.send("Network.setCacheDisabled", {"cacheDisabled": False})
    return sum(sizes) / 1000


def open_view(page: Any, address: str, **fields: Any) -> None:
    page.goto(f"{address}?{urlencode(fields)}")
    page.wait_for_selector("#stage-title")
    assert page.locator(".error").count() == 0, page.locator(".error").inner_text()


def repeat(times: Times, name: str, repeats: int, action: Callable[[int], float]) -> None:
    times[name] = [action(number) for number in range(repeats)]
    print(f"  {name:44} {statistics.median(times[name]):7.0f} ms, at most {max(times[name]):.0f} ms", flush=True)


def measure_heads(page: Any, address: str, times: Times, repeats: int, fields: dict[str, Any]) -> None:
    """Hovering, another head, a number, and the tensor of a head."""
    open_view(page, address, **fields)
    repeat(times, "token highlighted", repeats, lambda number: float(page.evaluate(HOVER % number)))
    repeat(
        times,
        "head switched",
        repeats,
        lambda number: clicked(
            page, f".stage .heads li:nth-child({(number + 1) % 2 + 1}) .head", at(f"head={(number + 1) % 2}")
        ),
    )
    open_view(page, address, **fields, stage="weights")
    repeat(
        times,
        "number opened",
        repeats,
        lambda number: clicked(page, f".numbers tbody tr:nth-child({number % 4 + 1}) td a", at(f"row={number % 4}")),
    )


def measure_demo(page: Any, address: str, times: Times, repeats: int) -> None:
    repeat(times, "sentence edited", repeats, lambda number: typed(page, "source", DEMO[number % len(DEMO)]))
    place = {"part": "decoder", "layer": 1, "sublayer": "cross_attention", "head": 0}
    measure_heads(page, address, times, repeats, {"source": DEMO[2], **place})
    ablate(page, address, times, repeats, {"source": DEMO[2]})


def measure_base(page: Any, address: str, times: Times, repeats: int) -> None:
    forced = {"source": words(31, 100), "target": words(31, 300), "mode": "forced"}
    open_view(page, address, **forced)
    repeat(times, "sentence edited", repeats, lambda number: typed(page, "source", words(31, 101 + number)))
    open_view(page, address, source=words(31, 90), mode="greedy")
    repeat(
        times, "sentence edited and translated", repeats, lambda number: typed(page, "source", words(31, 200 + number))
    )
    place = {"part": "decoder", "layer": 5, "sublayer": "cross_attention", "head": 0}
    measure_heads(page, address, times, repeats, {**forced, **place})
    ablate(page, address, times, repeats, forced)


def ablate(page: Any, address: str, times: Times, repeats: int, fields: dict[str, Any]) -> None:
    """Switch further heads off, each with the panel of the lab."""
    open_view(page, address, **fields, panel="lab")

    def switch(number: int) -> float:
        return clicked(
            page,
            ".toggles td:not(.off) a",
            f"document.querySelectorAll('.chips li:not(.all-chips)').length === {number + 1}",
        )

    repeat(times, "head ablated", repeats, switch)


def measure_long(page: Any, address: str, times: Times, repeats: int, kind: str) -> None:
    """An input of 512 tokens: its first view with the trace, then attention heads on the canvas."""
    tokens = 511  # and a symbol of beginning or end
    fields: dict[str, Any] = {"source": words(tokens, 100)}
    sublayer = "self_attention" if kind == "gpt" else "cross_attention"
    if kind == "translator":
        fields |= {"target": words(tokens, 1000), "mode": "forced"}
    times["512 tokens traced and opened"] = [_opened(page, address, fields)]
    place = {**fields, "part": "decoder", "layer": 5, "sublayer": sublayer}
    open_view(page, address, **place, head=0)
    done = "document.querySelector('.plot .readout')?.dataset.value"

    def open_matrix(number: int) -> float:
        open_view(page, address, **place, head=number % 8)
        return clicked(page, ".card[data-key$='.weights']", done)

    repeat(times, "512 × 512 attention opened", repeats, open_matrix)
    zoom = "document.querySelector('.plot [data-zoom=in]').click()"
    exact = "!document.querySelector('.plot-open').hidden"
    out = "document.querySelector('.plot [data-zoom=whole]').click()"
    page.locator(".plot canvas").first.focus()

    def zoom_in(number: int) -> float:
        page.evaluate(f"() => {out}")
        return timed(page, zoom, exact)

    repeat(times, "exact numbers after a zoom", 1, zoom_in)
    hover = """() => { const canvas = document.querySelector('.plot canvas'), box = canvas.getBoundingClientRect();
        const start = performance.now();
        canvas.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + %d, clientY: box.top + 40}));
        document.body.getBoundingClientRect();
        return performance.now() - start; }"""
    repeat(times, "cell of the canvas named", repeats, lambda number: float(page.evaluate(hover % (10 + 7 * number))))


def _opened(page: Any, address: str, fields: dict[str, Any]) -> float:
    start = time.perf_counter()
    open_view(page, address, **fields)
    return 1000 * (time.perf_counter() - start)


def lines_of_scripts() -> int:
    folder = HERE.parent / "src" / "glassformer" / "web" / "explorer" / "static"
    return sum(path.read_text(encoding="utf-8").count("\n") for path in folder.glob("*.js"))


def case(name: str, run: Path, browser: Any, options: argparse.Namespace) -> dict[str, Any]:
    """All times of one size."""
    print(name, flush=True)
    times: Times = {}
    for _ in range(options.starts - 1):
        with explored(run, browser, times):
            pass
    with explored(run, browser, times) as (page, address):
        kilobytes = first_view(page, address)
        if name == "demo":
            measure_demo(page, address, times, options.repeats)
        elif name == "base":
            measure_base(page, address, times, options.repeats)
        else:
            measure_long(page, address, times, options.repeats, run.name)
    for one in ("address printed", "first view, from the start", "ended after Ctrl-C"):
        print(f"  {one:44} {statistics.median(times[one]):7.0f} ms, at most {max(times[one]):.0f} ms")
    print(f"  first view: {kilobytes:.0f} kB")
    rows = {
        one: {"median_ms": round(statistics.median(values), 1), "largest_ms": round(max(values), 1), "n": len(values)}
        | ({"goal_ms": GOALS[one]} if one in GOALS else {})
        for one, values in times.items()
    }
    return {"first_view_kb": round(kilobytes, 1), "times": rows}


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run of the demo")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--starts", type=int, default=3, help="starts of the command for each size")
    parser.add_argument("--cases", nargs="+", default=["demo", "base", "gpt", "translator"])
    options = parser.parse_args()
    cases: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        runs = {"demo": options.run}
        if set(options.cases) & {"base", "translator"}:
            runs["base"] = runs["translator"] = save_run("translator", Path(folder))
        if "gpt" in options.cases:
            runs["gpt"] = save_run("gpt", Path(folder))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in options.cases:
            cases[name] = case(name, runs[name], browser, options)
        version = browser.version
        browser.close()
    path = HERE / "results" / "explorer.json"
    if path.is_file():  # sizes that were not measured now stay
        cases = json.loads(path.read_text(encoding="utf-8"))["cases"] | cases
    report = {"machine": describe(), "chromium": version, "script_lines": lines_of_scripts(), "cases": cases}
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"{report['script_lines']} lines of scripts; written to {path}")


if __name__ == "__main__":
    main()
