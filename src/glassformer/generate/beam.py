"""Beam search: the ``beam_size`` best prefixes of each sentence, extended together."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassformer.generate.candidates import Extensions, LogitsError, Search, record_candidates, search_of
from glassformer.generate.config import DecodingConfig, Hypothesis, length_penalty
from glassformer.generate.filters import (
    Filter,
    apply,
    forbidden_tokens,
    only_forbids_tokens,
    reshaping_filters,
    search_filters,
)
from glassformer.generate.greedy_and_sampling import finish
from glassformer.generate.protocol import Decodable, Prompt, keep
from glassformer.native.beam_steps import BeamResult, BeamRules, Beams

MOST_STEPS = 8
"""Steps in one call of the kernels at most: Ctrl-C waits for them, and memory for them is allocated together."""
FEW_HYPOTHESES = 64
"""Beyond so many, one of them ends in nearly every step, and a call takes one step."""


class _Ranked(NamedTuple):
    """A hypothesis and its score; if it was truncated, the score that it would have if it ended there.

    Only complete texts are comparable: the probability of a truncated text is the sum over all its continuations.
    """

    rank: float
    hypothesis: Hypothesis


@dataclass
class _Beam:
    """The live hypotheses of the sentences that are still searched, ``k`` for each, best first.

    Decided sentences may stay for a while; their hypotheses have a total of −∞.
    """

    sentence: Tensor
    """[sentences] index in the prompt."""
    tokens: Tensor
    """[sentences, k, length], the token that was read first before them."""
    log_probs: Tensor
    """[sentences, k, length] of each token; 0 for the start token."""
    total: Tensor
    """[sentences, k]"""
    finished: list[list[_Ranked]] = field(repr=False)
    """For every sentence of the prompt, best first, at most ``beam_size``."""
    ended: list[int] = field(repr=False)
    """For every sentence of the prompt, how many hypotheses have ended among the ``beam_size`` best of their step."""
    decided: list[bool] = field(repr=False)
    """For every sentence of the prompt, True once its search is over."""


def beam(model: Decodable, prompt: Prompt, config: DecodingConfig) -> list[list[Hypothesis]]:
    """For each sentence its ``n_best`` hypotheses, best first.

    A sentence is done when ``patience`` says so, or when no live hypothesis could still displace one of its ``n_best``,
    however long it grew. Sentences do not influence each other. Hypotheses that are live at the maximum length are
    truncated, so a search takes at most ``max(prompt.max_lengths) + 1`` steps, whatever the logits are.
    """
    filters, reshaping = search_filters(prompt, config), reshaping_filters(prompt, config)
    state, search = model.begin(prompt.source, prompt.source_mask, config.use_cache), search_of(model)
    device = prompt.source.device
    live = _Beam(
        sentence=torch.arange(len(prompt), device=device),
        tokens=prompt.beginnings[:, None, None],
        log_probs=torch.zeros(len(prompt), 1, 1, device=device),
        total=torch.zeros(len(prompt), 1, device=device),
        finished=[[] for _ in range(len(prompt))],
        ended=[0] * len(prompt),
        decided=[False] * len(prompt),
    )
    several = _several_steps(model, prompt, config)
    continuing = [True] * len(prompt)
    while any(continuing):
        parents, result = None, several(live, state)
        if result is None:
            logits = model.step(live.tokens[:, :, -1].reshape(-1, 1), state)
            if reshaping:
                logits = apply(reshaping, logits, live.tokens.flatten(0, 1), _sentences(live))
            parents, normalizer = _extend(model, search, live, logits, filters, prompt, config)
            # One synchronization with a GPU.
            best, normalizers = torch.stack([live.total.amax(1), normalizer.to(live.total.dtype)]).tolist()
        else:
            best, normalizers = result.best, result.normalizers
        continuing = _undecided(live, prompt, best, normalizers, config)
        if not all(continuing):
            undecided = torch.tensor(continuing, device=device)
            live.total[~undecided] = -torch.inf
            if (remaining := keep(undecided)) is not None:
                state.select_sentences(remaining)
                if parents is None:
                    parents = torch.arange(live.total.numel()).view(live.total.shape)
                live.sentence, parents, live.total = live.sentence[remaining], parents[remaining], live.total[remaining]
                live.tokens, live.log_probs = live.tokens[remaining], live.log_probs[remaining]
        if parents is not None:
            state.select(parents.flatten())
    return [[one.hypothesis for one in ranked[: config.n_best]] for ranked in live.finished]


def _several_steps(
    model: Decodable, prompt: Prompt, config: DecodingConfig
) -> Callable[[_Beam, Any], BeamResult | None]:
    """A function that takes steps in one call of the kernels; it returns None if the next step cannot be taken so.

    It takes several steps while the search has nothing to decide between them.
    """
    search_beams = getattr(model, "search_beams", None)
    forbidden = forbidden_tokens(prompt)
    others = prompt.stopped is not None or not only_forbids_tokens(prompt, config) or min(forbidden, default=0) < 0
    if search_beams is None or others:
        return lambda live, state: None
    rules = BeamRules(prompt.symbols.end, torch.tensor(forbidden, dtype=torch.long))
    shortest, longest = max(prompt.min_lengths), min(prompt.max_lengths)

    def take(live: _Beam, state: Any) -> BeamResult | None:
        length = live.tokens.size(2) - 1
        complete = live.tokens.size(1) == config.beam_size and live.total.dtype == torch.float32
        if not complete or not shortest <= length < longest:
            return None
        most = min(longest - length, MOST_STEPS)
        done = any(live.decided) or any(len(one) >= config.n_best for one in live.finished)
        if done or live.total.numel() > FEW_HYPOTHESES:
            most = 1
        result: BeamResult | None = search_beams(state, Beams(live.tokens, live.log_probs, live.total), rules, most)
        if result is not None:
            live.tokens, live.log_probs, live.total = result.before
            if result.some_end:
                _finish(live, Extensions(*result.candidates), rules.end, config)
            live.tokens, live.log_probs, live.total = result.beams
        return result

    return take


def _extend(
    model: Decodable,
    search: Search,
    live: _Beam,
    logits: Tensor,
    filters: list[Filter],
    prompt: Prompt,
    config: DecodingConfig,
) -> tuple[Tensor, Tensor]:
    """Take the best extensions of every sentence, and finish those that end.

    Return the rows that the others continue, and the sum of the normalizers of each sentence. The sum is finite if the
    logits are. For one sentence, the small operations here take as long as the model, so they are few.
    """
    sentences, k, _ = live.tokens.shape
    end = prompt.symbols.end
    normalizer = search.log_sum(logits)
    late = _at_limit(live, prompt)
    ends = (logits[:, end] - normalizer).view(sentences, k) if late else None
    allowed = apply(filters, logits, live.tokens.flatten(0, 1), _sentences(live))
    candidates, continuing, some_end = search.extensions(allowed, normalizer, live.total, end, config.beam_size)
    record_candidates(model, lambda: candidates.tokens, lambda: candidates.totals, lambda: candidates.parents)
    if some_end:
        _finish(live, candidates, end, config)
    if ends is not None:
        _cut(live, late, candidates, ends.tolist(), end, config)
        continuing.totals[late] = -torch.inf
    rows = continuing.parents
    if sentences > 1:
        rows = rows + torch.arange(0, sentences * k, k, device=rows.device)[:, None]
    live.total = continuing.totals
    live.tokens, live.log_probs = (
        _longer(live.tokens, rows, continuing.tokens),
        _longer(live.log_probs, rows, continuing.log_probs),
    )
    if prompt.stopped is not None:
        _stop(live, prompt.stopped, config)
    return rows, normalizer.view(sentences, k).sum(1)


def _sentences(live: _Beam) -> Tensor:
    """Sentence of each hypothesis, [rows]."""
    return live.sentence[:, None].expand(-1, live.tokens.size(1)).reshape(-1)


def _stop(live: _Beam, stopped: Callable[[int, list[int]], bool], config: DecodingConfig) -> None:
    """Finish the live hypotheses whose text contains a stop string."""
    for row, sentence in enumerate(live.sentence.tolist()):
        for rank_in_row, total in enumerate(live.total[row].tolist()):
            ids = live.tokens[row, rank_in_row, 1:].tolist()
            if total > -torch.inf and stopped(sentence, ids):
                one = finish(ids, live.log_probs[row, rank_in_row, 1:].tolist(), config, "stop")
                _keep_best(live.finished[sentence], _Ranked(one.score, one), config)
                live.ended[sentence] += 1
                live.total[row, rank_in_row] = -torch.inf


def _longer(values: Tensor, rows: Tensor, newest: Tensor) -> Tensor:
    """``values`` [sentences, k, length] of these rows of all sentences together, and the newest behind them."""
    continued = values.flatten(0, 1).index_select(0, rows.flatten()).view(*rows.shape, -1)
    return torch.cat([continued, newest[:, :, None]], dim=-1)


def _finish(live: _Beam, candidates: Extensions, end: int, config: DecodingConfig) -> None:
    """The candidates that end, of which all but the end is their parent's."""
    where = ((candidates.tokens == end) & (candidates.totals > -torch.inf)).nonzero()
    row, candidate = where.unbind(1)
    before = row, candidates.parents[row, candidate]
    ended = zip(
        live.sentence[row].tolist(),
        candidate.tolist(),
        live.tokens[before].tolist(),
        live.log_probs[before].tolist(),
        candidates.log_probs[row, candidate].tolist(),
        strict=True,
    )
    for sentence, rank, ids, values, last in ended:
        live.ended[sentence] += rank < config.beam_size
        hypothesis = finish(ids[1:], [*values[1:], last], config)
        _keep_best(live.finished[sentence], _Ranked(hypothesis.score, hypothesis), config)


