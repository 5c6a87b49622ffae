"""Continuation of texts: the prompt is read at once, and new tokens are searched one by one.

A text that fills the ``window`` of a model continues after its last half, which is read again. This doubles the work;
reading the full window again for every token would multiply it by the length of the window.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from glassformer.generate.candidates import counting_texts
from glassformer.generate.config import DecodingConfig, FinishReason, Hypothesis
from glassformer.generate.greedy_and_sampling import chooser, finish, token_steps
from glassformer.generate.protocol import Decodable, Prompt, SpecialTokens, padded
from glassformer.generate.search import hypotheses_of, search_in_batches

Stopped = Callable[[int, list[int]], bool]


@dataclass
class _Text:
    """One text while it grows."""

    number: int
    """Index of its prompt, from 0."""
    prompt: list[int]
    draw: int
    most: int
    window: int | None
    written: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    finish_reason: FinishReason = "length"

    @property
    def before(self) -> list[int]:
        return self.prompt + self.written

    @property
    def read(self) -> list[int]:
        """Tokens that the next round reads first."""
        ids = self.before
        return ids if self.window is None or len(ids) < self.window else ids[-max(1, self.window // 2) :]

    @property
    def capacity(self) -> int:
        """Tokens that the next round may bring."""
        left = self.most - len(self.written)
        return left if self.window is None else max(0, min(left, self.window - len(self.read)))

    def add(self, tokens: list[int], log_probs: list[float], reason: FinishReason = "length") -> bool:
        """Append tokens; return True if the text continues, since only its window is full."""
        fills = 0 < len(tokens) == self.capacity and len(self.written) + len(tokens) < self.most
        goes_on = fills and reason == "length"
        self.written += tokens
        self.log_probs += log_probs[: len(tokens)] if goes_on else log_probs
        self.finish_reason = reason
        return goes_on


def continue_texts(
    model: Decodable,
    prompts: Sequence[list[int]],
    symbols: SpecialTokens,
    config: DecodingConfig,
    device: torch.device | None = None,
    window: int | None = None,
    stopped: Stopped | None = None,
) -> list[list[Hypothesis]]:
    """The ``n_best`` continuations of each prompt, best first; samples in the order drawn.

    A prompt has at least one token, and fewer than ``window``. ``max_length``, or else ``max_extra``, limits the new
    tokens; beam search also ends with the window. ``stopped`` takes the index of a prompt, from 0, and the new tokens;
    it returns True if a stop string ends them.
    """
    copies = config.n_best if config.sample else 1
    most = config.max_length or config.max_extra
    texts = [
        _Text(number, list(ids), draw, most, window) for number, ids in enumerate(prompts) for draw in range(copies)
    ]
    if not config.sample and config.beam_size > 1:
        return _searched(model, texts, symbols, config, device, stopped)
    unfinished = texts
    while unfinished:
        results_of_round = _searched(model, unfinished, symbols, config, device, stopped)
        rounds = zip(unfinished, results_of_round, strict=True)
        unfinished = [text for text, (one,) in rounds if text.add(one.tokens, one.token_log_probs, one.finish_reason)]
    done = [finish(text.written, text.log_probs, config, text.finish_reason) for text in texts]
    return [done[start : start + copies] for start in range(0, len(done), copies)]


@torch.inference_mode()
def stream_text(
    model: Decodable,
    ids: list[int],
    symbols: SpecialTokens,
    config: DecodingConfig,
    device: torch.device | None = None,
    window: int | None = None,
) -> Iterator[int]:
    """Yield the tokens of the first continuation, each as soon as it is chosen, by greedy search or sampling."""
    text = _Text(0, list(ids), 0, config.max_length or config.max_extra, window)
    goes_on = True
    while goes_on:
        prompt, tokens = _prompt([text], symbols, config, device), list[int]()
        reason: FinishReason = "length"
        for ((_, token, _),) in token_steps(model, prompt, config, chooser(model, prompt, config, [text.draw])):
            if token == symbols.end:
                reason = "end"
            else:
                tokens.append(token)
                yield token
        goes_on = text.add(tokens, [], reason)


def _searched(
    model: Decodable,
    texts: list[_Text],
    symbols: SpecialTokens,
    config: DecodingConfig,
    device: torch.device | None,
    stopped: Stopped | None,
) -> list[list[Hypothesis]]:
    """Search one round: until each text has ended or filled its window."""

    @torch.inference_mode()
    def search(batch: list[int]) -> list[list[Hypothesis]]:
        rows = [texts[index] for index in batch]
        prompt = _prompt(rows, symbols, config, device)
        if stopped is not None:
            prompt = replace(prompt, stopped=lambda row, ids: stopped(rows[row].number, rows[row].written + ids))
        with counting_texts([text.number for text in rows]):
            return hypotheses_of(model, prompt, config, [text.draw for text in rows])

    each = 1 if config.sample else config.beam_size
    lengths = [len(text.read) + text.capacity for text in texts]
    return search_in_batches(model, lengths, max(1, config.batch_tokens // each), search, device)


def _prompt(texts: list[_Text], symbols: SpecialTokens, config: DecodingConfig, device: torch.device | None) -> Prompt:
    """All but the last token of each, which the first step reads."""
    read = [text.read for text in texts]
    source, visible = padded([ids[:-1] for ids in read], symbols.pad)
    maxima = [text.capacity for text in texts]
    minima = [
        min(max(0, config.min_length - len(text.written)), most) for text, most in zip(texts, maxima, strict=True)
    ]
    first = torch.tensor([ids[-1] for ids in read], dtype=torch.long)
    before = [text.before for text in texts]
    return Prompt(
        source.to(device), visible.to(device), [[] for _ in texts], minima, maxima, symbols, first.to(device), before
    )
