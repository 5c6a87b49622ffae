"""The twelve steps on a terminal, and the package's own example, which learns how often each word follows."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stored_models import GIVEN, TASKS, stored

from glassformer import Example, examine
from glassformer.cli.toy_example import CONTINUATIONS, SENTENCE, first_translator
from glassformer.explain.walkthrough.step import Step
from glassformer.explain.walkthrough.walkthrough import walkthrough
from glassformer.predict.translator import Translator

Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Translator]:
    run = tmp_path_factory.mktemp("first") / "run"
    return run, first_translator(run)


def test_the_example_says_engineer_as_often_as_its_corpus(first: tuple[Path, Translator]) -> None:
    """Within 0.02, of words that are all in the vocabulary of twelve that the example is told with."""
    example = examine(first[1], SENTENCE)
    assert example.target == "Engineer"
    tokenizer = first[1].tokenizers.target
    for word, times in CONTINUATIONS.items():
        (token,) = tokenizer.encode(word)
        probability = float(example.trace.at("output_projection.probabilities", position=0, vocab=token))
        assert probability == pytest.approx(times / sum(CONTINUATIONS.values()), abs=0.02), word
    words = {"Ajish", "works", "as", "an", "AI", "Engineer", "the", "is", "a", ".", "Scientist", "Developer"}
    assert set(tokenizer.tokens(range(4, tokenizer.vocab_size))) == words


def test_the_example_is_trained_once(first: tuple[Path, Translator], capfd: pytest.CaptureFixture[str]) -> None:
    assert first_translator(first[0]).translate([SENTENCE]) == ["Engineer"]
    assert "training" not in capfd.readouterr().err


def steps_of(translator: Translator) -> tuple[Example, list[Step]]:
    example = examine(translator, SENTENCE)
    return example, walkthrough(example)


def test_twelve_steps_of_which_every_check_passes(first: tuple[Path, Translator]) -> None:
    _, steps = steps_of(first[1])
    assert [step.number for step in steps] == list(range(1, 13))
    for step in steps:
        assert step.what.endswith(".")
        assert step.why.endswith(".")
        assert step.formula
        assert step.tables
        assert step.evaluation
        assert step.passed and step.evaluation.check.passed, step.title
        assert any("computed again from their operands" in check.text for check in step.checks)


def test_a_number_that_was_tampered_with_turns_its_step_red(first: tuple[Path, Translator]) -> None:
    """Every table of every step: one of its numbers is changed, and the check about them fails."""
    example, steps = steps_of(first[1])
    for number, step in enumerate(steps):
        for table in {table.name: table for table in step.tables}.values():
            honest = example.trace[table.name]
            example.trace[table.name] = honest.clone()
            place = dict(table.formula(0).place.index)
            example.trace[table.name][tuple(place.values())] += 0.5
            assert not walkthrough(example)[number].passed, (step.title, table.name)
            example.trace[table.name] = honest


def test_other_facts_fail_as_well(first: tuple[Path, Translator]) -> None:
    """A look at what comes later, and rows of attention that do not sum to 1."""
    example, _ = steps_of(first[1])
    weights = "decoder.layers.0.self_attention.weights"
    example.trace[weights] = example.trace[weights].clone()
    example.trace[weights][0, 1, 0, 1] = 0.1
    failed = {check.text for check in walkthrough(example)[7].checks if not check.passed}
    assert any("later word is exactly 0" in text for text in failed)
    assert any("sums to 1" in text for text in failed)


def test_on_a_terminal(cli: Cli, first: tuple[Path, Translator]) -> None:
    result = cli("walkthrough", first[0], SENTENCE)
    assert result.code == 0
    assert "Ajish works as an AI → Engineer" in result.out
    assert re.findall(r"^(\d+)  \w", result.out, re.M) == [str(number) for number in range(1, 13)]
    assert "−∞" in result.out
    assert "✗" not in result.out
    assert result.out.endswith("checks passed\n")
    only = cli("walkthrough", first[0], SENTENCE, "--step", 8).out
    assert re.findall(r"^(\d+)  \w", only, re.M) == ["8"]


def test_tokens_are_text_and_never_markup(cli: Cli, first: tuple[Path, Translator]) -> None:
    """Words that the vocabulary does not hold are counted, and what looks like markup of the terminal is shown."""
    out = cli("walkthrough", first[0], "[red]Ajish[/red] שלום 😀 <b>", "--target", "[bold]").out
    assert "[red]Ajish[/red] שלום 😀 <b>" in out
    assert "→ [bold]" in out
    assert "of the tokens stand for what the vocabulary does not hold" in out


def test_more_than_a_terminal_holds_is_counted(cli: Cli, first: tuple[Path, Translator]) -> None:
    out = cli("walkthrough", first[0], " ".join(["Ajish"] * 70), "--target", "Engineer", "--step", 3).out
    assert "the first 64 of 71" in out
    assert "54 further columns and 40 further rows; --html shows them" in out


def test_what_cannot_be_followed_is_said(refused: Callable[..., str], first: tuple[Path, Translator]) -> None:
    assert "there is no sentence to follow" in refused("walkthrough", first[0])
    assert "there is no sentence to follow" in refused("walkthrough", first[0], " ")
    assert "no such" in refused("walkthrough", "no/run", "Ajish")


# Runs of other tasks

LAST = {
    "language": "Linear and softmax",
    "masked": "The hidden word",
    "classification": "The classes",
    "tagging": "A tag for each word",
    "images": "The classes",
    "forecasting": "The forecast",
}


@pytest.mark.parametrize("task", TASKS)
def test_a_run_of_each_task_is_followed(cli: Cli, tmp_path: Path, task: str) -> None:
    run, given = stored(tmp_path, task), GIVEN[task](tmp_path)
    result = cli("walkthrough", run, given)
    assert result.code == 0 and "✗" not in result.out and result.out.endswith("checks passed\n"), result
    assert re.findall(r"^(\d+)  \w", result.out, re.M) == [str(number) for number in range(1, 8)]
    assert f"7  {LAST[task]}" in result.out
    assert ("−∞" in result.out) == (task == "language")
    assert cli("walkthrough", run, given, "--html", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "checks passed" in page
    assert LAST[task] in page


def test_a_pair_of_texts_has_two_segments(cli: Cli, tmp_path: Path) -> None:
    run = stored(tmp_path, "classification")
    out = cli("walkthrough", run, "a small dog", "--target", "the cat runs", "--step", 2).out
    assert "(here 2)" in out
    assert "a small dog · the cat runs → " in out


def test_what_another_run_cannot_follow_is_said(refused: Callable[..., str], tmp_path: Path) -> None:
    language, images, series = (stored(tmp_path, task) for task in ("language", "images", "forecasting"))
    assert "step=8 is outside this walkthrough; choose from 1 to 7" in refused(
        "walkthrough", language, "a", "--step", 8
    )
    told = refused("walkthrough", language, "a", "--target", "b")
    assert told.endswith("this is a run of language, which has no second text; leave --target out")
    assert "there is no such picture; this run reads PNG and JPEG files" in refused("walkthrough", images, "no.png")
    assert "no such file" in refused("walkthrough", series, "no.csv").lower()
    assert "there is no [MASK] in the text" in refused("walkthrough", stored(tmp_path, "masked"), "a dog")
