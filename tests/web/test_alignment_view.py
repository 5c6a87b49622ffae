"""The alignment view: links and scores of the attention, gold links of the address and of the run, and bad input."""

import math
import re
import shutil
from pathlib import Path
from urllib.parse import urlencode

import pytest
import torch

from explain.page_reader import Reader
from glassformer.alignment import alignment_error_rate, link_scores, read_pharaoh, write_pharaoh
from glassformer.explain.analysis.word_links import example_attention, example_words, head_links
from glassformer.explain.examples.text import examine
from glassformer.predict.alignment import links_of_heads, word_attention
from glassformer.text.decimals import aligned, weight
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.panels.alignment import AlignmentView, alignment_of, parse_gold, percent
from glassformer.web.explorer.selection import Selection
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun

SOURCE, TARGET = "the old cat sleeps", "le vieux chat dort"
FORCED = {"source": SOURCE, "target": TARGET, "mode": "forced", "panel": "alignment"}
READINGS = [(1, 0, False), (1, 1, True), (0, None, False), (0, None, True)]


@pytest.fixture(scope="module")
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings())


def html_of(session: Session, **fields: str) -> str:
    page = render_page(session, urlencode({**FORCED, **fields}))
    assert page.status == 200
    return page.html


def view_of(tiny: TinyRun, notes: list[str] | None = None, source: str = SOURCE, **fields: str) -> AlignmentView:
    example = examine(tiny.translator, source, fields.pop("target", TARGET))
    selection = Selection(source=source, target=TARGET, mode="forced", **fields)  # type: ignore[arg-type]
    return alignment_of(example, selection, tiny.translator.read_by(), ("", ""), [] if notes is None else notes)


def notes_of(html: str) -> str:
    return Reader(html[html.index('<div class="notes"') :].partition("</div>")[0] + "</div>").text


@pytest.mark.parametrize(("layer", "head", "shifted"), READINGS)
def test_links_and_weights_are_those_of_the_aligner(
    session: Session, tiny: TinyRun, layer: int, head: int | None, shifted: bool
) -> None:
    reading = f"{layer}.{'mean' if head is None else head}.{'shifted' if shifted else 'naive'}"
    html = html_of(session, reading=reading)
    links = tiny.translator.align(SOURCE, TARGET, layer, head, shifted)
    assert f"<code>{write_pharaoh(links)}</code>" in html
    attention = word_attention(tiny.translator, SOURCE, TARGET)
    weights = (attention.shifted if shifted else attention.naive)[layer]
    table = (weights.mean(0) if head is None else weights[head]).tolist()
    cells = re.findall(r'<td class="[^"]*" data-value="([^"]+)".*?</td>', html)
    assert [float(cell) for cell in cells] == pytest.approx([value for row in table for value in row], abs=1e-6)
    texts = re.findall(r'data-value="[^"]+"[^>]*>(?:<a [^>]*>)?([\d.]+)', html)
    assert texts == [weight(value) for row in table for value in row]


def test_numbers_of_every_head_are_those_of_the_scores(session: Session, tiny: TinyRun) -> None:
    gold = "0-0 1?1 2-2 3-3"
    html = html_of(session, gold=gold)
    sure, possible = read_pharaoh("0-0 2-2 3-3"), read_pharaoh("0-0 1-1 2-2 3-3")
    rows = {}
    for one in links_of_heads(tiny.translator, [SOURCE], [TARGET]):
        scores = [link_scores([sure], [possible], links) for links in (one.naive, one.shifted)]
        assert scores[0].error_rate == one.error_rate([sure], False, [possible])
        assert scores[1].error_rate == alignment_error_rate([sure], [possible], one.shifted)
        name = f"layer {one.layer}, {'mean of heads' if one.head is None else f'head {one.head}'}"
        rows[name] = [percent(value) for score in scores for value in score]
    found = {}
    for row in html.partition('class="plain aligners"')[2].partition("</table>")[0].split("<tr>")[3:]:
        name, *cells = re.findall(r"<t[hd][^>]*>(?:<a [^>]*>)?([^<]*)<", row)
        found[name] = [cell.removesuffix(" ★") for cell in cells[:-1]]
    assert found == rows
    rates = [float(row[place].split()[0]) for row in found.values() for place in (0, 3)]
    assert "aligns best here" in html
    assert f"AER {aligned(min(rates), 1)} %." in html
    order = [min(float(row[0].split()[0]), float(row[3].split()[0])) for row in found.values()]
    assert order == sorted(order)


