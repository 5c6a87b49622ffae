"""``glassformer align``: a line of links for each pair, and how often they are wrong."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassformer.alignment import alignment_error_rate, read_pharaoh, write_pharaoh
from glassformer.demo_corpus.grammar import sample_corpus
from glassformer.predict.translator import Translator
from tiny_run import TinyRun, run_to_the_end, write_lines

Cli = Callable[..., Any]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Source, target, and the true links, an empty pair among them."""
    pairs = sample_corpus(12, seed=9)
    sides = [[p.source for p in pairs], [p.target for p in pairs], [write_pharaoh(p.alignment) for p in pairs]]
    names = ("source", "target", "gold")
    return [write_lines(tmp_path / name, [*side, ""]) for name, side in zip(names, sides, strict=True)]


def lines(file: str) -> list[str]:
    return Path(file).read_text(encoding="utf-8").splitlines()


def test_every_pair_has_a_line_of_links(cli: Cli, tiny: TinyRun, files: list[str], tmp_path: Path) -> None:
    pairs = list(zip(lines(files[0]), lines(files[1]), strict=True))
    for arguments, options in (
        ([], {}),
        (["--layer", "0"], {"layer": 0}),
        (["--layer", "0", "--head", "1", "--shifted"], {"layer": 0, "head": 1, "shifted": True}),
    ):
        result = cli("align", tiny.run, *files[:2], *arguments)
        assert (result.code, result.err) == (0, "")
        expected = [write_pharaoh(tiny.translator.align(*pair, **options)) for pair in pairs]
        assert result.out.split("\n") == [*expected, ""]
        with_gold = cli("align", tiny.run, *files[:2], *arguments, "--gold", files[2], "-o", tmp_path / "links")
        assert (with_gold.code, with_gold.out) == (0, "")
        assert lines(str(tmp_path / "links")) == expected


def told(text: str) -> tuple[str, dict[str, float], str]:
    match = re.fullmatch(r"AER of (.*): naive ([\d.]+)%, shifted ([\d.]+)%; written: (shifted|naive)\n", text)
    assert match is not None, text
    return match[1], {"naive": float(match[2]), "shifted": float(match[3])}, match[4]


def test_with_gold_the_error_rates_are_told(cli: Cli, tiny: TinyRun, files: list[str]) -> None:
    gold = [read_pharaoh(line) for line in lines(files[2])]
    result = cli("align", tiny.run, *files[:2], "--gold", files[2], "--head", "0")
    proposed = [read_pharaoh(line) for line in result.out.splitlines()]
    name, rates, written = told(result.err)
    assert (name, written) == ("decoder layer 1, head 0", "naive")
    assert rates["naive"] == pytest.approx(100 * alignment_error_rate(gold, gold, proposed), abs=0.006)


def test_the_best_head_is_no_worse_than_any(cli: Cli, tiny: TinyRun, files: list[str]) -> None:
    _, rates, written = told(cli("align", tiny.run, *files[:2], "--gold", files[2], "--best-head").err)
    assert rates[written] == min(rates.values())
    for layer in "01":
        for head in ([], ["--head", "0"], ["--head", "1"]):
            other = cli("align", tiny.run, *files[:2], "--gold", files[2], "--layer", layer, *head).err
            assert rates[written] <= min(told(other)[1].values())


