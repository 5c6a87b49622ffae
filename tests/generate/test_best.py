"""The greatest entries of a row, found group by group, are those of a full sort."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.generate.candidates import TorchSearch

SEARCH = TorchSearch()


@settings(max_examples=60, deadline=None)
@given(
    vocab=st.sampled_from([1, 5, 64, 200, 640, 1000, 1287]),
    k=st.integers(1, 12),
    seed=st.integers(0, 99),
    dtype=st.sampled_from([torch.float64, torch.bfloat16]),
)
def test_best_equals_a_full_sort(vocab: int, k: int, seed: int, dtype: torch.dtype) -> None:
    """In bfloat16 many entries are equal; then which one is taken is open, and that it is one of them is not."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(7, vocab, generator=generator, dtype=torch.float64).to(dtype)
    logits[0, : vocab // 2] = -torch.inf
    values, ids = SEARCH.best(logits, k)
    assert torch.equal(values, logits.sort(-1, descending=True).values[:, :k])
    assert torch.equal(values, logits.gather(1, ids))
    assert all(len(set(row)) == len(row) for row in ids.tolist())


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 5e-3)], ids=str
)
def test_a_log_probability_is_a_logit_minus_the_log_sum(dtype: torch.dtype, tolerance: float) -> None:
    logits = (4 * torch.randn(9, 3000, dtype=torch.float64)).to(dtype)
    logits[1, 7] = 300.0
    found = logits.double() - SEARCH.log_sum(logits).double()[:, None]
    torch.testing.assert_close(found, logits.double().log_softmax(-1), atol=tolerance, rtol=1e-6)