def test_scores_of_the_traced_example_are_those_of_the_translator(tiny: TinyRun) -> None:
    attention = example_attention(examine(tiny.translator, SOURCE, TARGET))
    expected = word_attention(tiny.translator, SOURCE, TARGET)
    assert attention is not None
    torch.testing.assert_close(attention.naive.float(), expected.naive, atol=1e-5, rtol=0)
    torch.testing.assert_close(attention.shifted.float(), expected.shifted, atol=1e-5, rtol=0)
    assert head_links([attention]) == links_of_heads(tiny.translator, [SOURCE], [TARGET])


def test_precision_and_recall_are_those_of_och_and_ney() -> None:
    sure, possible = [frozenset({(0, 0), (1, 1)})], [frozenset({(0, 0), (1, 1), (2, 2)})]
    scores = link_scores(sure, possible, [frozenset({(0, 0), (2, 2), (3, 3), (4, 4)})])
    assert (scores.precision, scores.recall) == (0.5, 0.5)
    assert scores.error_rate == pytest.approx(1 - (1 + 2) / (4 + 2))
    assert math.isnan(link_scores(sure, possible, [frozenset()]).precision)
    assert math.isnan(link_scores([frozenset()], possible, [frozenset({(0, 0)})]).recall)


def test_states_of_links_follow_the_gold_links(tiny: TinyRun) -> None:
    links = sorted(tiny.translator.align(SOURCE, TARGET))
    (a, b), (c, d), *_ = links
    missing = next((s, t) for s in range(4) for t in range(4) if (s, t) not in links)
    view = view_of(tiny, gold=f"{a}-{b} {c}p{d} {missing[0]}-{missing[1]}")
    states = {(line.source, line.target): line.state for line in view.lines}
    assert states.pop((a, b)) == "sure"
    assert states.pop((c, d)) == "possible"
    assert states.pop(missing) == "missed"
    assert set(states.values()) == {"wrong"}
    plain = view_of(tiny)
    assert {line.state for line in plain.lines} == {"free"}
    assert (plain.verdict, plain.gold_origin) == ("", "")


def test_number_of_a_head_leads_to_its_weight(session: Session, tiny: TinyRun) -> None:
    for reading, shift in (("1.1.naive", 0), ("1.1.shifted", 1)):
        view = view_of(tiny, reading=reading)
        example = examine(tiny.translator, SOURCE, TARGET)
        cell = view.rows[2][1]
        place = dict(part.split("=") for part in cell.address[1:].split("&"))
        assert (place["head"], place["stage"]) == ("1", "weights")
        words = example_words(example)
        weights = example.trace["decoder.layers.1.cross_attention.weights"][0, 1].double()
        steps, columns = words[1].index(2) + shift, words[0].index(1)
        assert (place["row"], place["column"]) == (str(steps), str(columns))
        n_steps, n_columns = words[1].count(2), words[0].count(1)
        pieces = weights[steps : steps + n_steps, columns : columns + n_columns]
        assert cell.value == pytest.approx(float(pieces.sum(1).mean()), abs=1e-6)
    assert view_of(tiny, reading="1.mean.naive").rows[0][0].address == ""


@pytest.mark.parametrize(
    ("gold", "note", "kept"),
    [
        ("0-0 1-2 x-y", "'x-y' is not a link", True),
        ("0-0 9-1", "9-1 is out of range", True),
        ("nonsense", "'nonsense' is not a link", False),
        ("0-0 " + "a " * 9, "6 further gold links are ignored", True),
        ("9" * 3000 + "-0", "is not a link", False),
        ("-1-0", "'-1-0' is not a link", False),
        ("0–0", "'0–0' is not a link", False),
        ("<script>", "'<script>' is not a link", False),
    ],
)
def test_malformed_gold_is_a_note_and_the_rest_counts(session: Session, gold: str, note: str, kept: bool) -> None:
    html = html_of(session, gold=gold)
    assert note in notes_of(html)
    assert ("aligns best here" in html) == kept
    assert "<script>" not in html.partition("<main")[2]