def test_what_cannot_be_aligned(refused: Callable[..., str], tiny: TinyRun, files: list[str], tmp_path: Path) -> None:
    source, target, gold = files
    assert refused("align", tiny.run, source, target, "--best-head") == "--best-head needs --gold FILE to choose by"
    for option in (["--layer", "0"], ["--head", "0"], ["--shifted"], ["--naive"]):
        line = refused("align", tiny.run, source, target, "--gold", gold, "--best-head", *option)
        assert line == "--best-head chooses; leave out --layer, --head, --shifted and --naive"
    for extra in ([], ["--gold", gold]):
        line = refused("align", tiny.run, source, target, "--layer", "2", *extra)
        assert line == "layer=2 is not in the decoder; choose from 0 to 1"
        line = refused("align", tiny.run, source, target, "--head", "2", *extra, "-o", tmp_path / "out")
        assert line == "head=2 is not in the decoder; choose from 0 to 1"
    assert not (tmp_path / "out").exists()
    short = write_lines(tmp_path / "short", ["a"])
    assert "has 13 lines and" in refused("align", tiny.run, source, short)
    assert refused("align", tiny.run, source, target, "--gold", short).endswith(
        "has 1 lines, but the text has 13; give one line for each sentence"
    )
    assert "standard input cannot be both" in refused("align", tiny.run, "-", target, "--gold", "-", stdin="a\n")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "0-0 1",
            r", line 3: '1' is not a link; write source-target word indices from 0, such as 0-0 1-2, or 1\?2 for a ",
        ),
        ("99-0", r", line 3: 99-0 is out of range: the sentence has \d+ source and \d+ target words, counted from 0$"),
    ],
)
def test_gold_that_cannot_be(
    refused: Callable[..., str], tiny: TinyRun, files: list[str], tmp_path: Path, line: str, told: str
) -> None:
    gold = lines(files[2])
    wrong = write_lines(tmp_path / "wrong", [*gold[:2], line, *gold[3:]])
    assert re.search(told, refused("align", tiny.run, *files[:2], "--gold", wrong))


def test_a_guided_head_is_the_one_that_is_asked(cli: Cli, tiny: TinyRun, files: list[str], tmp_path: Path) -> None:
    """What ``align`` has written guides the next model, and its head is then read as it was guided."""
    links = tmp_path / "train.align"
    assert cli("align", tiny.run, tiny.folder / "train.en", tiny.folder / "train.fr", "-o", links) == (0, "", "")
    how = {"guided_alignment.layer": 0, "guided_alignment.head": 1, "train.max_steps": 1}
    run_to_the_end(tiny.config(how | {"data.alignments": [str(links)]}), tmp_path / "run")
    written, told_by_gold = (cli("align", tmp_path / "run", *files[:2], *gold) for gold in ([], ["--gold", files[2]]))
    assert written.out == told_by_gold.out
    assert (told(told_by_gold.err)[0], told(told_by_gold.err)[2]) == ("decoder layer 0, head 1", "shifted")
    for arguments, same in (
        (["--naive"], ["--layer", 0, "--head", 1]),
        (["--shifted"], ["--layer", 0, "--head", 1, "--shifted"]),
        (["--layer", 1], ["--layer", 1, "--naive"]),
    ):
        assert cli("align", tmp_path / "run", *files[:2], *arguments) == cli(
            "align", tmp_path / "run", *files[:2], *same
        )
    texts = zip(lines(files[0]), lines(files[1]), strict=True)
    translator = Translator.load(tmp_path / "run")
    assert written.out.splitlines() == [write_pharaoh(translator.align(*pair, 0, 1, True)) for pair in texts]


def test_alignment_error_rate_ignores_possible_links(cli: Cli, tiny: TinyRun, files: list[str], tmp_path: Path) -> None:
    """Both gold formats, with every other link possible, give the error rate of Och and Ney (2003)."""
    gold = [sorted(read_pharaoh(line)) for line in lines(files[2])]
    sure = [set(links[::2]) for links in gold]
    possible = [set(links) for links in gold]
    marked = [" ".join(f"{s}{'?-'[(s, t) in one]}{t}" for s, t in links) for one, links in zip(sure, gold)]
    shared_task = [
        f"{number:04} {s + 1} {t + 1} {'S' if (s, t) in one else 'P'}"
        for number, (one, links) in enumerate(zip(sure, gold), start=1)
        for s, t in links
    ]
    results = [
        cli("align", tiny.run, *files[:2], "--gold", write_lines(tmp_path / name, rows), "--head", "0")
        for name, rows in (("marked", marked), ("shared_task", shared_task))
    ]
    assert results[0] == results[1]
    proposed = [read_pharaoh(line) for line in results[0].out.splitlines()]
    rate = alignment_error_rate(sure, possible, proposed)
    n_sure, n_more = sum(map(len, sure)), sum(map(len, gold)) - sum(map(len, sure))
    assert f"naive {rate:.2%}, shifted" in results[0].err
    assert f" on {n_sure} sure and {n_more} possible links; written: naive" in results[0].err
    assert cli("align", tiny.run, *files[:2], "--gold", tmp_path / "marked", "--best-head").code == 0
