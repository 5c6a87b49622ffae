"""Word alignments and copies of unknown words, read from attention between tokens."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.text import Tokenizer


class HeadReading(NamedTuple):
    """Attention from which word links are read: one head of a decoder layer, or the mean of its heads.

    ``shifted`` reads at the steps where a word is the decoder's input, not at those that predict it (``word_weights``).
    """

    layer: int = -1
    head: int | None = None
    shifted: bool = False


def grouped(weights: Tensor, rows: Sequence[int], columns: Sequence[int]) -> Tensor:
    """``[..., row, column]`` by groups: a query group is the mean of its rows, a key group the sum of its columns.

    ``rows[i]`` is the group, from 0, that row i is part of, -1 for none; likewise ``columns``. Every group has a
    member. Rows that summed to 1 do so still where no column is left out.
    """
    summed = _summed(_summed(weights, columns, -1), rows, -2)
    members = _summed(torch.ones(len(rows)).to(weights), rows, -1)
    return summed / members[:, None]


def word_weights(
    weights: Tensor, source_words: Sequence[int], target_words: Sequence[int], shifted: bool = False
) -> Tensor:
    """``[..., target word, source word]`` of a decoder's attention ``[..., step, source token]``.

    Step i predicts target token i and reads token i - 1, the start token at first; the last step predicts the end.
    ``source_words`` and ``target_words`` give the word of each token, without start and end. A target word has the
    rows of the steps that predict it, with ``shifted`` of those at which it is the decoder's *input* (Chen et al. 2020,
    arXiv:2004.14837).
    """
    steps = weights[..., 1:, :] if shifted else weights[..., :-1, :]
    return grouped(steps[..., : len(source_words)], target_words, source_words)


def strongest_links(table: Tensor) -> list[tuple[int, int]]:
    """(source word, target word), sorted: for each target word the source word that has most of its attention."""
    if not table.numel():
        return []
    return sorted((best, word) for word, best in enumerate(table.argmax(-1).tolist()))


def one_head(weights: Tensor, layer: int, head: int | None) -> Tensor:
    """One matrix of ``[layer, head, ...]``; the mean over the heads of ``layer`` when ``head`` is None."""
    in_decoder("layer", layer, weights.size(0))
    in_decoder("head", head, weights.size(1))
    return weights[layer].mean(0) if head is None else weights[layer, head]


def in_decoder(name: str, value: int | None, size: int) -> None:
    """A ``ConfigError`` unless ``value`` is None, or one of ``size``, counted from 0 or backwards from -1."""
    if value is not None and not -size <= value < size:
        raise ConfigError(f"{name}={value} is not in the decoder; choose from 0 to {size - 1}")


def _summed(values: Tensor, groups: Sequence[int], axis: int) -> Tensor:
    """Along ``axis`` the sum of each group, without the members of none."""
    members = [index for index, group in enumerate(groups) if group >= 0]
    values_of_members = values.index_select(axis, torch.tensor(members, dtype=torch.long))
    shape = list(values.shape)
    shape[axis] = max(groups, default=-1) + 1
    numbers = torch.tensor([groups[index] for index in members], dtype=torch.long)
    return values.new_zeros(shape).index_add(axis, numbers, values_of_members)


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
    unknown_texts = {position: next(unknown, "") for position in _unknown(source_ids, tokenizer)}
    copied: dict[int, str] = {}
    if tokenizer.kind == "word":
        for position in _unknown(ids, names):
            best = int(rows[position].argmax())
            copied[position] = unknown_texts[best] if best in unknown_texts else tokenizer.decode([source_ids[best]])
        return copied
    originals = list(_runs(list(unknown_texts)))
    for run in _runs(list(_unknown(ids, names))) if originals else ():
        attention = rows[run].sum(0)
        best_run = max(originals, key=lambda one: float(attention[one].sum()))
        copied |= dict.fromkeys(run, "") | {run[0]: "".join(unknown_texts[position] for position in best_run)}
    return copied


def _unknown(ids: Sequence[int], tokenizer: Tokenizer) -> Iterator[int]:
    return (position for position, id in enumerate(ids) if id == tokenizer.unknown_id)


def _runs(positions: Sequence[int]) -> Iterator[list[int]]:
    """Group consecutive positions."""
    run: list[int] = []
    for position in positions:
        if run and position != run[-1] + 1:
            yield run
            run = []
        run.append(position)
    if run:
        yield run
