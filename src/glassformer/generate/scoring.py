"""The log-probability that a model gives to a target that is already there."""

import math
from collections.abc import Sequence

import torch

from glassformer.generate.candidates import LogitsError, log_softmax
from glassformer.generate.config import DecodingConfig, Hypothesis
from glassformer.generate.greedy_and_sampling import finish
from glassformer.generate.protocol import Decodable, SpecialTokens, build_prompt
from glassformer.generate.search import by_length


@torch.inference_mode()
def score_pairs(
    model: Decodable,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    symbols: SpecialTokens,
    config: DecodingConfig,
    device: torch.device | None = None,
) -> list[Hypothesis]:
    """Each target (ids without start and end) as the hypothesis that a search would have returned for it."""
    results: list[Hypothesis | None] = [None] * len(sources)
    unlimited = config.model_copy(update={"max_length": None, "max_extra": 0})
    for batch in by_length(
        [max(len(s), len(t) + 1) for s, t in zip(sources, targets, strict=True)], config.batch_tokens
    ):
        prompt = build_prompt([sources[index] for index in batch], symbols, unlimited, device=device)
        longest = max(len(targets[index]) for index in batch)
        tokens = torch.full((len(batch), longest + 2), symbols.end)
        for row, index in enumerate(batch):
            tokens[row, 1 : len(targets[index]) + 1] = torch.tensor(targets[index], dtype=torch.long)
        tokens[:, 0] = symbols.start
        tokens = tokens.to(prompt.source.device)
        log_probs = log_softmax(model(prompt.source, tokens[:, :-1], prompt.source_mask))
        chosen = log_probs.gather(2, tokens[:, 1:, None]).squeeze(2)
        for index, values in zip(batch, chosen.tolist(), strict=True):
            own = values[: len(targets[index]) + 1]
            if not math.isfinite(sum(own)):
                raise LogitsError(index, 1 + [math.isfinite(value) for value in own].index(False), finite=False)
            results[index] = finish(list(targets[index]), own, config)
    return [result for result in results if result is not None]
