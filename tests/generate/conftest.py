"""Models whose choices matter: peaked distributions that differ from step to step, of random sharpness to end."""

from collections.abc import Callable

import pytest
import torch

from glassformer.generate import SpecialTokens
from glassformer.models.encoder_decoder import EncoderDecoder


@pytest.fixture(scope="session")
def symbols() -> SpecialTokens:
    return SpecialTokens(pad=0, start=1, end=2)


@pytest.fixture(scope="session")
def make_peaked(make_model: Callable[..., EncoderDecoder]) -> Callable[..., EncoderDecoder]:
    def make(seed: int, vocab_size: int = 9, **values: object) -> EncoderDecoder:
        one_layer = {"n_encoder_layers": 1, "n_decoder_layers": 1, "tie_embeddings": False, "output_bias": True}
        model = make_model(seed, vocab_size=vocab_size, **{**one_layer, **values})
        with torch.no_grad():
            model.output_projection.weight *= 3
            model.output_projection.bias[2] += seed % 3 - 1
        return model

    return make