@pytest.mark.parametrize(
    ("reading", "note", "title"),
    [
        ("7.0.naive", "2 layers of 2 heads", "Decoder layer 1, head 0, naive"),
        ("0.9.shifted", "2 layers of 2 heads", "Decoder layer 0, head 1, shifted"),
        ("nonsense", "is no head", "Decoder layer 1, mean of the heads, naive"),
        ("1.0.sideways", "is no head", "Decoder layer 1, mean of the heads, naive"),
        ("٣.0.naive", "is no head", "Decoder layer 1, mean of the heads, naive"),
    ],
)
def test_unknown_head_gives_the_nearest_with_a_note(session: Session, reading: str, note: str, title: str) -> None:
    html = html_of(session, reading=reading)
    assert note in notes_of(html)
    assert title in Reader(html).text


def test_only_possible_gold_links_have_no_recall(session: Session) -> None:
    assert "recall –" in html_of(session, gold="0?0 1?1")


def test_gold_links_are_found_in_the_files_of_the_run(tiny: TinyRun, tmp_path: Path) -> None:
    shutil.copytree(tiny.run, tmp_path / "run")
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, lines in {
        "en": ["she  sings", SOURCE],
        "fr": ["elle chante", TARGET],
        "align": ["0-0 1-1", "0-0 3?3"],
    }.items():
        (folder / f"val.{name}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = tmp_path / "run" / "config.toml"
    text = config.read_text(encoding="utf-8").replace(str(tiny.folder / "validation"), str(folder / "val"))
    config.write_text(text, encoding="utf-8")
    session = Session(tmp_path / "run", WebSettings())
    html = html_of(session)
    assert "against 1 sure and 1 possible gold links" in html
    assert "from val.align" in html
    assert 'value="0-0 3?3"' in html
    assert "from val.align" in html_of(session, source="she sings", target="elle  chante")
    without = html_of(session, target="le chat")
    assert "aligns best here" not in without
    assert "panel=atlas" in without.partition("Which head aligns?")[2].partition("</p>")[0]
    assert "nothing here can say" not in html
    assert "from the address" in html_of(session, gold="0-0")


@pytest.mark.parametrize(
    "config", ["", "[data]\n", "data = 3\n", "not toml", '[data]\ntrain = ["nowhere"]\nvalidation = 7\n']
)
def test_run_without_readable_files_has_no_gold(tiny: TinyRun, tmp_path: Path, config: str) -> None:
    shutil.copytree(tiny.run, tmp_path / "run")
    (tmp_path / "run" / "config.toml").write_text(config, encoding="utf-8")
    session = Session(tmp_path / "run", WebSettings())
    html = html_of(session)
    assert "aligns best here" not in html
    assert "Which head aligns?" not in html  # the atlas could not tell either


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("العربية القط ينام", "le chat dort"),
        ("猫在睡觉", "le 猫 dort"),
        ("the e\u0301te\u0301 👩\u200d👧 cat", "a \u202e b"),
    ],
)
def test_any_script_has_an_alignment(session: Session, source: str, target: str) -> None:
    html = html_of(session, source=source, target=target, gold="0-0")
    assert 'class="word-weights' in html or "word-weights" in html
    Reader(html)


def test_text_without_words_is_a_sentence(tiny: TinyRun) -> None:
    assert "nothing to link" in view_of(tiny, target="").message


def test_long_texts_are_cut_with_a_note_but_scored_whole(tiny: TinyRun) -> None:
    source = " ".join(["cat"] * 60)
    view = view_of(tiny, source=source, target=" ".join(["chat"] * 55), gold=" ".join(f"{n}-{n}" for n in range(55)))
    assert (len(view.sources), len(view.targets)) == (48, 48)
    assert "48 of 60 source words and 48 of 55 target words" in view.limit
    assert len(view.pharaoh.split()) == 55
    assert "against 55 sure" in view.summary


def test_parsing_gold_keeps_sure_links_among_the_possible() -> None:
    gold = parse_gold("0-0 1?1 1p2", (3, 3), [])
    assert gold is not None
    assert gold.sure == {(0, 0)}
    assert gold.possible == {(0, 0), (1, 1), (1, 2)}
