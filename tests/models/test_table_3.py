"""The sizes of the paper's Table 3, from the model and not from a formula."""

import pytest
import torch

from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from glassformer.models.registry import parameters_by_part

ROWS = [
    ("base", {}, 65),
    ("B d_k=16", {"d_k": 16}, 58),
    ("B d_k=32", {"d_k": 32}, 60),
    ("C N=2", {"n_encoder_layers": 2, "n_decoder_layers": 2}, 36),
    ("C N=4", {"n_encoder_layers": 4, "n_decoder_layers": 4}, 50),
    ("C N=8", {"n_encoder_layers": 8, "n_decoder_layers": 8}, 80),
    ("C d_model=256", {"d_model": 256, "d_k": 32, "d_v": 32}, 28),
    ("C d_model=1024", {"d_model": 1024, "d_k": 128, "d_v": 128}, 168),
    ("C d_ff=1024", {"d_ff": 1024}, 53),
    ("C d_ff=4096", {"d_ff": 4096}, 90),
]


@pytest.mark.parametrize(("values", "millions"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_parameters_round_to_the_millions_of_the_paper(values: dict[str, int], millions: int) -> None:
    """With 41,100 tokens (the paper says "about 37,000") and no biases in attention, every row rounds right."""
    with torch.device("meta"):
        model = EncoderDecoder(EncoderDecoderConfig(vocab_size=41_100, attention_bias=False, **values))
    total = sum(parameter.numel() for parameter in model.parameters())
    assert round(total / 1e6) == millions
    assert parameters_by_part(model)["total"] == total
