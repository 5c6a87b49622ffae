"""Any number of sentences: cut into batches, searched, and given back in their order."""

from collections.abc import Iterator, Sequence

import torch

from glassformer.generate.beam import beam
from glassformer.generate.config import DecodingConfig, Hypothesis
from glassformer.generate.protocol import Decodable, Symbols, build_prompt
from glassformer.generate.walk import greedy, sample


@torch.inference_mode()
def generate(
    model: Decodable,
    sources: Sequence[Sequence[int]],
    symbols: Symbols,
    config: DecodingConfig,
    prefixes: Sequence[Sequence[int]] | None = None,
    device: torch.device | None = None,
    longest_target: int | None = None,
) -> list[list[Hypothesis]]:
    """For each source (ids that end with the end symbol) its ``n_best`` hypotheses, best first; drawn ones as drawn."""
    results: list[list[Hypothesis]] = [[] for _ in sources]
    copies = config.n_best if config.sample else 1
    for batch in by_length([len(ids) for ids in sources], max(1, config.batch_tokens // copies)):
        rows = [index for index in batch for _ in range(copies)]
        forced = [prefixes[index] for index in rows] if prefixes else None
        prompt = build_prompt([sources[index] for index in rows], symbols, config, forced, device, longest_target)
        if config.sample:
            drawn = sample(model, prompt, config, [draw for _ in batch for draw in range(copies)])
            found = [drawn[start : start + copies] for start in range(0, len(drawn), copies)]
        elif config.beam_size == 1:
            found = [[hypothesis] for hypothesis in greedy(model, prompt, config)]
        else:
            found = beam(model, prompt, config)
        for index, hypotheses in zip(batch, found, strict=True):
            results[index] = hypotheses
    return results


def by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Indices, longest first, in batches of at most ``batch_tokens`` padded tokens (one sentence at least)."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batch: list[int] = []
    for index in order:
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
