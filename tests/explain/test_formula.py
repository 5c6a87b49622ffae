"""Every recorded number has a formula, which gives it again from its operands; a number that is not so turns red."""

import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from glassformer import ConfigError, Trace, explain, trace
from glassformer.explain.formula.expression import Number, Vector, op, softmax
from glassformer.explain.formula.formula import trace_back
from glassformer.explain.formula.notation import write
from glassformer.models.encoder_decoder import EncoderDecoder

GIVEN = {"one_hot", "mask"}
VARIANTS: dict[str, dict[str, object]] = {
    "the paper's": {},
    "pre-norm, untied, learned positions": {"norm_order": "pre", "tie_embeddings": False, "positions": "learned"},
    "rotary, gelu": {"positions": "rotary", "activation": "gelu"},
    "BART's": {"scale_embeddings": False, "norm_embeddings": True, "positions": "learned"},
    "scaled and normalized, rotary": {"norm_embeddings": True, "positions": "rotary", "tie_embeddings": False},
    "silu, no attention biases, output bias": {"activation": "silu", "attention_bias": False, "output_bias": True},
}


def recorded(model: EncoderDecoder) -> Trace:
    with trace(model) as t, torch.no_grad():
        model(torch.tensor([[5, 3, 11, 7, 4, 2]]), torch.tensor([[1, 9, 4, 10, 6]]))
    return t


def somewhere(t: Trace, name: str, draw: random.Random) -> dict[str, int]:
    return {axis: draw.randrange(size) for axis, size in zip(t.axes(name), t[name].shape, strict=True)}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_every_number_is_what_its_formula_gives(
    make_model: Callable[..., EncoderDecoder], variant: str, dtype: torch.dtype
) -> None:
    t, draw = recorded(make_model(**VARIANTS[variant]).to(dtype)), random.Random(0)
    for name in t:
        for _ in range(3):
            formula = explain(t, name, **somewhere(t, name, draw))
            assert formula.check.passed, formula.text()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_number_that_was_tampered_with_turns_red(make_model: Callable[..., EncoderDecoder], variant: str) -> None:
    """One part in a million is enough, in float64."""
    t, draw = recorded(make_model(**VARIANTS[variant])), random.Random(1)
    for name in [name for name in t if name.rpartition(".")[2] not in GIVEN]:
        place, honest = somewhere(t, name, draw), t[name]
        value = explain(t, name, **place).value
        t[name] = honest.clone()
        t[name][tuple(place.values())] = 0.0 if value == -torch.inf else value + 1e-6 * (1 + abs(value))
        formula = explain(t, name, **place)
        assert not formula.check.passed and "✗" in formula.text(), name
        t[name] = honest


def test_from_a_probability_down_to_the_one_hot(make_model: Callable[..., EncoderDecoder]) -> None:
    """Every step is an operand of the one before, and checked; the last is the entry that chose a row."""
    t = recorded(make_model())
    formulas = list(trace_back(t, explain(t, "output_projection.probabilities", position=2, vocab=4)))
    for above, below in itertools.pairwise(formulas):
        assert below.place in [number.place for number in above.operands]
    names = [formula.place.name for formula in formulas]
    assert names[1] == "output_projection.logits"
    assert names[-1].endswith("embedding.one_hot")
    assert formulas[-1].value == 1
    assert all(formula.check.passed for formula in formulas)


def test_an_expression_in_three_notations() -> None:
    a, b = Number(-0.5), Number(2)
    assert write(op("product", a, b), "text") == "(−0.5) · 2"
    assert write(op("product", a, b), "latex") == r"\left(-0.5\right) \cdot 2"
    assert write(op("quotient", op("difference", b, a), op("root", b)), "text") == "(2 − (−0.5)) / √(2)"
    assert write(op("quotient", op("difference", b, a), op("root", b)), "latex") == (
        r"\frac{2 - \left(-0.5\right)}{\sqrt{2}}"
    )
    assert write(op("square", op("sin", b)), "text") == "sin(2)²"
    assert write(op("square", Number(1e-5)), "latex") == r"\left(1 \cdot 10^{-5}\right)^2"
    assert write(op("sum", b, a), "mathml") == (
        "<mrow><mn>2</mn><mo>+</mo><mrow><mo>(</mo><mn>−0.5</mn><mo>)</mo></mrow></mrow>"
    )


def test_a_long_sum_shows_its_largest_terms_and_the_sum_of_the_rest() -> None:
    numbers = [Number(float(value)) for value in (1, 50, 2, 40, 3, 30, 4, 20)]
    assert write(op("sum", *numbers), "text") == "50 + 40 + 30 + 20 + … 4 further terms = 10"
    few = softmax(Vector(np.array([1.0, 0, 0, 0, 0, 0, 0]), lambda _, value: Number(value)), chosen=3)
    assert write(few, "text").startswith("exp(0) / (exp(1) + exp(0) + exp(0) + exp(0) + … 3 further terms = 3)")


def test_the_numbers_of_a_page_lead_to_their_own_formulas(make_model: Callable[..., EncoderDecoder]) -> None:
    t = recorded(make_model())
    formula = explain(t, "decoder.layers.1.cross_attention.context", head=1, query=4, d_v=0)
    page = formula.mathml()
    assert 'data-place="decoder.layers.1.cross_attention.weights[batch=0,head=1,query=4,key=' in page
    assert page.startswith('<math display="block">')
    assert "equation 1" in formula._repr_html_()


def test_what_cannot_be_explained_is_said(make_model: Callable[..., EncoderDecoder]) -> None:
    model = make_model()
    t = recorded(model)
    weights = "encoder.layers.0.self_attention.weights"
    for index, message in [
        ({"head": 0, "query": 1}, "is explained one number at a time; give key, from 0 to 5"),
        ({"head": 0, "query": 1, "kex": 2}, "has no axis 'kex'; its axes are batch, head, query, key"),
        ({"head": 2, "query": 1, "key": 0}, "head=2 is outside .*; choose from 0 to 1"),
    ]:
        with pytest.raises(ConfigError, match=message):
            explain(t, weights, **index)
    with pytest.raises(ConfigError, match=rf"nothing was recorded under 'weigths'; did you mean {weights}|known"):
        explain(t, "weigths")
    with trace(model) as twice, torch.no_grad():
        for _ in range(2):
            model(torch.tensor([[5, 2]]), torch.tensor([[1]]))
    with pytest.raises(ConfigError, match="was recorded 2 times; explain a trace of one forward pass"):
        explain(twice, weights, head=0, query=0, key=0)
    dropping = make_model(dropout=0.5).train()
    with pytest.raises(ConfigError, match=r"recorded with dropout on; call model\.eval\(\)"):
        explain(recorded(dropping), weights, head=0, query=0, key=0)
