"""Rows of several sentences in the kernels: the mask is that of PyTorch, and padding is not computed."""

from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.layers.dropout import Dropout
from glassformer.layers.mask import Mask
from glassformer.models.device import cast_stacks
from glassformer.models.registry import build_model
from glassformer.native import accelerate
from glassformer.native.library import kernels
from glassformer.native.stack import dense_mask

WIDTH = 64


@pytest.fixture(autouse=True)
def require_kernels() -> None:
    if kernels() is None:
        pytest.skip("there are no kernels here")


def numbers(length: int) -> Tensor:
    """Rows that are full, that end in padding, that have padding between sentences too, and that are only padding."""
    rows = torch.ones(4, length, dtype=torch.long)
    rows[:, length // 3 :] = 2
    rows[1, -length // 4 :] = 0
    rows[2, length // 3 : length // 2], rows[2, -1] = 0, 0
    rows[3] = 0
    return rows


def padding(of: Tensor) -> Tensor:
    """True at the end of each row, behind its last token."""
    return of.flip(1).cumsum(1).flip(1) == 0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(21, 21), (13, 40), (40, 13)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_only_padding_at_the_end_is_hidden_beside_what_pytorch_hides(
    causal: bool, queries: int, keys: int, dtype: torch.dtype
) -> None:
    of_queries, of_keys = numbers(queries).to(dtype), numbers(keys).to(dtype)
    mask = Mask(of_keys, of_queries, causal=causal)
    expected = mask.dense(queries, keys) & ~padding(of_keys)[:, None, None]
    found = dense_mask(mask, torch.empty(4, queries, WIDTH), torch.empty(4, keys, WIDTH))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("mask", [None, Mask(causal=True), Mask(torch.ones(4, 9, dtype=torch.bool))])
def test_masks_without_numbers_are_unchanged(mask: Mask | None) -> None:
    x = torch.empty(4, 9, WIDTH)
    assert dense_mask(mask, x, x) is (None if mask is None else mask.dense(9, 9, x.device))


@pytest.mark.parametrize("more", [{"allowed": torch.ones(1, 1, 9, 9, dtype=torch.bool)}, {"offset": 2}])
def test_numbers_with_another_condition_are_computed_by_pytorch(more: dict[str, Any]) -> None:
    rows, x = numbers(9), torch.empty(4, 9, WIDTH)
    mask = Mask(rows, rows, causal=True, **more)
    assert dense_mask(mask, x, x) is mask.dense(9, 9, x.device)


def model(dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    sizes = {"d_model": WIDTH, "n_heads": 2, "d_ff": 128, "n_encoder_layers": 2, "n_decoder_layers": 2, "dropout": 0.1}
    made = build_model({"kind": "encoder_decoder", "vocab_size": 40, "positions": "rotary", **sizes}, "test").train()
    if dtype == torch.bfloat16 and not kernels().has_bfloat16:  # type: ignore[union-attr]
        pytest.skip("no kernels that train in this type")
    return cast_stacks(made, dtype) if dtype == torch.bfloat16 else made


def widened(tokens: Tensor, extra: int, filling: int) -> Tensor:
    return torch.cat([tokens, tokens.new_full((len(tokens), extra), filling)], 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_padding_of_a_translation_changes_no_bit(dtype: torch.dtype) -> None:
    """Neither how wide it is nor which tokens it has. Its memory is 0."""
    made = model(dtype)
    for embedding in (made.source_embedding, made.target_embedding):
        embedding.dropout = Dropout(0.0)  # it depends on the width of a row
    accelerated, found = accelerate(made), list[list[Tensor]]()
    of_source, of_target = numbers(21), numbers(14)
    source, target = torch.randint(1, 40, of_source.shape), torch.randint(1, 40, of_target.shape)
    for extra, filling in ((0, 3), (0, 8), (11, 5)):
        masks = [widened(of, extra, 0) for of in (of_source, of_target)]
        tokens = [
            widened(each, extra, filling).masked_fill(padding(mask), filling)
            for each, mask in zip((source, target), masks, strict=True)
        ]
        torch.manual_seed(3)
        made.zero_grad()
        memory = accelerated.encode(tokens[0], masks[0])
        assert not memory[padding(masks[0])].any()
        hidden = accelerated.hidden(*tokens, *masks, selected=(masks[1] != 0).flatten().nonzero().flatten())
        hidden.float().square().sum().backward()
        found.append([hidden.detach(), *(p.grad for p in made.parameters() if p.grad is not None)])
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))
