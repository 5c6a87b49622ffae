"""Greedy search and sampling: one hypothesis for each sentence, token by token."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from glassformer.generate.candidates import LogitsError, Search, log_softmax, record_candidates, search_of
from glassformer.generate.config import DecodingConfig, FinishReason, Hypothesis, length_penalty
from glassformer.generate.filters import Filter, apply, reshaping_filters, sampling_filters, search_filters
from glassformer.generate.protocol import Decodable, Prompt, keep

N_CANDIDATES = 10
"""Number of candidates of a step in a trace."""

Choose = Callable[[Tensor, Tensor, int], Tensor]
"""(logits of allowed tokens [rows, vocab], sentence [rows], step) → chosen tokens [rows]."""

Step = list[tuple[int, int, float]]
"""(sentence, next token, its log-probability) of each unfinished sentence."""


def greedy(model: Decodable, prompt: Prompt, config: DecodingConfig) -> list[Hypothesis]:
    """The most probable token at every step."""
    return _collect(token_steps(model, prompt, config, most_probable(search_of(model))), prompt, config)


def sample(model: Decodable, prompt: Prompt, config: DecodingConfig, draws: list[int]) -> list[Hypothesis]:
    """A token drawn from the filtered distribution at every step."""
    return _collect(token_steps(model, prompt, config, chooser(model, prompt, config, draws)), prompt, config)


def chooser(model: Decodable, prompt: Prompt, config: DecodingConfig, draws: list[int]) -> Choose:
    """Choose the sampler; at a temperature of 0, its limit, sampling is greedy."""
    return drawn(prompt, config, draws) if config.sample and config.temperature else most_probable(search_of(model))


def most_probable(search: Search) -> Choose:
    return lambda logits, sentence, step: search.best(logits, 1)[1].squeeze(1)


def drawn(prompt: Prompt, config: DecodingConfig, draws: list[int]) -> Choose:
    """Sample with separate random numbers for each sentence, seeded by ``config.seed``, its source and its draw.

    A sample therefore does not depend on its batch.
    """
    streams = []
    for ids, draw, longest in zip(prompt.seeds, draws, prompt.max_lengths, strict=True):
        streams.append(np.random.default_rng([config.seed, draw, *ids]).random(longest + 1))
    uniform = torch.from_numpy(np.stack([np.resize(s, max(map(len, streams))) for s in streams]))
    filters = sampling_filters(config)

    def choose(logits: Tensor, sentence: Tensor, step: int) -> Tensor:
        remaining = apply(filters, log_softmax(logits), logits, sentence)
        cumulative = remaining.double().softmax(-1).cumsum(-1)
        reached = uniform.to(remaining.device)[sentence, step][:, None] * cumulative[:, -1:]
        return torch.searchsorted(cumulative, reached, right=True).squeeze(1).clamp(max=remaining.size(1) - 1)

    return choose


def token_steps(model: Decodable, prompt: Prompt, config: DecodingConfig, choose: Choose) -> Iterator[Step]:
    """Yield the chosen tokens step by step; a sentence ends with the end token, unless it is truncated.

    A sentence of maximum length takes one more step, to see if it ends there; any other token is dropped. So there are
    at most ``max(prompt.max_lengths) + 1`` steps, whatever the logits are.
    """
    end, limits, first_limit = prompt.symbols.end, prompt.max_lengths, min(prompt.max_lengths)
    filters: list[Filter] = search_filters(prompt, config)
    reshaping = reshaping_filters(prompt, config)
    written: list[list[int]] = [[] for _ in range(len(prompt))]
    state, search = model.begin(prompt.source, prompt.source_mask, config.use_cache), search_of(model)
    sentence = torch.arange(len(prompt), device=prompt.source.device)
    tokens = prompt.beginnings[:, None]
    rows, unfinished = list(range(len(prompt))), [True] * len(prompt)
    while any(unfinished):
        logits = apply(reshaping, model.step(tokens[:, -1:], state), tokens, sentence)
        normalizer = search.log_sum(logits)
        allowed = apply(filters, logits, tokens, sentence)
        _record(model, search, allowed, normalizer)
        chosen = choose(allowed, sentence, tokens.size(1) - 1)
        log_probs = (allowed.gather(1, chosen[:, None]).squeeze(1) - normalizer).clamp_(max=0)
        newest = list(zip(rows, chosen.tolist(), log_probs.tolist(), strict=True))
        length = tokens.size(1) - 1
        if not math.isfinite(sum(value for _, _, value in newest)):
            _refuse(newest, unfinished, normalizer, length + 1)
        if length >= first_limit:
            cut = [limits[row] <= length and token != end for row, token, _ in newest]
            unfinished = [on and not at_limit for on, at_limit in zip(unfinished, cut, strict=True)]
        if any(unfinished):
            yield [one for one, on in zip(newest, unfinished, strict=True) if on]
        tokens = torch.cat([tokens, chosen[:, None]], dim=1)
        unfinished = [on and token != end for on, (_, token, _) in zip(unfinished, newest, strict=True)]
        if prompt.stopped is not None:
            for position, (row, token, _) in enumerate(newest):
                if unfinished[position]:
                    written[row].append(token)
                    unfinished[position] = not prompt.stopped(row, written[row])
        if not all(unfinished) and (remaining := keep(torch.tensor(unfinished, device=tokens.device))) is not None:
            state.select_sentences(remaining)
            state.select(remaining)
            sentence, tokens, positions = sentence[remaining], tokens[remaining], remaining.tolist()
            rows = [rows[position] for position in positions]
            unfinished = [unfinished[position] for position in positions]


def _record(model: Decodable, search: Search, allowed: Tensor, normalizer: Tensor) -> None:
    k = min(N_CANDIDATES, allowed.size(1))
    record_candidates(
        model, lambda: search.best(allowed, k)[1], lambda: search.best(allowed, k)[0] - normalizer[:, None]
    )


def _refuse(newest: Step, unfinished: list[bool], normalizer: Tensor, step: int) -> None:
    """Raise ``LogitsError`` for the first unfinished row whose log-probability is not finite."""
    for position, (row, _, value) in enumerate(newest):
        if unfinished[position] and not math.isfinite(value):
            raise LogitsError(row, step, bool(normalizer[position].isfinite()))


def _collect(steps: Iterator[Step], prompt: Prompt, config: DecodingConfig) -> list[Hypothesis]:
    tokens: list[list[int]] = [[] for _ in range(len(prompt))]
    log_probs: list[list[float]] = [[] for _ in range(len(prompt))]
    for step in steps:
        for row, token, value in step:
            tokens[row].append(token)
            log_probs[row].append(value)
    hypotheses = []
    for row, (ids, values) in enumerate(zip(tokens, log_probs, strict=True)):
        reason: FinishReason = "length"
        if ids[-1:] == [prompt.symbols.end]:
            ids, reason = ids[:-1], "end"
        elif prompt.stopped is not None and prompt.stopped(row, ids):
            reason = "stop"
        hypotheses.append(finish(ids, values, config, reason))
    return hypotheses


def finish(
    tokens: list[int], log_probs: list[float], config: DecodingConfig, reason: FinishReason = "end"
) -> Hypothesis:
    """Hypothesis from its tokens (without end) and the log-probabilities of the chosen tokens."""
    total = sum(log_probs)
    penalty = length_penalty(config.length_penalty, max(1, len(log_probs)), config.alpha)
    return Hypothesis(tokens, total / penalty, total, log_probs, reason)
