"""The page of each kind of model: its steps, checks and picture; closed to the network, and the same every time."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from explain.page_reader import Reader
from explain.small_examples import EXAMPLES, LINES, continuation
from glassformer.explain import Example
from glassformer.explain.page.model_line import model_line
from glassformer.explain.report import report
from glassformer.explain.walkthrough.walkthrough import walkthrough

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
THROUGH = {"gpt": "text through GPT", "vit": "image through a Vision Transformer", "recurrent": "a recurrent network"}


@pytest.fixture(scope="module", params=EXAMPLES)
def told(request: pytest.FixtureRequest) -> tuple[str, Example, str]:
    example = EXAMPLES[request.param]()
    return request.param, example, report(example)


def test_the_steps_are_told_with_the_model_and_its_attention(told: tuple[str, Example, str]) -> None:
    name, example, page = told
    read, steps = Reader(page), walkthrough(example)
    sections = [str(attributes["id"]) for tag, attributes in read.tags if tag == "section" and "id" in attributes]
    numbers = [f"step-{step.number}" for step in steps]
    ends = ["alignment"] if name == "recurrent" else []
    assert sections == ["summary", "model", *numbers[:-1], "attention", numbers[-1], *ends]
    assert f"in {'five' if name == 'recurrent' else 'seven'} steps" in read.text
    assert THROUGH.get(name, "") in read.text
    assert example.input in read.text
    assert example.output in read.text
    assert model_line(example.model) in read.text
    assert "checks passed" in read.text
    assert "✗" not in read.text
    assert all(text in read.text for step in steps for text in (step.title, step.what, step.why))
    boxes = {
        attributes["href"] for tag, attributes in read.tags if tag == "a" and "step" in str(attributes.get("href"))
    }
    assert boxes == {f"#{number}" for number in numbers}
    drawn = [attributes for tag, attributes in read.tags if "image" in str(attributes.get("class", "")).split()]
    assert len(drawn) == (name == "vit")


def test_nothing_leaves_the_file_and_it_is_the_same_every_time(told: tuple[str, Example, str]) -> None:
    name, _, page = told
    assert set(re.findall(r"https?://[^\"' >]*", page)) <= {"http://www.w3.org/2000/svg"}
    assert not {"link", "img", "iframe", "object", "form"} & {tag for tag, _ in Reader(page).tags}
    assert report(EXAMPLES[name]()) == page


def test_every_head_of_every_layer_is_there(told: tuple[str, Example, str]) -> None:
    name, example, page = told
    heads = [attributes for _, attributes in Reader(page).tags if attributes.get("role") == "radio"]
    everywhere = sum(example.trace[one].size(1) for one in example.trace if one.endswith("attention.weights"))
    first = example.model.config.n_heads
    assert len(heads) == everywhere + first
    sides = set(re.findall(r'data-side="(\w+)"', page))
    assert sides == {"recurrent": {"source", "target"}, "vit": {"image"}, "series": {"series"}}.get(name, {"text"})


def test_markup_in_a_token_is_text() -> None:
    evil = "<script>alert(1)</script> \"'><b> {{7*7}} </style>"
    page = report(continuation("gpt", evil, [evil, *LINES]))
    read, plain = Reader(page), Reader(report(continuation("gpt")))
    found = {tag for tag, _ in read.tags} - {tag for tag, _ in plain.tags}
    assert found <= {"msqrt", "msup", "mfrac", "munder"}
    assert evil in read.text
    assert "alert" not in "".join(re.findall(r"<script>(.*?)</script>", page, re.DOTALL))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"], timeout=180_000
        )
        yield started
        started.close()


def test_axe_finds_no_fault(browser: Any, told: tuple[str, Example, str], tmp_path: Path) -> None:
    """Every second kind in dark mode: the colors are the same for all."""
    scheme = "dark" if list(EXAMPLES).index(told[0]) % 2 else "light"
    axe = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
    source = (Path(str(axe.__file__)).parent / "axe.min.js").read_text(encoding="utf-8")
    file = tmp_path / "report.html"
    file.write_text(told[2], encoding="utf-8")
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme, reduced_motion="reduce")
    context.set_default_timeout(180_000)
    page, complaints = context.new_page(), list[str]()
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(file.as_uri())
    page.evaluate(source + "\n;0")
    faults = "(await axe.run()).violations.map(v => [v.id, v.nodes.map(n => n.html).slice(0, 3)])"
    assert page.evaluate(f"async () => {faults}") == []
    assert complaints == []
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    context.close()
