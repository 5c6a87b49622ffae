"""Attention of later papers by what it is equal to: heads repeated, a mask, rows of their own positions."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.cache import KeyValueCache
from glassformer.layers.dropout import Dropout
from glassformer.layers.embedding import SegmentEmbedding, TokenEmbedding
from glassformer.layers.mask import Mask, causal_mask
from glassformer.layers.norm import LayerNorm
from glassformer.layers.position import Learned, Rotary, Sinusoidal
from glassformer.layers.ragged import RaggedCache
from glassformer.layers.sparse import Pattern
from glassformer.taps import record

TOLERANCE = {"atol": 1e-12, "rtol": 1e-12}


@dataclass
class Near(Pattern):
    """The query's own position and the one before; counts the calls of ``attend``."""

    attended: int = 0
    components = ()

    def mask_mod(self, query: Tensor, key: Tensor) -> Tensor:
        return (query == key) | (query == key + 1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        self.attended += 1
        seen = self.mask(q.size(2), k.size(2)) if mask is None else mask & self.mask(q.size(2), k.size(2))
        return nn.functional.scaled_dot_product_attention(q, k, v, seen)


def attention(heads: int | tuple[int, int] = 4, **values: object) -> MultiHeadAttention:
    return MultiHeadAttention(8, heads, 6, 2, Dropout(0.5), **values).double().eval()  # type: ignore[arg-type]


def inputs(rows: int = 3, length: int = 7) -> Tensor:
    return torch.randn(rows, length, 8, dtype=torch.float64)


@pytest.mark.parametrize("n_kv_heads", [1, 2])
@pytest.mark.parametrize("masked", [True, False])
def test_a_group_of_heads_asks_the_same_keys(n_kv_heads: int, masked: bool) -> None:
    few, every, x = attention((4, n_kv_heads)), attention(), inputs()
    with torch.no_grad():
        for name, parameter in every.named_parameters():
            shared = few.get_parameter(name)
            if name.startswith(("key", "value")):
                shared = shared.unflatten(0, (n_kv_heads, -1)).repeat_interleave(4 // n_kv_heads, 0).flatten(0, 1)
            parameter.copy_(shared)
    mask = causal_mask() if masked else None
    torch.testing.assert_close(few(x, mask=mask), every(x, mask=mask), **TOLERANCE)
    memory = inputs(length=5)
    torch.testing.assert_close(few(x, memory), every(x, memory), **TOLERANCE)
    gradients = [torch.autograd.grad(each(x, mask=mask).sin().sum(), each.query.weight)[0] for each in (few, every)]
    torch.testing.assert_close(*gradients, **TOLERANCE)
    caches = KeyValueCache(), KeyValueCache()
    for place in range(7):  # one query a step: a group is then further queries of one head
        steps = [each(x[:, place : place + 1], cache=kept) for each, kept in zip((few, every), caches, strict=True)]
        torch.testing.assert_close(*steps, **TOLERANCE)
    assert caches[0].keys is not None
    assert caches[0].keys.size(1) == n_kv_heads
    with record(few) as recorded:
        few(x, mask=mask)
    assert recorded["weights"].shape == (3, 4, 7, 7)
    assert recorded["k"].shape == (3, n_kv_heads, 7, 6)


def test_sparse_pattern_computes_blockwise_or_as_a_mask() -> None:
    pattern = Near()
    sparse, dense, x = attention(pattern=pattern), attention(), inputs()
    dense.load_state_dict(sparse.state_dict())
    padding = torch.arange(7) < torch.tensor([[7], [4], [1]])
    for mask, seen in ((None, pattern.mask(7, 7)), (Mask(padding), padding[:, None, None] & pattern.mask(7, 7))):
        expected = dense(x, mask=Mask(allowed=seen))
        torch.testing.assert_close(sparse(x, mask=mask), expected, **TOLERANCE)
        with record(sparse) as recorded:
            torch.testing.assert_close(sparse(x, mask=mask), expected, **TOLERANCE)
        assert (recorded["weights"] != 0).sum() <= seen.expand_as(recorded["weights"]).sum()
    assert pattern.attended == 2
    sparse.train()(x)
    assert pattern.attended == 2  # it knows no dropout of weights
    cache = KeyValueCache()
    sparse.eval()
    steps = [sparse(x[:, p : p + 1], mask=causal_mask(p), cache=cache) for p in range(7)]
    torch.testing.assert_close(torch.cat(steps, 1), dense(x, mask=Mask(allowed=pattern.mask(7, 7))), **TOLERANCE)
    assert pattern.attended == 3  # the first step has no past


@pytest.mark.parametrize("pattern", [None, Near()], ids=["dense", "sparse"])
@pytest.mark.parametrize("rotary", [None, Rotary(6, theta=100.0)], ids=["no positions", "rotary"])
def test_rows_of_different_length_grow_as_if_alone(rotary: Rotary | None, pattern: Near | None) -> None:
    module, x, lengths = attention(rotary=rotary, pattern=pattern), inputs(length=12), torch.tensor([4, 1, 0])
    cache, growing = RaggedCache(lengths=torch.zeros(3, dtype=torch.long)), lengths.clone()
    module(x[:, :4], mask=causal_mask(), cache=cache)  # rows of 4 places, of which 4, 1 and 0 count
    cache.lengths = lengths
    for new in (1, 2, 1):
        part = torch.stack([row[start : start + new] for row, start in zip(x, growing.tolist(), strict=True)])
        found = module(part, mask=causal_mask(growing), cache=cache)
        growing = growing + new
        for row, end in enumerate(growing.tolist()):
            alone = module(x[row : row + 1, :end], mask=causal_mask())[0, -new:]
            torch.testing.assert_close(found[row], alone, **TOLERANCE)
        order = torch.tensor([2, 0, 1])
        cache.select(order)
        x, growing = x[order], growing[order]
    assert torch.equal(cache.lengths, growing)


@pytest.mark.parametrize("position", [Sinusoidal(9, 6), Sinusoidal(4, 6), Learned(9, 6)])
def test_rows_have_individual_position_offsets(position: nn.Module) -> None:
    nn.init.normal_(position.weight) if isinstance(position, Learned) else None
    offsets = torch.tensor([0, 5, 2])
    rows = position(offsets, 4)
    assert rows.shape == (3, 4, 6)
    for row, offset in zip(rows, offsets.tolist(), strict=True):
        torch.testing.assert_close(row, position(offset, 4), atol=1e-7, rtol=0)


def test_rotary_rows_have_individual_position_offsets() -> None:
    rotary, q = Rotary(6, theta=50.0), torch.randn(3, 2, 4, 6, dtype=torch.float64)
    turned, _ = rotary(q, q, offsets := torch.tensor([0, 7, 2]))
    for row, offset in enumerate(offsets.tolist()):
        alone = q[row : row + 1]
        assert torch.equal(turned[row], rotary(alone, alone, offset)[0][0])
    angle = torch.tensor(3.0 * 50.0 ** (-2 / 6), dtype=torch.float64)
    first = q[:1, :1, :1]
    pair = rotary(first, first, 3)[0][0, 0, 0, 2:4]
    even, odd = first[0, 0, 0, 2:4]
    expected = torch.stack([even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()])
    torch.testing.assert_close(pair, expected, **TOLERANCE)


def test_an_embedding_is_the_sum_of_its_parts_normalized() -> None:
    embedding = TokenEmbedding(
        9, 4, Learned(8, 4), nn.Identity(), scale=1.5, segment=SegmentEmbedding(2, 4), norm=LayerNorm(4)
    ).double()
    for parameter in embedding.parameters():
        nn.init.normal_(parameter)
    ids, segments = torch.tensor([[3, 8, 0]]), torch.tensor([[0, 1, 1]])
    seen = ids != 0
    position, segment = embedding.position.weight[:3], embedding.segment.weight[segments]
    expected = embedding.norm((1.5 * embedding.weight[ids] + position + segment).masked_fill(~seen[..., None], 0.0))
    torch.testing.assert_close(embedding(ids, seen, segments=segments), expected, **TOLERANCE)
    assert torch.equal(embedding.sharing()(ids, seen, segments=segments), embedding(ids, seen, segments=segments))
    plain = TokenEmbedding(9, 4, None, nn.Identity())
    assert plain.scale == 2.0  # √d_model, as in the paper
