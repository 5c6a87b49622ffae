"""A translator with random weights over the words of given lines, for what does not depend on what was learned."""

from typing import Any

import torch

from glassformer.generate import DecodingConfig
from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from glassformer.predict.translator import Translator
from glassformer.text import TextConfig, TokenizerPair
from glassformer.text.training import train_tokenizers

SMALL = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 2, "n_decoder_layers": 2, "max_length": 256}


def random_translator(lines: list[str], **model: Any) -> Translator:
    """Every word between spaces is a token, whatever it consists of."""
    config = TextConfig.parse({"kind": "word", "pre_tokenizer": "whitespace", "min_frequency": 1, "vocab_size": 1000})
    tokenizers: TokenizerPair = train_tokenizers(config, lambda: iter(lines), lambda: iter(lines))
    values = {**SMALL, **model, "vocab_size": tokenizers.source.vocab_size}
    if not values.get("tie_embeddings", True):
        values["vocab_size"] = (tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    torch.manual_seed(0)
    return Translator([EncoderDecoder(EncoderDecoderConfig.parse(values)).eval()], tokenizers, DecodingConfig())