def _at_limit(live: _Beam, prompt: Prompt) -> list[int]:
    """Rows of ``live`` at the maximum length of their sentence."""
    length = live.tokens.size(2) - 1
    if length < min(prompt.max_lengths):
        return []
    return [row for row, sentence in enumerate(live.sentence.tolist()) if prompt.max_lengths[sentence] <= length]


def _cut(
    live: _Beam, late: list[int], candidates: Extensions, ends: list[list[float]], end: int, config: DecodingConfig
) -> None:
    """Truncate the live hypotheses in the rows ``late``; ``ends`` holds the log-probabilities of the end token."""
    penalty = length_penalty(config.length_penalty, live.tokens.size(2), config.alpha)
    for row in late:
        ends_here = (candidates.tokens[row] == end) & (candidates.totals[row] > -torch.inf)
        ended = candidates.parents[row][ends_here].tolist()
        for rank_in_row, total in enumerate(live.total[row].tolist()):
            if total > -torch.inf and rank_in_row not in ended:
                ids, values = live.tokens[row, rank_in_row, 1:].tolist(), live.log_probs[row, rank_in_row, 1:].tolist()
                cut = finish(ids, values, config, "length")
                cut = replace(cut, end_log_prob=min(0.0, ends[row][rank_in_row]))
                rank = (cut.log_prob + cut.end_log_prob) / penalty
                _keep_best(live.finished[int(live.sentence[row])], _Ranked(rank, cut), config)


