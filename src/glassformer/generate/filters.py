"""Logit filters: each sets the logits of forbidden next tokens to −∞.

All have one signature, ``(logits [rows, vocab], tokens [rows, length], sentence [rows])``. ``tokens`` begins with the
start token; ``sentence`` is the index of each row's sentence in the prompt. A filter may overwrite its input: a copy of
the vocabulary's logits costs a tenth of a decoder layer.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from glassformer.generate.config import DecodingConfig
from glassformer.generate.protocol import Prompt

Filter = Callable[[Tensor, Tensor, Tensor], Tensor]


def search_filters(prompt: Prompt, config: DecodingConfig) -> list[Filter]:
    """Constraints of every search: symbols, n-grams, minimum lengths, and the forced prefix, which overrides them.

    Maximum lengths are not a filter: each search stops there, whatever the logits are.
    """
    end = prompt.symbols.end
    filters: list[Filter] = [never(forbidden_tokens(prompt)), no_early_end(prompt)]
    if config.no_repeat_ngram:
        filters = [or_the_end([no_repeat_ngram(config.no_repeat_ngram, end, prompt.before), *filters], end)]
    return [forced_prefix(prompt, filters)] if any(prompt.prefixes) else filters


def forbidden_tokens(prompt: Prompt) -> list[int]:
    """Tokens that no text contains."""
    symbols = prompt.symbols
    special = {symbols.pad, symbols.start} - {symbols.end}  # M2M100 and NLLB start with the end symbol
    return sorted(special | {id for id, value in symbols.bias.items() if value == -torch.inf})


def only_forbids_tokens(prompt: Prompt, config: DecodingConfig) -> bool:
    """True if a search has no other filter than ``forbidden_tokens`` once texts have their minimum lengths."""
    return not (any(prompt.prefixes) or config.no_repeat_ngram or reshaping_filters(prompt, config))


def reshaping_filters(prompt: Prompt, config: DecodingConfig) -> list[Filter]:
    """Filters that change the distribution, applied before its normalizer is computed: biases, then the penalty."""
    finite = {id: value for id, value in prompt.symbols.bias.items() if value != -torch.inf}
    filters: list[Filter] = [logit_bias(finite)] if finite else []
    if config.repetition_penalty != 1:
        filters.append(repetition_penalty(config.repetition_penalty, prompt.symbols.end, prompt.before))
    return filters


def sampling_filters(config: DecodingConfig) -> list[Filter]:
    """Temperature first, then truncations of the resulting distribution."""
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


def apply(filters: list[Filter], logits: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
    for one in filters:
        logits = one(logits, tokens, sentence)
    return logits


def or_the_end(filters: list[Filter], end: int) -> Filter:
    """Logits after the ``filters``. A text ends where they forbid every token, as when all words are used up."""

    def let_end(logits: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        ending = logits[:, end].clone()
        allowed = apply(filters, logits, tokens, sentence)
        stuck = allowed.amax(-1) == -torch.inf
        allowed[:, end] = torch.where(stuck, ending, allowed[:, end])
        return allowed

    return let_end


def never(ids: list[int]) -> Filter:
    banned = torch.tensor(ids, dtype=torch.long)

    def apply(logits: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        return logits.index_fill_(1, banned.to(logits.device), -torch.inf)

    return apply


def no_early_end(prompt: Prompt) -> Filter:
    """Forbid the end token before the minimum length."""
    minima, end = torch.tensor(prompt.min_lengths), prompt.symbols.end
    least, greatest = min(prompt.min_lengths), max(prompt.min_lengths)

    def apply(logits: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        length = tokens.size(1) - 1
        if length < least:
            logits[:, end] = -torch.inf
        elif length < greatest:
            early = minima.to(sentence.device)[sentence] > length
            logits[:, end].masked_fill_(early, -torch.inf)
        return logits

    return apply


def forced_prefix(prompt: Prompt, others: list[Filter]) -> Filter:
    """While a sentence's prefix lasts, only its next token, even one that ``others`` forbid; then what they allow."""
    longest = max(map(len, prompt.prefixes))
    forced = torch.full((len(prompt), longest), -1)
    for row, prefix in enumerate(prompt.prefixes):
        forced[row, : len(prefix)] = torch.tensor(prefix, dtype=torch.long)

    def force(logits: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        length = tokens.size(1) - 1
        if length >= longest:
            return apply(others, logits, tokens, sentence)
        allowed = apply(others, logits.clone(), tokens, sentence)
        expected = forced.to(sentence.device)[sentence, length][:, None]
        other = torch.arange(logits.size(1), device=logits.device) != expected
        return torch.where(expected >= 0, logits.masked_fill(other, -torch.inf), allowed)

    return force


def no_repeat_ngram(n: int, end: int, before: list[list[int]] | None = None) -> Filter:
    """Forbid tokens that complete an n-gram of the row or its prompt (Paulus et al. 2017); the end stays allowed."""

    def apply(logits: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        texts = tokens[:, 1:].tolist()
        if before is not None:
            texts = [before[index] + ids for index, ids in zip(sentence.tolist(), texts, strict=True)]
        banned = [
            (row, ids[start + n - 1])
            for row, ids in enumerate(texts)
            for start in range(len(ids) - n + 1)
            if ids[start : start + n - 1] == ids[len(ids) - n + 1 :] and ids[start + n - 1] != end
        ]
        if banned:
            rows, ids = torch.tensor(banned, device=logits.device).unbind(1)
            logits[rows, ids] = -torch.inf
        return logits

    return apply


def logit_bias(values: Mapping[int, float]) -> Filter:
    """Add a bias to the logits of some tokens."""
    ids, numbers = torch.tensor(list(values)), torch.tensor(list(values.values()))

    def apply(logits: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        added = numbers.to(logits.device, logits.dtype).expand(len(logits), -1)
        return logits.index_add_(1, ids.to(logits.device), added)

    return apply


def repetition_penalty(penalty: float, end: int, before: list[list[int]] | None = None) -> Filter:
    """Divide the positive logits of tokens in the text by ``penalty``, and multiply the negative ones.

    Keskar et al. 2019. ``before`` is the text that each sentence continues. The end token is exempt: it separates
    texts.
    """

    def apply(logits: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        in_text = torch.zeros_like(logits, dtype=torch.bool)
        if before is not None:
            for row, index in enumerate(sentence.tolist()):
                in_text[row, before[index]] = True
        in_text.scatter_(1, tokens[:, 1:], True)
        in_text[:, end] = False
        return torch.where(in_text, torch.where(logits > 0, logits / penalty, logits * penalty), logits)

    return apply


def temperature(value: float) -> Filter:
    def apply(log_probs: Tensor, tokens: Tensor, sentence: Tensor) -> Tensor:
        return (log_probs / value).log_softmax(-1)

    return apply


def top_k(k: int) -> Filter:
    """Only the k most probable tokens (Fan et al. 2018), with ties of the k-th."""

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
