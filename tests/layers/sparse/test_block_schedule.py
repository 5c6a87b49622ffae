"""Block schedules: every query at most once, at the cost that the papers state."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch

from glassformer.layers.sparse import BlockComponent, ColumnComponent, Window
from glassformer.layers.sparse.pattern import Component


def products(component: Component, n: int) -> int:
    """Products of a query and a key in the schedule for ``n`` positions."""
    device = torch.device("cpu")
    indices = [(queries.indices(device), keys.indices(device)) for queries, keys in component.blocks(n, n)]
    times = torch.bincount(torch.cat([queries.flatten() for queries, _ in indices]), minlength=n)
    assert times.max() <= 1, "a query is in two blocks"
    return sum(queries.numel() * keys.size(1) for queries, keys in indices)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", [Window, BlockComponent])
def test_cost_is_linear_in_the_length(kind: Callable[..., Component], causal: bool) -> None:
    costs = [products(kind(128, causal), n) for n in (1024, 2048, 4096, 8192)]
    assert costs[0] <= 1024 * (128 + 64) * (1 if causal else 2)
    steps = [after - before for before, after in pairwise(costs)]
    assert steps[1] == 2 * steps[0]
    assert steps[2] == 4 * steps[0]


def test_cost_of_columns_is_n_root_n_at_a_stride_of_root_n() -> None:
    assert [products(ColumnComponent(root), root * root) for root in (16, 32, 64)] == [root**3 for root in (16, 32, 64)]
