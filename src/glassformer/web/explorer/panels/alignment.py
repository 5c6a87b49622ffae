"""Word alignment: the words that one head links, gold links beside them, and the head that aligns best."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from torch import Tensor

from glassformer.alignment.attention import HeadReading, one_head, strongest_links
from glassformer.alignment.links import GoldLinks, LinkScores, link_scores, read_gold, write_pharaoh
from glassformer.errors import DataError
from glassformer.explain.analysis.word_links import (
    ScoredHead,
    cross_attentions,
    example_attention,
    example_words,
    head_links,
    score_heads,
)
from glassformer.explain.example import Example
from glassformer.explain.matrix import WEIGHTS, Label
from glassformer.explain.page.sheets import shade_class
from glassformer.predict.alignment import HeadLinks, WordAttention
from glassformer.text.decimals import aligned
from glassformer.text.decimals import weight as weight_text
from glassformer.web.explorer.places import split_name
from glassformer.web.explorer.selection import Selection

PITCH, WIDTH, INSET = 34, 300, 8
"""Height of a word, and width of the space between the columns, in pixels."""
MAX_WORDS = 48
"""Words of a side that are drawn; links and scores are those of all words."""
MAX_NOTES = 3
"""Gold links that are refused one by one; further ones are counted."""
LONGEST_LINK = 24
"""Characters of a gold link."""
READING = re.compile(r"([0-9]{1,4})\.(mean|[0-9]{1,4})\.(naive|shifted)")
NO_WORDS = "One of the two texts has no words, so there is nothing to link."
SURE, POSSIBLE, WRONG, MISSED, FREE = "sure", "possible", "wrong", "missed", "free"
MEANINGS = {
    SURE: "linked, and sure in the gold links",
    POSSIBLE: "linked, and possible in the gold links",
    WRONG: "linked, but not in the gold links",
    MISSED: "sure in the gold links, but not linked",
    FREE: "linked",
}


@dataclass(frozen=True)
class WordLine:
    """A line between two words; ``state`` is a key of ``MEANINGS``."""

    source: int
    target: int
    path: str
    state: str
    text: str


@dataclass(frozen=True)
class WordCell:
    """Weight of a source word in the row of a target word."""

    value: float
    text: str
    shade: str
    mark: str
    gold: str
    title: str
    address: str
    """The number of the head at the first tokens of both words; a mean of heads has no number of its own."""


@dataclass(frozen=True)
class HeadScore:
    """A row of the table of heads: texts of both readings, and the addresses that choose them."""

    name: str
    sharpness: str
    readings: tuple["ReadingScore", "ReadingScore"]


@dataclass(frozen=True)
class ReadingScore:
    error_rate: str
    precision: str
    recall: str
    address: str
    current: bool
    best: bool


@dataclass(frozen=True)
class AlignmentView:
    message: str
    title: str = ""
    summary: str = ""
    verdict: str = ""
    sources: tuple[Label, ...] = ()
    targets: tuple[Label, ...] = ()
    lines: tuple[WordLine, ...] = ()
    height: int = 0
    rows: tuple[tuple[WordCell, ...], ...] = ()
    legend: tuple[tuple[str, str], ...] = ()
    limit: str = ""
    gold: str = ""
    gold_origin: str = ""
    heads: tuple[HeadScore, ...] = ()
    pharaoh: str = ""
    download: str = ""
    address: str = ""
    scored: bool = False
    atlas: str = ""
    """Address of the error rates over other sentences, for a sentence without gold links."""


def alignment_of(
    example: Example, selection: Selection, usual: HeadReading, run_gold: tuple[str, str], notes: list[str]
) -> AlignmentView:
    """The panel. ``usual`` is the reading of an address without one, ``run_gold`` links of the run's files and where.

    ``notes`` gets a line for each value of the address that is not there.
    """
    attention = example_attention(example)
    if attention is None:
        return AlignmentView(NO_WORDS)
    reading = chosen_reading(selection.reading, attention, usual, notes)
    table = one_head(attention.shifted if reading.shifted else attention.naive, reading.layer, reading.head)
    links = frozenset(strongest_links(table))
    sources, targets = example.sides[0].words, example.sides[-1].words
    text, origin = (selection.gold, "the address") if selection.gold.strip() else run_gold
    gold = parse_gold(text, (len(sources), len(targets)), notes) if text.strip() else None
    heads = head_links([attention])
    scored = score_heads(heads, [gold]) if gold is not None else []
    drawn = table[:MAX_WORDS, :MAX_WORDS]
    shape = drawn.shape[0], drawn.shape[1]
    states = _states(links, gold)
    pharaoh = write_pharaoh(links)
    lines = tuple(_line(link, state, table, shape) for link, state in states.items() if _fits(link, shape))
    return AlignmentView(
        "",
        reading_name(reading),
        _summary(links, gold),
        _verdict(scored, reading),
        sources[: shape[1]],
        targets[: shape[0]],
        tuple(sorted(lines, key=lambda line: list(MEANINGS).index(line.state), reverse=True)),
        PITCH * max(shape),
        _rows(example, selection, drawn, (states, reading)),
        tuple((state, MEANINGS[state]) for state in MEANINGS if state in states.values()),
        _limit(table, shape),
        text.strip(),
        origin if gold is not None else "",
        tuple(_head_rows(heads, scored, attention, (selection, reading))),
        pharaoh,
        f"data:text/plain;charset=utf-8,{quote(pharaoh)}%0A",
        _head_selection(example, selection, reading).address,
        gold is not None,
    )


def parse_gold(text: str, size: tuple[int, int], notes: list[str]) -> GoldLinks | None:
    """The valid links of ``text``; ``notes`` gets a line for what is not a link. None if no link is valid."""
    found, refused = list[GoldLinks](), list[str]()
    for word in text.split():
        try:
            if len(word) > LONGEST_LINK:
                raise DataError(f"{word[:LONGEST_LINK]!r}… is not a link")
            found += read_gold([word], [size])
        except DataError as error:
            refused.append("; ".join(filter(None, (error.fault, error.remedy))))
    notes += [f"Gold links: {reason}." for reason in refused[:MAX_NOTES]]
    if len(refused) > MAX_NOTES:
        notes.append(f"{len(refused) - MAX_NOTES:,} further gold links are ignored.")
    if not found:
        return None
    sure, possible = (frozenset[tuple[int, int]]().union(*links) for links in zip(*found, strict=True))
    return GoldLinks(sure, possible)


def chosen_reading(text: str, attention: WordAttention, usual: HeadReading, notes: list[str]) -> HeadReading:
    """The nearest reading that the model has."""
    layers, heads = attention.naive.shape[:2]
    usual = usual._replace(layer=usual.layer % layers)
    if not text:
        return usual
    match = READING.fullmatch(text)
    if match is None:
        notes.append(
            f"reading={text[:40]!r} is no head; write 1.0.shifted or 1.mean.naive. This is {reading_name(usual)}."
        )
        return usual
    layer, head = int(match[1]), None if match[2] == "mean" else int(match[2])
    nearest = HeadReading(min(layer, layers - 1), None if head is None else min(head, heads - 1), match[3] == "shifted")
    if (nearest.layer, nearest.head) != (layer, head):
        notes.append(f"The decoder has {layers} layers of {heads} heads, from 0 on; this is {reading_name(nearest)}.")
    return nearest


def reading_name(reading: HeadReading) -> str:
    """``decoder layer 1, head 0, shifted``"""
    head = "mean of the heads" if reading.head is None else f"head {reading.head}"
    return f"decoder layer {reading.layer}, {head}, {'shifted' if reading.shifted else 'naive'}"


def _text(reading: HeadReading) -> str:
    head = "mean" if reading.head is None else reading.head
    return f"{reading.layer}.{head}.{'shifted' if reading.shifted else 'naive'}"


def _states(links: frozenset[tuple[int, int]], gold: GoldLinks | None) -> dict[tuple[int, int], str]:
    """State of each link that is proposed or sure."""
    if gold is None:
        return dict.fromkeys(sorted(links), FREE)
    states = dict.fromkeys(sorted(gold.sure - links), MISSED)
    for link in sorted(links):
        states[link] = SURE if link in gold.sure else POSSIBLE if link in gold.possible else WRONG
    return states


def _fits(link: tuple[int, int], shape: tuple[int, int]) -> bool:
    return link[0] < shape[1] and link[1] < shape[0]


def _line(link: tuple[int, int], state: str, table: Tensor, shape: tuple[int, int]) -> WordLine:
    source, target = link
    start, end = (_height(place, count, max(shape)) for place, count in ((source, shape[1]), (target, shape[0])))
    third = WIDTH / 3
    path = f"M{INSET} {start:g}C{third:g} {start:g} {2 * third:g} {end:g} {WIDTH - INSET} {end:g}"
    return WordLine(source, target, path, state, weight_text(float(table[target, source])))


def _height(place: int, count: int, tall: int) -> float:
    """Middle of a word; the shorter column is centered."""
    return PITCH * (place + 0.5 + (tall - count) / 2)


def _rows(
    example: Example, selection: Selection, table: Tensor, choice: tuple[dict[tuple[int, int], str], HeadReading]
) -> tuple[tuple[WordCell, ...], ...]:
    states, reading = choice
    weights = _head_selection(example, selection, reading)
    columns, steps = ([words.index(word) for word in range(max(words) + 1)] for words in example_words(example))
    rows = []
    for target, row in enumerate(table.tolist()):
        cells = []
        for source, value in enumerate(row):
            state = states.get((source, target), "")
            place = replace(weights, stage="weights", row=steps[target] + reading.shifted, column=columns[source])
            cells.append(
                WordCell(
                    value,
                    weight_text(value),
                    shade_class(value, WEIGHTS),
                    "●" if state not in ("", MISSED) else "",
                    state if state in (SURE, POSSIBLE, MISSED) else "",
                    MEANINGS.get(state, ""),
                    "" if reading.head is None else place.address,
                )
            )
        rows.append(tuple(cells))
    return tuple(rows)


def _head_selection(example: Example, selection: Selection, reading: HeadReading) -> Selection:
    part, layer, sublayer, _ = split_name(example.model, f"{cross_attentions(example)[reading.layer]}.weights")
    return replace(selection.at_module(part, layer, sublayer), head=reading.head)


def _summary(links: frozenset[tuple[int, int]], gold: GoldLinks | None) -> str:
    count = f"{len(links)} {'link' if len(links) == 1 else 'links'}, one for each target word"
    if gold is None:
        return f"{count}."
    scores = link_scores([gold.sure], [gold.possible], [links])
    n_possible = len(gold.possible - gold.sure)
    return (
        f"{count}, against {len(gold.sure)} sure and {n_possible} possible gold links: "
        f"AER {percent(scores.error_rate)}, precision {percent(scores.precision)}, recall {percent(scores.recall)}."
    )


def percent(value: float) -> str:
    """A share in percent with one decimal; a dash where nothing is counted."""
    return "–" if math.isnan(value) else f"{aligned(100 * value, 1)} %"


def _verdict(scored: Sequence[ScoredHead], reading: HeadReading) -> str:
    """The head of the lowest error rate, in a sentence."""
    if not scored:
        return ""
    rates = {
        HeadReading(one.links.layer, one.links.head, shifted): one.scores(shifted).error_rate
        for shifted in (False, True)
        for one in scored
    }
    lowest = min(rates.values())
    best = [one for one, rate in rates.items() if rate == lowest]
    others = f", as do {len(best) - 1} others" if len(best) > 2 else ", as does 1 other" if len(best) == 2 else ""
    first = reading if reading in best else best[0]
    return f"Which head aligns? {reading_name(first).capitalize()} aligns best here{others}: AER {percent(lowest)}."


def _head_rows(
    heads: Sequence[HeadLinks],
    scored: Sequence[ScoredHead],
    attention: WordAttention,
    choice: tuple[Selection, HeadReading],
) -> list[HeadScore]:
    """Rows of the table, the lowest error rate first; without gold links in the order of the layers."""
    selection, reading = choice
    lowest = min((one.scores(shifted).error_rate for one in scored for shifted in (False, True)), default=math.nan)
    found = []
    for place, one in enumerate(heads):
        scores = scored[place] if scored else None
        readings = []
        for shifted in (False, True):
            own = HeadReading(one.layer, one.head, shifted)
            score = scores.scores(shifted) if scores else LinkScores(math.nan, math.nan, math.nan)
            address = replace(selection, reading=_text(own)).address
            texts = [percent(value) for value in score]
            readings.append(
                ReadingScore(texts[0], texts[1], texts[2], address, own == reading, score.error_rate == lowest)
            )
        rates = min(scores.naive.error_rate, scores.shifted.error_rate) if scores else 0.0
        sharpness = one_head(attention.naive, one.layer, one.head).amax(-1).mean()
        name = f"layer {one.layer}, {'mean of heads' if one.head is None else f'head {one.head}'}"
        found.append((rates, HeadScore(name, aligned(float(sharpness), 2), (readings[0], readings[1]))))
    return [row for _, row in sorted(found, key=lambda pair: pair[0])]


def _limit(table: Tensor, shape: tuple[int, int]) -> str:
    if tuple(table.shape) == shape:
        return ""
    return (
        f"The first {shape[1]} of {table.size(1)} source words and {shape[0]} of {table.size(0)} target words are "
        "drawn; links and scores are those of all."
    )
