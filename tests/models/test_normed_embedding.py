"""The embedding of BART and mBART: by their formulas, tied or not, cached or not, and only where it is asked for."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from glassformer.generate import DecodingConfig, SpecialTokens, generate
from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from glassformer.models.registry import weights_of

Maker = Callable[..., EncoderDecoder]
FACTORS = {False: 1.0, True: 4.0}
"""Factor of the embeddings at width 16, by ``scale_embeddings``."""


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("scaled", FACTORS)
def test_normed_embedding_is_the_layer_norm_of_token_and_position(make_model: Maker, scaled: bool, tied: bool) -> None:
    model = make_model(scale_embeddings=scaled, norm_embeddings=True, positions="learned", tie_embeddings=tied)
    ids = torch.tensor([[5, 3, 11]])
    for one in (model.source_embedding, model.target_embedding):
        total = one.weight[ids[0]] * FACTORS[scaled] + one.position.weight[2:5]
        expected = F.layer_norm(total, (16,), one.norm.weight, one.norm.bias)
        torch.testing.assert_close(one(ids, offset=2)[0], expected, atol=1e-12, rtol=1e-12)
    shared = model.source_embedding.norm.weight is model.target_embedding.norm.weight
    assert shared == tied


def test_tied_norms_stay_one_when_moved_and_trained(make_model: Maker) -> None:
    model = make_model(scale_embeddings=False, norm_embeddings=True).float().double()
    source, target = model.source_embedding.norm, model.target_embedding.norm
    assert source is not target
    assert source.bias is target.bias
    model(torch.tensor([[5, 3]]), torch.tensor([[1, 4]])).sin().sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert source.bias is target.bias
    assert torch.equal(source.bias, target.bias)


def test_older_configurations_have_the_paper_s(make_model: Maker) -> None:
    values = EncoderDecoderConfig(vocab_size=12).model_dump(mode="json")
    assert values.pop("scale_embeddings")
    assert not values.pop("norm_embeddings")
    config = EncoderDecoderConfig.parse(values)
    assert config.scale_embeddings
    assert not config.norm_embeddings
    older, newer = make_model(), make_model(scale_embeddings=True, norm_embeddings=False)
    for name, tensor in weights_of(older).items():
        assert torch.equal(tensor, weights_of(newer)[name])


@pytest.mark.parametrize("scaled", FACTORS)
def test_a_search_with_a_cache_is_one_without(make_model: Maker, scaled: bool) -> None:
    model = make_model(
        scale_embeddings=scaled, norm_embeddings=True, positions="learned", norm_order="pre", tie_embeddings=False
    )
    sources, symbols = [[5, 3, 11, 2], [7, 2]], SpecialTokens(pad=0, start=1, end=2)
    found = [
        generate(model, sources, symbols, DecodingConfig(max_extra=8, use_cache=use_cache))
        for use_cache in (True, False)
    ]
    for one, other in zip(*found, strict=True):
        assert one[0].tokens == other[0].tokens
        assert one[0].score == pytest.approx(other[0].score, abs=1e-10)


def test_padding_has_no_effect_on_tokens(make_model: Maker) -> None:
    model = make_model(scale_embeddings=False, norm_embeddings=True, positions="learned", tie_embeddings=False)
    source, target = torch.tensor([[5, 3, 11, 0, 0]]), torch.tensor([[1, 4, 7]])
    alone = model(source[:, :3], target)
    with torch.no_grad():
        model.source_embedding.weight[0] = float("nan")
    torch.testing.assert_close(model(source, target, source > 0), alone, atol=1e-12, rtol=1e-12)