def _keep_best(finished: list[_Ranked], newest: _Ranked, config: DecodingConfig) -> None:
    finished.append(newest)
    finished.sort(key=lambda one: (-one.rank, -one.hypothesis.score))
    del finished[config.beam_size :]


def _undecided(
    live: _Beam, prompt: Prompt, best: list[float], normalizers: list[float], config: DecodingConfig
) -> list[bool]:
    """For each row of ``live``, True if its best hypothesis may still enter the ``n_best``. ``best``: its total.

    A log-probability only falls as a hypothesis grows, and is divided by at most the penalty of the maximum length.
    """
    continuing = []
    length = live.tokens.size(2) - 1
    penalty_now = length_penalty(config.length_penalty, length + 1, config.alpha)
    for row, (sentence, total) in enumerate(zip(live.sentence.tolist(), best, strict=True)):
        if live.decided[sentence]:
            continuing.append(False)
            continue
        if not math.isfinite(normalizers[row]):
            raise LogitsError(sentence, length, finite=False)
        hypotheses = live.finished[sentence]
        if total == -torch.inf and not hypotheses:
            raise LogitsError(sentence, length, finite=True)
        longest = prompt.max_lengths[sentence] + 1
        bound = total / length_penalty(config.length_penalty, longest, config.alpha)
        least = hypotheses[config.n_best - 1].rank if len(hypotheses) >= config.n_best else -torch.inf
        enough = 0 < config.patience * config.beam_size <= live.ended[sentence] and least >= total / penalty_now
        continuing.append(total > -torch.inf and least < bound and not enough)
        live.decided[sentence] = not continuing[-1]
    return continuing
