"""``attention_dropout`` is the rate of the attention weights alone, and ``dropout`` without it."""

from collections.abc import Callable
from typing import Any

import pytest

from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.dropout import Dropout

KINDS = ["gpt", "bert", "vit", "series"]


def rates(model: Any) -> tuple[set[float], set[float]]:
    """Rates of attention weights, and of everything else."""
    attention = {id(module.dropout) for module in model.modules() if isinstance(module, MultiHeadAttention)}
    dropouts = [module for module in model.modules() if isinstance(module, Dropout)]
    return (
        {one.p for one in dropouts if id(one) in attention},
        {one.p for one in dropouts if id(one) not in attention},
    )


@pytest.mark.parametrize("kind", KINDS)
def test_attention_dropout_is_the_rate_of_attention_weights_alone(build: Callable[..., Any], kind: str) -> None:
    attention, others = rates(build(kind, dropout=0.25, attention_dropout=0.5))
    assert attention == {0.5}
    assert others - {0.0} == {0.25}  # the head of a series has a rate of its own


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "vit"])  # a ViT's is 0 by default
def test_attention_dropout_is_dropout_by_default(build: Callable[..., Any], kind: str) -> None:
    attention, _ = rates(build(kind, dropout=0.25))
    assert attention == {0.25}
