"""Beam search: the ``beam_size`` best prefixes of each sentence, extended together."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from glassformer.generate.candidates import Extensions, extensions, log_sum, own, show
from glassformer.generate.config import DecodingConfig, Hypothesis, length_penalty
from glassformer.generate.filters import Filter, apply, search_filters
from glassformer.generate.idle import keep
from glassformer.generate.protocol import Decodable, Prompt
from glassformer.generate.walk import finish


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
    finished: list[list[Hypothesis]] = field(repr=False)
    """For every sentence of the prompt, best first, at most ``beam_size``."""
    ended: list[int] = field(repr=False)
    """For every sentence of the prompt, how many hypotheses have ended among the ``beam_size`` best of their step."""


def beam(model: Decodable, prompt: Prompt, config: DecodingConfig) -> list[list[Hypothesis]]:
    """For each sentence its ``n_best`` hypotheses, best first.

    A sentence is done when ``patience`` says so, or when no live hypothesis could still displace one of its ``n_best``,
    however long it grew. Each sentence is searched as if it were alone.
    """
    filters = search_filters(prompt, config)
    state = model.begin(prompt.source, prompt.source_mask, config.use_cache)
    device = prompt.source.device
    live = _Beam(
        sentence=torch.arange(len(prompt), device=device),
        tokens=prompt.beginnings[:, None, None],
        log_probs=torch.zeros(len(prompt), 1, 1, device=device),
        total=torch.zeros(len(prompt), 1, device=device),
        finished=[[] for _ in range(len(prompt))],
        ended=[0] * len(prompt),
    )
    going = [True] * len(prompt)
    while any(going):
        logits = own(model.step(live.tokens[:, :, -1].reshape(-1, 1), state))
        parents = _extend(model, live, logits, filters, prompt.symbols.end, config)
        going = _undecided(live, prompt, config)
        if not all(going):
            undecided = torch.tensor(going, device=device)
            live.total[~undecided] = -torch.inf
            if (kept := keep(undecided)) is not None:
                state.select_sentences(kept)
                live.sentence, parents, live.total = live.sentence[kept], parents[kept], live.total[kept]
                live.tokens, live.log_probs = live.tokens[kept], live.log_probs[kept]
        state.select(parents.flatten())
    return [hypotheses[: config.n_best] for hypotheses in live.finished]


def _extend(
    model: Decodable, live: _Beam, logits: Tensor, filters: list[Filter], end: int, config: DecodingConfig
) -> Tensor:
    """Take the best extensions of every sentence; those that end are finished. The rows that the others continue.

    For one sentence the small operations here take as long as the model, so there are no more than it needs.
    """
    sentences, k, _ = live.tokens.shape
    normaliser = log_sum(logits, config.compiled)
    of_row = live.sentence[:, None].expand(-1, k).reshape(-1)
    allowed = apply(filters, logits, live.tokens.flatten(0, 1), of_row)
    found, going, some_end = extensions(allowed, normaliser, live.total, end, config.beam_size, config.compiled)
    show(model, found.tokens, found.totals, found.parents)
    if some_end:
        _finish(live, found, end, config)
    rows = going.parents
    if sentences > 1:
        rows = rows + torch.arange(0, sentences * k, k, device=rows.device)[:, None]
    live.total = going.totals
    live.tokens, live.log_probs = _longer(live.tokens, rows, going.tokens), _longer(live.log_probs, rows, going.added)
    return rows


def _longer(values: Tensor, rows: Tensor, newest: Tensor) -> Tensor:
    """``values`` [sentences, k, length] of these rows of all sentences together, and the newest behind them."""
    continued = values.flatten(0, 1).index_select(0, rows.flatten()).view(*rows.shape, -1)
    return torch.cat([continued, newest[:, :, None]], dim=-1)


def _finish(live: _Beam, found: Extensions, end: int, config: DecodingConfig) -> None:
    """The candidates that end, of which all but the end is their parent's."""
    where = ((found.tokens == end) & (found.totals > -torch.inf)).nonzero()
    row, candidate = where.unbind(1)
    before = row, found.parents[row, candidate]
    ended = zip(
        live.sentence[row].tolist(),
        candidate.tolist(),
        live.tokens[before].tolist(),
        live.log_probs[before].tolist(),
        found.added[row, candidate].tolist(),
        strict=True,
    )
    for sentence, rank, ids, values, last in ended:
        live.ended[sentence] += rank < config.beam_size
        hypotheses = live.finished[sentence]
        hypotheses.append(finish(ids[1:], [*values[1:], last], config))
        hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
        del hypotheses[config.beam_size :]


def _undecided(live: _Beam, prompt: Prompt, config: DecodingConfig) -> list[bool]:
    """For each row of ``live``, whether its best live hypothesis could still come among the ``n_best``.

    A log-probability only falls as a hypothesis grows, and is divided by at most the penalty of the greatest length.
    """
    going = []
    penalty_now = length_penalty(config.length_penalty, live.tokens.size(2), config.alpha)
    for sentence, total in zip(live.sentence.tolist(), live.total[:, 0].tolist(), strict=True):
        longest = prompt.max_lengths[sentence] + 1
        bound = total / length_penalty(config.length_penalty, longest, config.alpha)
        hypotheses = live.finished[sentence]
        least = hypotheses[config.n_best - 1].score if len(hypotheses) >= config.n_best else -torch.inf
        enough = 0 < config.patience * config.beam_size <= live.ended[sentence] and least >= total / penalty_now
        going.append(total > -torch.inf and least < bound and not enough)
    return going
