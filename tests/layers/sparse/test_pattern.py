"""Sparse attention patterns: their dense masks against the papers, and the values they refuse."""

import pytest
import torch

from glassformer.errors import ConfigError
from glassformer.layers.mask import causal_mask
from glassformer.layers.sparse import Window, fixed, global_tokens, strided

QUERY, KEY = torch.arange(20)[:, None], torch.arange(20)
AHEAD = KEY > QUERY


def test_window_mask_is_a_band() -> None:
    assert torch.equal(Window(4).mask(20, 20)[0, 0], (QUERY - KEY).abs() < 4)
    assert torch.equal(Window(20, causal=True).mask(20, 20), causal_mask().dense(20, 20))


def test_strided_mask_is_that_of_the_paper() -> None:
    near = (QUERY - KEY <= 6) | ((QUERY - KEY) % 6 == 0)  # A⁽¹⁾ = {max(0, i − l), …, i}, A⁽²⁾ = {j: (i − j) mod l = 0}
    assert torch.equal(strided(6, causal=True).mask(20, 20)[0, 0], near & ~AHEAD)


def test_fixed_mask_is_that_of_the_paper() -> None:
    own = (KEY // 6 == QUERY // 6) | (KEY % 6 >= 4)
    assert torch.equal(fixed(6, 2, causal=True).mask(20, 20)[0, 0], own & ~AHEAD)


def test_union_with_global_tokens_has_their_rows_and_columns() -> None:
    selected = (QUERY == 0) | (QUERY == 7) | (KEY == 0) | (KEY == 7)
    pattern = Window(2) | global_tokens((0, 7))
    assert torch.equal(pattern.mask(20, 20)[0, 0], selected | ((QUERY - KEY).abs() < 2))


def test_last_query_stands_at_the_last_key() -> None:
    pattern = Window(2) | global_tokens((0, 7))
    assert torch.equal(pattern.mask(5, 20), pattern.mask(20, 20)[:, :, -5:])


def test_equal_patterns_have_equal_hashes() -> None:
    first, second = (Window(2) | global_tokens((0, 7)) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)


def test_patterns_refuse_values_below_their_minimum() -> None:
    with pytest.raises(ConfigError, match="width=0 is too small for Window attention; choose 1 or more"):
        Window(0)
    with pytest.raises(ConfigError, match=r"positions=\(-1,\) cannot be global tokens; choose one or more, from 0 on"):
        global_tokens((-1,))
