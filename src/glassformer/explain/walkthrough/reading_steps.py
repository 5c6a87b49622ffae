"""Steps of what is read as text: tokens, one-hot rows, embeddings, segments and positions (sections 3.4 and 3.5)."""

from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.explain.examined import Examined
from glassformer.explain.walkthrough.step import (
    Axis,
    Step,
    StepCheck,
    TensorTable,
    checked,
    legend,
    tokens_axis,
    vectors,
)
from glassformer.layers.position import Sinusoidal
from glassformer.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextInput:
    """A text as the embedding of that name reads it; ``side`` is whose tokens these are on the page."""

    embedding: str
    stack: str
    side: str
    tokenizer: Tokenizer
    text: str
    ids: Sequence[int]
    whole: bool = True
    """Whether the ids are those of the text alone, and so give it back."""


def text_to_vectors(example: Examined, reading: TextInput, number: int) -> Step:
    """Section 3.4."""
    tokenizer, t = reading.tokenizer, example.trace
    labels = example.tokens(reading.stack)
    rows = tokens_axis("position", "token", labels)
    unscaled = getattr(example.model, reading.embedding).scale == 1.0
    taps = [("tokens", "the row of the matrix that each one-hot selects")] + [("scaled", "× √d_model")] * (not unscaled)
    tables = tuple(vectors(t, f"{reading.embedding}.{tap}", title, rows) for tap, title in taps)
    unknown = sum(i == tokenizer.unknown_id for i in reading.ids)
    ones = t[f"{reading.embedding}.one_hot"].sum(-1)
    facts = [checked(*tables), StepCheck("every one-hot vector holds a single 1", bool((ones == 1).all()))]
    if reading.whole:
        back = tokenizer.decode(reading.ids)
        same = bool(unknown) or back == tokenizer.normalize(reading.text)
        facts.append(StepCheck(f"the tokens give the text back: {back!r}", same))
    if unknown:
        facts.append(StepCheck(f"{unknown} of the tokens stand for what the vocabulary does not hold", True))
    return Step(
        number,
        "Tokens, one-hot, embedding",
        f"The text is cut into {len(reading.ids)} tokens, each with its number in a vocabulary of "
        f"{tokenizer.vocab_size:,}; a one-hot vector with a 1 at that number selects a row of the embedding matrix.",
        "A network computes with vectors, and tokens that are used alike come to lie close to each other.",
        "x = onehot(token) · E" + ("" if unscaled else " · √d_model"),
        "section 3.4",
        tables,
        tuple(facts),
        tables[-1].formula(0),
        (("token", "id", "how it was cut"), *_cuts(reading, labels)),
        links=((0, 0),),
        side=reading.side,
        caption=_caption(tokenizer, labels),
    )


def positions(example: Examined, reading: TextInput, number: int) -> Step:
    """Section 3.5."""
    t = example.trace
    embedding = getattr(example.model, reading.embedding)
    position, source = embedding.position, "section 3.5"
    rows = tokens_axis("position", "token", example.tokens(reading.stack))
    what = "Every position has a vector of its own, and it is added to the token that stands there."
    tables: tuple[TensorTable, ...]
    if position is None:
        name, title = (
            f"{reading.stack}.layers.0.self_attention.rotated_q",
            "queries of head 0, turned by their position",
        )
        tables = (vectors(t, name, title, Axis("query", "token", rows.labels), "d_k", (("head", 0),)),)
        theta = float(getattr(example.model, reading.stack).layers[0].self_attention.rotary.theta)
        equation = f"(q₂ᵢ, q₂ᵢ₊₁) turned by the angle position / {theta:.10g}^(2i/d_k)"
        what = "Nothing is added: in each layer queries and keys are turned, pair by pair, by an angle that grows with "
        what += "their position."
        source = "Su et al. 2021"
    else:
        names = [("encoding", "what the position adds"), ("positioned", "token and position together")]
        tables = tuple(vectors(t, f"{reading.embedding}.{tap}", title, rows) for tap, title in names)
        sines = "PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(same)"
        equation = sines if isinstance(position, Sinusoidal) else "PE = P[pos], learned"
    if embedding.norm is not None:
        tables += (vectors(t, f"{reading.embedding}.normed", "normalized: what enters the first layer", rows),)
        what += " The sum is normalized." if position is not None else " The token's vector itself is normalized."
        equation += f"; LayerNorm({'x' if position is None else 'x + PE'})"
        source += "; Lewis et al. 2020"
    return Step(
        number,
        "Positions",
        what,
        "Attention alone would read a bag of words: it has no notion of what comes before what.",
        equation,
        source,
        tables,
        (checked(*tables),),
        tables[0].formula(min(1, len(rows.labels) - 1)),
    )


def _caption(tokenizer: Tokenizer, labels: Sequence[str]) -> str:
    merged = "A merge joins two symbols. Merges are applied in the order in which they were learned, their rank."
    return f"{merged if tokenizer.kind in ('bpe', 'bytes') else ''} {legend(labels)}".strip()


def _cuts(reading: TextInput, labels: Sequence[str]) -> list[tuple[str, str, str]]:
    """Each token, its id, and the merges that made the word which it ends."""
    merges = iter(_merges_by_word(reading))
    found = []
    words = reading.tokenizer.word_of(reading.ids)
    for place, (token, i) in enumerate(zip(labels, reading.ids, strict=True)):
        begins = words[place] >= 0 and (place == 0 or words[place] != words[place - 1])
        found.append((token, str(i), next(merges, "") if begins else ""))
    return found


def _merges_by_word(reading: TextInput) -> list[str]:
    """``a+b (rank 12), ab+c (rank 40)`` for each word between spaces."""
    text = reading.text if reading.whole else reading.tokenizer.decode(reading.ids)
    return [
        ", ".join(f"{merge.left}+{merge.right} (rank {merge.rank:,})" for merge in reading.tokenizer.merges_of(word))
        for word in text.split()
    ]
