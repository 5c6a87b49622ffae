"""The beam search as a tree: every hypothesis that was considered, its score, and why it left."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from glassformer.explain.example import Example
from glassformer.explain.matrix import Label
from glassformer.generate.config import Hypothesis, length_penalty
from glassformer.predict.translator import Translator
from glassformer.taps import record
from glassformer.text.decimals import aligned, decimal
from glassformer.web.explorer.selection import Selection

COLUMN, ROW, BOX, HEIGHT = 132, 44, 106, 36
"""Distance of two steps and of two ranks, and size of a box, in pixels."""
MAX_STEPS = 40
"""Steps of the drawing; further ones are left out, with a note."""

MAX_BEAM = 16
"""Largest beam of a tree; 1 is greedy search."""

CONTINUES, ENDED, PRUNED, OPEN = "continues", "ended", "pruned", "open"


@dataclass(frozen=True)
class BeamNode:
    """A hypothesis of a step. ``parent`` is the index of the one that it continues, −1 for the start."""

    step: int
    rank: int
    parent: int
    tokens: tuple[int, ...]
    log_prob: float
    total: float
    state: str
    """``continues``, ``ended`` (the end token), ``pruned`` (below the beam), ``open`` (alive when the search ended)."""


@dataclass(frozen=True)
class BeamSearch:
    """All hypotheses of one search, step by step, and the hypotheses that it returned, best first."""

    nodes: tuple[BeamNode, ...]
    found: tuple[Hypothesis, ...]
    beam_size: int

    def count(self, state: str) -> int:
        """Number of hypotheses of a state."""
        return sum(node.state == state for node in self.nodes)


@dataclass(frozen=True)
class DrawnNode:
    step: int
    x: float
    y: float
    label: Label
    log_prob: str
    total: str
    normalized: str
    state: str
    best: bool
    reference: bool
    text: str
    reason: str
    address: str
    parent: int


@dataclass(frozen=True)
class BeamView:
    width: float
    height: float
    nodes: tuple[DrawnNode, ...]
    edges: tuple[tuple[str, str], ...]
    """Path and class of each line."""
    account: str
    verdict: str
    note: str
    has_reference: bool
    beam_size: int
    most: int = MAX_BEAM


def search_of(translator: Translator, source: str, beam_size: int) -> BeamSearch:
    """Search once more, and record the candidates of every step."""
    model, end = translator.models[0], translator.symbols.end
    with record(model, keep="candidate_*") as recorded:
        found = translator.hypotheses([source], beam_size=beam_size, n_best=beam_size, sample=False)[0]
    names = ("candidate_tokens", "candidate_scores", *["candidate_parents"] * (beam_size > 1))
    steps = zip(*(recorded.all(name) for name in names), strict=True)
    nodes: list[BeamNode] = []
    live = [-1]
    for step, tensors in enumerate(steps):
        rows = zip(*(tensor[0].tolist() for tensor in tensors), strict=True)
        following: list[int] = []
        for rank, (token, score, *parents) in enumerate(rows):
            if score == float("-inf"):
                continue
            above = live[parents[0] if parents else 0]
            before = nodes[above] if above >= 0 else None
            total = score if parents or before is None else before.total + score  # greedy: the score of the token alone
            wins = len(following) < beam_size if parents else rank == 0
            state = ENDED if token == end and (parents or wins) else CONTINUES if wins else PRUNED
            if state == CONTINUES:
                following.append(len(nodes))
            tokens = ((*before.tokens,) if before else ()) + (token,)
            nodes.append(BeamNode(step, rank, above, tokens, total - (before.total if before else 0.0), total, state))
        live = following
    for index in live:
        nodes[index] = replace(nodes[index], state=OPEN)
    return BeamSearch(tuple(nodes), tuple(one.hypothesis for one in found), beam_size)


def view_of(search: BeamSearch, translator: Translator, example: Example, selection: Selection) -> BeamView:
    """The tree as a drawing: a column for each step, the best hypothesis of a step on top."""
    end = translator.symbols.end
    best = (*search.found[0].tokens, end)
    reference = (*example.target_ids[1:], end) if selection.mode == "forced" else ()
    drawn = [
        _drawn(node, translator, selection, node.tokens == best[: node.step + 1], _is_prefix(node, reference))
        for node in search.nodes
        if node.step < MAX_STEPS
    ]
    edges = tuple(
        (_edge(drawn[node.parent] if node.parent >= 0 else None, node), _edge_class(node))
        for node in sorted(drawn, key=lambda node: (node.best, node.state != PRUNED))
    )
    steps = 1 + max(node.step for node in search.nodes)
    rows = 1 + max(node.rank for node in search.nodes)
    note = f"The first {MAX_STEPS} of {steps} steps are drawn." if steps > MAX_STEPS else ""
    return BeamView(
        46 + COLUMN * min(steps, MAX_STEPS),
        ROW * rows + 12,
        tuple(drawn),
        edges,
        _account(search),
        _verdict(search, translator, example, reference),
        note,
        bool(reference),
        search.beam_size,
    )


def _drawn(node: BeamNode, translator: Translator, selection: Selection, best: bool, reference: bool) -> DrawnNode:
    tokenizer = translator.tokenizers.target
    ended = node.state == ENDED
    written = node.tokens[:-1] if ended else node.tokens
    text = tokenizer.decode(list(written))
    address = replace(selection.at_model(), mode="forced", target=text, step=node.step, panel="").address
    penalty = _penalty(translator, len(node.tokens))
    return DrawnNode(
        node.step,
        46 + COLUMN * node.step,
        6 + ROW * node.rank,
        Label(tokenizer.tokens([node.tokens[-1]])[0]),
        aligned(node.log_prob, 2),
        aligned(node.total, 2),
        aligned(node.total / penalty, 3),
        node.state,
        best,
        reference,
        text,
        _reason(node),
        address if text else "",
        node.parent,
    )


def _penalty(translator: Translator, length: int) -> float:
    return length_penalty(translator.decoding.length_penalty, length, translator.decoding.alpha)


def _reason(node: BeamNode) -> str:
    return {
        CONTINUES: "among the best of its step, so it continues",
        ENDED: "chose the end token, so it is complete",
        PRUNED: f"rank {node.rank + 1} of its step, below the beam",
        OPEN: "alive when the search ended: it could no longer win",
    }[node.state]


def _is_prefix(node: BeamNode, reference: Sequence[int]) -> bool:
    return bool(reference) and node.tokens == tuple(reference[: node.step + 1])


def _edge(parent: DrawnNode | None, node: DrawnNode) -> str:
    start_x, start_y = (14, 6 + HEIGHT / 2) if parent is None else (parent.x + BOX, parent.y + HEIGHT / 2)
    end_y = node.y + HEIGHT / 2
    middle = (start_x + node.x) / 2
    return f"M{start_x:g} {start_y:g}C{middle:g} {start_y:g} {middle:g} {end_y:g} {node.x:g} {end_y:g}"


def _edge_class(node: DrawnNode) -> str:
    return " ".join(filter(None, (node.state, "best" if node.best else "", "reference" if node.reference else "")))


def _account(search: BeamSearch) -> str:
    counts = {state: search.count(state) for state in (CONTINUES, ENDED, PRUNED, OPEN)}
    return (
        f"{len(search.nodes):,} hypotheses were considered with a beam of {search.beam_size}: "
        f"{counts[CONTINUES]:,} continued, {counts[ENDED]:,} ended, {counts[PRUNED]:,} were pruned, "
        f"{counts[OPEN]:,} were alive when the search ended."
    )


def _verdict(search: BeamSearch, translator: Translator, example: Example, reference: Sequence[int]) -> str:
    """Compare the reference with what was found: a search error if the reference has the higher score."""
    best = search.found[0]
    text = translator.tokenizers.target.decode(best.tokens)
    if not reference:
        return f"Best: “{text}”, log-probability {decimal(best.log_prob)}, score {decimal(best.score)}."
    if tuple(reference[:-1]) == tuple(best.tokens):
        return f"The text in the target is what the search found: score {decimal(best.score)}."
    own = translator.score([example.source], [example.target])[0]
    left = next((step for step in range(len(reference)) if not _alive(search, reference[: step + 1])), len(reference))
    where = f"It left the beam at step {left}." if left < len(reference) else "It stayed in the beam to its end."
    scores = f"“{example.target}” has a score of {decimal(own.score)}, “{text}” has {decimal(best.score)}."
    if own.score > best.score:
        return f"Search error: the model prefers the text in the target, but did not find it. {scores} {where}"
    return f"Model error, if the text in the target is right: the model itself prefers another. {scores} {where}"


def _alive(search: BeamSearch, prefix: Sequence[int]) -> bool:
    return any(node.tokens == tuple(prefix) and node.state != PRUNED for node in search.nodes)
