"""Replace unknown tokens of a translation by source text, selected by attention."""

from collections.abc import Iterator, Sequence

from jaxtyping import Float
from torch import Tensor

from glassformer.text import Tokenizer


def copies(
    weights: Float[Tensor, "step source"],
    source: tuple[Tokenizer, str, Sequence[int]],
    target: tuple[Tokenizer, Sequence[int]],
    shifted: bool = False,
) -> dict[int, str]:
    """Map the position of each ``<unk>`` in the target ids to the source text with the most attention.

    ``source`` is a tokenizer, a text and its ids without the end token. The rows of ``weights`` are read as in
    ``word_weights``. For kind word, the text is the word with the largest weight, known or not (Jean et al. 2015).
    Otherwise a run of unknown target characters is matched with the run of unknown source characters with the largest
    sum of weights. The first position of a run has the full text, the others are empty. If the source has no unknown
    characters, nothing is copied.
    """
    tokenizer, text, source_ids = source
    names, ids = target
    read = weights[:, : len(source_ids)]
    rows = read[1:] if shifted else read
    unknown = iter(tokenizer.unknown(text) if tokenizer.unknown_id in source_ids else [])
    unknown_texts = {place: next(unknown, "") for place in _unknown(source_ids, tokenizer)}
    found: dict[int, str] = {}
    if tokenizer.kind == "word":
        for place in _unknown(ids, names):
            best = int(rows[place].argmax())
            found[place] = unknown_texts[best] if best in unknown_texts else tokenizer.decode([source_ids[best]])
        return found
    originals = list(_runs(list(unknown_texts)))
    for run in _runs(list(_unknown(ids, names))) if originals else ():
        attention = rows[run].sum(0)
        best_run = max(originals, key=lambda one: float(attention[one].sum()))
        found |= dict.fromkeys(run, "") | {run[0]: "".join(unknown_texts[place] for place in best_run)}
    return found


def _unknown(ids: Sequence[int], tokenizer: Tokenizer) -> Iterator[int]:
    return (place for place, id in enumerate(ids) if id == tokenizer.unknown_id)


def _runs(places: Sequence[int]) -> Iterator[list[int]]:
    """Group consecutive positions."""
    run: list[int] = []
    for place in places:
        if run and place != run[-1] + 1:
            yield run
            run = []
        run.append(place)
    if run:
        yield run
