"""Logit filters: each takes log-probabilities and sets to −∞ what may not come next.

All have one signature, ``(log_probs [rows, vocab], tokens [rows, length], sentence [rows])``: ``tokens`` begins
with the start token, and ``sentence`` says to which sentence of the prompt each row belongs.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from glassformer.generate.config import DecodingConfig
from glassformer.generate.protocol import Prompt

Filter = Callable[[Tensor, Tensor, Tensor], Tensor]


def search_filters(prompt: Prompt, config: DecodingConfig) -> list[Filter]:
    """What holds for every kind of search: symbols, n-grams, lengths, and the forced prefix, which overrules them."""
    filters: list[Filter] = [never([prompt.symbols.pad, prompt.symbols.start])]
    if config.no_repeat_ngram:
        filters.append(no_repeat_ngram(config.no_repeat_ngram, prompt.symbols.end))
    filters.append(lengths(prompt))
    return [forced_prefix(prompt, filters)] if any(prompt.prefixes) else filters


def sampling_filters(config: DecodingConfig) -> list[Filter]:
    """Temperature first, then what is cut off from the distribution it gives."""
    filters: list[Filter] = []
    if config.temperature != 1:
        filters.append(temperature(config.temperature))
    if config.top_k:
        filters.append(top_k(config.top_k))
    if config.top_p < 1:
        filters.append(top_p(config.top_p))
    if config.min_p:
        filters.append(min_p(config.min_p))
    return filters


def apply(filters: list[Filter], log_probs: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
    for one in filters:
        log_probs = one(log_probs, tokens, sentence)
    return log_probs


def what_may_follow(filters: list[Filter], log_probs: Tensor, tokens: Tensor, sentence: Tensor, end: int) -> Tensor:
    """What the ``filters`` leave; where they leave nothing the text ends, as when all words are used up."""
    allowed = apply(filters, log_probs, tokens, sentence)
    stuck = allowed.amax(-1) == -torch.inf
    allowed[:, end] = torch.where(stuck, log_probs[:, end], allowed[:, end])
    return allowed


def never(ids: list[int]) -> Filter:
    def apply(log_probs: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        return log_probs.index_fill(1, torch.tensor(ids, device=log_probs.device), -torch.inf)

    return apply


def lengths(prompt: Prompt) -> Filter:
    """No end before the minimum; nothing but the end at the maximum."""
    minima, maxima = torch.tensor(prompt.min_lengths), torch.tensor(prompt.max_lengths)
    least, first_end, end = max(prompt.min_lengths), min(prompt.max_lengths), prompt.symbols.end

    def apply(log_probs: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        length = tokens.size(1) - 1
        if length < least:
            early = (minima.to(sentence.device)[sentence] > length)[:, None]
            is_end = torch.arange(log_probs.size(1), device=log_probs.device) == end
            log_probs = log_probs.masked_fill(early & is_end, -torch.inf)
        if length >= first_end:
            late = (maxima.to(sentence.device)[sentence] <= length)[:, None]
            not_end = torch.arange(log_probs.size(1), device=log_probs.device) != end
            log_probs = log_probs.masked_fill(late & not_end, -torch.inf)
        return log_probs

    return apply


def forced_prefix(prompt: Prompt, others: list[Filter]) -> Filter:
    """While a sentence's prefix lasts, only its next token, even one that ``others`` forbid; then what they allow."""
    longest = max(map(len, prompt.prefixes))
    forced = torch.full((len(prompt), longest), -1)
    for row, prefix in enumerate(prompt.prefixes):
        forced[row, : len(prefix)] = torch.tensor(prefix, dtype=torch.long)

    def force(log_probs: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        allowed, length = apply(others, log_probs, tokens, sentence), tokens.size(1) - 1
        if length >= longest:
            return allowed
        wanted = forced.to(sentence.device)[sentence, length][:, None]
        other = torch.arange(log_probs.size(1), device=log_probs.device) != wanted
        return torch.where(wanted >= 0, log_probs.masked_fill(other, -torch.inf), allowed)

    return force


def no_repeat_ngram(n: int, end: int) -> Filter:
    """No token that would complete an n-gram already in the row (Paulus et al. 2017); the end is always allowed."""

    def apply(log_probs: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        banned = torch.zeros_like(log_probs, dtype=torch.bool)
        for row, ids in enumerate(tokens[:, 1:].tolist()):
            last = ids[len(ids) - n + 1 :]
            for start in range(len(ids) - n + 1):
                if ids[start : start + n - 1] == last and ids[start + n - 1] != end:
                    banned[row, ids[start + n - 1]] = True
        return log_probs.masked_fill(banned, -torch.inf)

    return apply


def temperature(value: float) -> Filter:
    def apply(log_probs: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        return (log_probs / value).log_softmax(-1)

    return apply


def top_k(k: int) -> Filter:
    """Only the k most probable (Fan et al. 2018); equals of the k-th stay."""

    def apply(log_probs: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        least = log_probs.topk(min(k, log_probs.size(1)), dim=-1).values[:, -1:]
        return log_probs.masked_fill(log_probs < least, -torch.inf)

    return apply


def top_p(p: float) -> Filter:
    """The smallest set of most probable tokens that holds at least p of the probability (Holtzman et al. 2020)."""

    def apply(log_probs: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        ordered, order = log_probs.sort(-1, descending=True)
        before = ordered.softmax(-1).cumsum(-1).roll(1, -1)
        before[:, 0] = 0
        drop = torch.zeros_like(log_probs, dtype=torch.bool).scatter(1, order, before >= p)
        return log_probs.masked_fill(drop, -torch.inf)

    return apply


def min_p(p: float) -> Filter:
    """Only tokens at least p times as probable as the most probable one (Nguyen et al. 2024)."""

    def apply(log_probs: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        least = log_probs.max(-1, keepdim=True).values + torch.tensor(p).log()
        return log_probs.masked_fill(log_probs < least, -torch.inf)

    return apply
