"""Steps of what a model predicts: the next token of each position, hidden words, classes, tags, a forecast."""

from collections.abc import Sequence
from typing import Any

from glassformer.explain.example import Example
from glassformer.explain.formula.formula import explain
from glassformer.explain.matrix import Axis, Label
from glassformer.explain.walkthrough.prose import Prose, build
from glassformer.explain.walkthrough.step import MAX_LABELS, Step, cut_axis, legend
from glassformer.text.decimals import decimal, probability
from glassformer.text.tokenizer import Tokenizer

RANKED = 5
"""Candidates that are shown for a position."""
RANK = "Rank 1 is the most probable token of the vocabulary, rank 2 the next."


def next_token(example: Example, path: str) -> Step:
    """Section 3.4, last sentence. The formula is of the first choice: of a translation's first, a text's next token."""
    tokenizer, read, targets, side = _targets(example)
    chosen = 0 if example.translated else len(read) - 1
    probabilities = example.trace[f"{path}.probabilities"][0]
    values, ids = probabilities.topk(min(RANKED, probabilities.size(-1)), dim=-1)
    words = [("after", "is to come", "its rank", *(f"{place}." for place in range(1, values.size(1) + 1)))]
    for position, target in enumerate(targets):
        coming, rank = "?", ""
        if target is not None:
            coming = tokenizer.tokens([target])[0]
            rank = str(int((probabilities[position] > probabilities[position, target]).sum()) + 1)
        best = _candidates(tokenizer, ids[position].tolist(), values[position].tolist())
        words.append((read[position], coming, rank, *best))
    seen = [cell for row in words for cell in row]
    fill = {
        "vocab": f"{probabilities.size(-1):,}",
        "after": read[chosen],
        "best": tokenizer.tokens([int(ids[chosen, 0])])[0],
        "probability": probability(float(values[chosen, 0])),
        "ranked": values.size(1),
    }
    return build(
        example,
        Prose("next_token", [], fill),
        path,
        {
            "position": cut_axis("position", "token read", example.sides[-1].labels),
            "vocab": _vocab(tokenizer, ids[chosen].tolist()),
        },
        evaluation=explain(example.trace, f"{path}.probabilities", position=chosen, vocab=int(ids[chosen, 0])),
        words=tuple(words),
        links=((0, 0), (1, 1)),
        side=side,
        caption=f"{RANK} Columns 1. to {values.size(1)}. are the most probable tokens. {legend(seen)}".strip(),
    )


def hidden_words(example: Example, path: str) -> Step:
    """Devlin et al. 2019, section 3.1: what stands behind each mask."""
    tokenizer, probabilities = example.sides[0].vocabulary, example.trace[f"{path}.probabilities"][0]
    values, ids = probabilities.topk(min(RANKED, probabilities.size(-1)), dim=-1)
    words = [("position", "read", *(f"{place}." for place in range(1, values.size(1) + 1)))]
    for place in example.positions:
        best = _candidates(tokenizer, ids[place].tolist(), values[place].tolist())
        words.append((str(place), example.source_tokens[place], *best))
    place = example.positions[0]
    fill = {
        "plural": "s" * (len(example.positions) > 1),
        "after": f"position {place}",
        "best": tokenizer.tokens([int(ids[place, 0])])[0],
        "probability": probability(float(values[place, 0])),
        "ranked": values.size(1),
    }
    rows = cut_axis("position", "token read", example.sides[0].labels)
    return build(
        example,
        Prose("hidden", [], fill),
        path,
        {"position": rows, "vocab": _vocab(tokenizer, ids[place].tolist())},
        evaluation=explain(example.trace, f"{path}.probabilities", position=place, vocab=int(ids[place, 0])),
        words=tuple(words),
    )


