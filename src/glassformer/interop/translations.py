"""What an encoder–decoder is compared by: random sources and targets, and greedy translations."""

from collections.abc import Sequence
from typing import Any

import torch

from glassformer.generate import DecodingConfig
from glassformer.interop.parity import LONGEST, Inputs, Logits, random_rows
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.text import TokenizerPair
from glassformer.translator import Translator


def random_inputs(model: EncoderDecoder, tokenizers: TokenizerPair, seed: int = 1) -> Inputs:
    """Ids of all that is neither padding nor start, in rows of 9, 5 and 1 tokens; a target begins with the start."""
    generator = torch.Generator().manual_seed(seed)
    c, source, target = model.config, tokenizers.source, tokenizers.target
    longest = min(9, c.max_length)
    lengths = [longest, min(5, longest), 1], [min(4, longest), longest, min(2, longest)]
    ids, mask = random_rows(c.vocab_sizes[0], {source.pad_id, source.start_id}, lengths[0], source.pad_id, generator)
    words, judged = random_rows(
        c.vocab_sizes[1], {target.pad_id, target.start_id}, lengths[1], target.pad_id, generator
    )
    words[:, 0] = target.start_id
    return Inputs((ids, mask, words), judged)


def logits_of(model: EncoderDecoder) -> Logits:
    return lambda source, source_mask, target: model(source, target, source_mask)


def greedy_texts(model: EncoderDecoder, tokenizers: TokenizerPair, texts: Sequence[str]) -> list[str]:
    """Ours, at most ``LONGEST`` tokens and what learned positions allow."""
    config: dict[str, Any] = {"beam_size": 1, "max_length": longest_text(model), "length_penalty": "none"}
    return Translator([model], tokenizers, DecodingConfig.parse(config)).translate(texts)


def longest_text(model: EncoderDecoder) -> int:
    return max(1, min(LONGEST, model.config.max_length - 2))
