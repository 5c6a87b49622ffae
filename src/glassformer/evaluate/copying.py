"""What an unknown token of a translation stands for, copied from the source that its attention reads."""

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
    """For the place of each ``<unk>`` among the target's ids, the text of the source that is attended to most.

    ``source`` is a tokenizer, a text and its ids without end; the rows of ``weights`` are read as in ``word_weights``.
    In a vocabulary of words that text is the word with the largest weight, known or not (Jean et al. 2015). Elsewhere
    a run of unknown characters stands for the run of unknown characters of the source with the largest sum of weights;
    its first place has the whole text, the others are empty. Without any in the source there is nothing to copy.
    """
    tokenizer, text, source_ids = source
    names, ids = target
    read = weights[:, : len(source_ids)]
    rows = read[1:] if shifted else read
    unknown = iter(tokenizer.unknown(text) if tokenizer.unknown_id in source_ids else [])
    told = {place: next(unknown, "") for place in _unknown(source_ids, tokenizer)}
    found: dict[int, str] = {}
    if tokenizer.kind == "word":
        for place in _unknown(ids, names):
            best = int(rows[place].argmax())
            found[place] = told[best] if best in told else tokenizer.decode([source_ids[best]])
        return found
    originals = list(_runs(list(told)))
    for run in _runs(list(_unknown(ids, names))) if originals else ():
        attention = rows[run].sum(0)
        best_run = max(originals, key=lambda one: float(attention[one].sum()))
        found |= dict.fromkeys(run, "") | {run[0]: "".join(told[place] for place in best_run)}
    return found


def _unknown(ids: Sequence[int], tokenizer: Tokenizer) -> Iterator[int]:
    return (place for place, id in enumerate(ids) if id == tokenizer.unknown_id)


def _runs(places: Sequence[int]) -> Iterator[list[int]]:
    """Neighbours together."""
    run: list[int] = []
    for place in places:
        if run and place != run[-1] + 1:
            yield run
            run = []
        run.append(place)
    if run:
        yield run