def classes(example: Example, path: str) -> Step:
    """The linear layer and the softmax over the classes, from the one vector that stands for all."""
    names, probabilities = example.labels, example.trace[f"{path}.probabilities"][0]
    values, order = probabilities.sort(descending=True, stable=True)
    best = int(order[0])
    ranked = enumerate(zip(order.tolist(), values.tolist(), strict=True), 1)
    words = (("rank", "class", "probability"), *((f"{rank}.", names[i], probability(p)) for rank, (i, p) in ranked))
    fill = {
        "first": example.source_tokens[0],
        "classes": len(names),
        "best": names[best],
        "probability": probability(float(values[0])),
    }
    prose = Prose("classes", ["pooled"] * ("classes.pooler.pooled" in example.trace), fill)
    evaluation = explain(example.trace, f"{path}.probabilities", label=best)
    return build(
        example,
        prose,
        path,
        {"label": cut_axis("label", "class", tuple(map(Label, names)))},
        evaluation=evaluation,
        words=words,
    )


def tags(example: Example, path: str) -> Step:
    """Devlin et al. 2019, section 5.3: a tag for the first piece of each word."""
    names, probabilities = example.labels, example.trace[f"{path}.probabilities"][0]
    words = [("position", "first piece of a word", "tag", "probability")]
    for place in example.positions:
        best = int(probabilities[place].argmax())
        words.append(
            (str(place), example.source_tokens[place], names[best], probability(float(probabilities[place, best])))
        )
    axes = {
        "position": cut_axis("position", "token", example.sides[0].labels),
        "tag": cut_axis("tag", "tag", tuple(map(Label, names))),
    }
    chosen = example.positions[0]
    best = int(probabilities[chosen].argmax())
    evaluation = explain(example.trace, f"{path}.probabilities", position=chosen, tag=best)
    return build(
        example, Prose("tags", [], {"tags": len(names)}), path, axes, evaluation=evaluation, words=tuple(words)
    )


def forecast(example: Example, path: str) -> Step:
    """Nie et al. 2023, section 3.1: the flattened patches through a linear layer."""
    assert example.values is not None and example.forecast is not None
    steps = [f"step +{step + 1}" for step in range(min(MAX_LABELS, len(example.forecast)))]
    axes = {
        "step": Axis.of("step to come", steps, "step"),
        "variable": Axis.of("variable", example.labels[:MAX_LABELS], "variable"),
    }
    before, after = example.values[-8:], example.forecast[:8]
    times = [
        *(f"−{len(before) - 1 - at}" for at in range(len(before) - 1)),
        "0",
        *(f"+{at + 1}" for at in range(len(after))),
    ]
    words = [("variable", *times)]
    for place, name in enumerate(example.labels[:MAX_LABELS]):
        words.append((name, *(decimal(value) for value in (*before[:, place], *after[:, place]))))
    prose = Prose("forecast", ["normalized"] * ("mean" in example.trace), {"steps": len(example.forecast)})
    return build(example, prose, path, axes, words=tuple(words))


def head(example: Any, path: str) -> Step:
    """The step of an output projection: by what its logits are of, and what precedes it."""
    axis = example.trace.axes(f"{path}.logits")[-1]
    if axis == "vocab":
        return hidden_words(example, path) if "transform.normed" in example.trace else next_token(example, path)
    return classes(example, path) if axis == "label" else tags(example, path)


def _targets(example: Example) -> tuple[Tokenizer, Sequence[str], Sequence[int | None], str]:
    """The tokenizer, the tokens that are read, the token after each (None: nobody knows), and the side."""
    side = example.sides[-1]
    known: list[int | None] = [*example.predicted_ids] if example.translated else [*side.ids[1:], None]
    return side.vocabulary, side.tokens, known, side.name


def _vocab(tokenizer: Tokenizer, ids: Sequence[int]) -> Axis:
    return Axis.of("token of the vocabulary", tokenizer.tokens(ids), "vocab", tuple(ids))


def _candidates(tokenizer: Tokenizer, ids: Sequence[int], values: Sequence[float]) -> list[str]:
    return [f"{token} {probability(value)}" for token, value in zip(tokenizer.tokens(ids), values, strict=True)]
