"""Steps of what a model says: the next word of each position, hidden words, classes."""

from collections.abc import Sequence
from typing import NamedTuple

from glassformer.explain.examined import Examined
from glassformer.explain.formula.formula import explain
from glassformer.explain.trace import Trace
from glassformer.explain.walkthrough.step import (
    SHOWN_DIMENSIONS,
    Axis,
    Step,
    StepCheck,
    TensorTable,
    checked,
    legend,
    tokens_axis,
)
from glassformer.text.tokenizer import Tokenizer

RANKED = 5
"""Candidates that are shown for a position."""
RANK = "Rank 1 is the most probable token of the vocabulary, rank 2 the next."


class NextTokens(NamedTuple):
    """What is read at each position, and what is to come there; None where nobody knows."""

    tokenizer: Tokenizer
    read: Sequence[str]
    targets: Sequence[int | None]
    side: str


def next_words(example: Examined, said: NextTokens, number: int, chosen: int = 0) -> Step:
    """Section 3.4, last sentence: the word after each position; the formula is of the first choice after ``chosen``."""
    t, tokenizer = example.trace, said.tokenizer
    probabilities = t["output_projection.probabilities"][0]
    values, ids = probabilities.topk(min(RANKED, probabilities.size(-1)), dim=-1)
    words = [("after", "is to come", "its rank", *(f"{place}." for place in range(1, values.size(1) + 1)))]
    for position, target in enumerate(said.targets):
        best = best_of(tokenizer, ids[position].tolist(), values[position].tolist())
        if target is None:
            words.append((said.read[position], "?", "", *best))
            continue
        rank = int((probabilities[position] > probabilities[position, target]).sum()) + 1
        words.append((said.read[position], tokenizer.tokens([target])[0], str(rank), *best))
    rows = tokens_axis("position", "token read", said.read)
    seen = [cell for row in words for cell in row]
    best_id = int(ids[chosen, 0])
    tables = of_the_best(t, tokenizer, rows, ids[chosen].tolist(), said.read[chosen])
    return Step(
        number,
        "Linear and softmax",
        f"A linear layer gives one number for each of the {probabilities.size(-1):,} entries of the vocabulary, and "
        f"the softmax turns them into probabilities; after {said.read[chosen]} the first choice is "
        f"{tokenizer.tokens([best_id])[0]} with {float(values[chosen, 0]):.4f}.",
        "The probabilities say what the model holds likely; a search or a draw chooses from them.",
        "P(next = w) = exp(x · W_w) / Σ_v exp(x · W_v)",
        "section 3.4",
        tables,
        (checked(*tables), probabilities_sum_to_one(t, "output_projection")),
        explain(t, "output_projection.probabilities", position=chosen, vocab=best_id),
        tuple(words),
        links=((0, 0), (1, 1)),
        side=said.side,
        caption=f"{RANK} Columns 1. to {values.size(1)}. are the most probable tokens. {legend(seen)}".strip(),
    )


def of_the_best(t: Trace, tokenizer: Tokenizer, rows: Axis, ids: Sequence[int], after: str) -> tuple[TensorTable, ...]:
    """Tables of the logits and probabilities of the tokens ``ids``, the most probable ones ``after`` a token."""
    columns = Axis("vocab", "token of the vocabulary", tuple(tokenizer.tokens(ids)), tuple(ids))
    titles = {
        "logits": f"logits of the {len(ids)} most probable tokens after {after}",
        "probabilities": "their probabilities: softmax over the entire vocabulary",
    }
    return tuple(TensorTable(t, f"output_projection.{tap}", title, rows, columns) for tap, title in titles.items())


def classes(example: Examined, path: str, names: Sequence[str], number: int) -> Step:
    """The linear layer at ``path`` and the softmax over the classes, from the one vector that stands for all."""
    t = example.trace
    probabilities = t[f"{path}.probabilities"][0]
    rows = tokens_axis("label", "class", names)
    read = "classes.pooler.pooled"
    tables = [TensorTable(t, f"{path}.{tap}", tap, rows, None) for tap in ("logits", "probabilities")]
    if read in t:
        shown = min(SHOWN_DIMENSIONS, t[read].size(-1))
        dimensions = Axis("d_model", f"d_model, {shown} of {t[read].size(-1)}", tuple(map(str, range(shown))))
        tables.insert(0, TensorTable(t, read, "the pooled first token: tanh(x W + b)", dimensions, None))
    values, order = probabilities.sort(descending=True, stable=True)
    best = int(order[0])
    ranked = zip(order.tolist(), values.tolist(), strict=True)
    words = (("rank", "class", "probability"), *((f"{r}.", names[i], f"{p:.4f}") for r, (i, p) in enumerate(ranked, 1)))
    return Step(
        number,
        "The classes",
        f"What stands at {example.tokens('encoder')[0]} after the last layer speaks for the whole; a linear layer "
        f"gives one number for each of {len(names)} classes, and the softmax makes probabilities of them: "
        f"{names[best]} with {float(values[0]):.4f}.",
        "One position has gathered, layer by layer, what all the others know; so one vector is enough to decide by.",
        "P(class = c) = exp(x · W_c + b_c) / Σ_j exp(x · W_j + b_j)",
        "Devlin et al. 2019, section 4.1" if read in t else "Dosovitskiy et al. 2021, equation 4",
        tuple(tables),
        (checked(*tables), probabilities_sum_to_one(t, path)),
        explain(t, f"{path}.probabilities", label=best),
        words,
    )


def best_of(tokenizer: Tokenizer, ids: Sequence[int], values: Sequence[float]) -> list[str]:
    return [f"{token} {value:.4f}" for token, value in zip(tokenizer.tokens(ids), values, strict=True)]


def probabilities_sum_to_one(t: Trace, path: str) -> StepCheck:
    off = float((t[f"{path}.probabilities"].double().sum(-1) - 1).abs().max())
    what = "the classes" if t[f"{path}.probabilities"].ndim == 2 else "every position"
    return StepCheck(f"the probabilities of {what} sum to 1: largest deviation {off:.1g}", off <= 1e-2)
