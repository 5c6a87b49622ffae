"""Every number of the other models has a formula too, which gives it again from its operands."""

import itertools
import random

import pytest
import torch

from explain.small_models import VARIANTS, inputs, recorded, small_model
from glassformer import ConfigError, Trace, trace
from glassformer.explain import explain
from glassformer.explain.formula.formula import trace_back

GIVEN = {"one_hot", "mask", "patches", "embedding.segment"}
KNOWN = {"gpt": 50, "llama": 50, "bert": 60, "vit": 50, "series": 50, "recurrent": 25}


def without_rule(t: Trace, name: str) -> bool:
    return "states_" in name


def somewhere(t: Trace, name: str, draw: random.Random) -> dict[str, int]:
    return {axis: draw.randrange(size) for axis, size in zip(t.axes(name), t[name].shape, strict=True)}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_tensor_has_named_axes(variant: str) -> None:
    t = recorded(variant)
    assert len(t) >= KNOWN[variant]
    assert all(len(t.axes(name)) == t[name].ndim == len(set(t.axes(name))) for name in t)
    assert not any("axis_" in axis for name in t for axis in t.axes(name))
    modules = dict(t.model.named_modules())
    assert all(name.rpartition(".")[0] in modules for name in t)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_every_number_is_what_its_formula_gives(variant: str, dtype: torch.dtype) -> None:
    t, draw = recorded(variant, small_model(variant).to(dtype)), random.Random(0)
    for name in t:
        if not without_rule(t, name):
            for _ in range(3):
                formula = explain(t, name, **somewhere(t, name, draw))
                assert formula.check.passed, formula.text()
                assert formula.latex()
                assert formula.mathml()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_number_that_was_tampered_with_turns_red(variant: str) -> None:
    """One part in a million is enough, in float64; of a series its own mean and deviation are given."""
    t, draw = recorded(variant), random.Random(1)
    for name in t:
        if name in ("mean", "deviation") or name.rpartition(".")[2] in GIVEN or without_rule(t, name):
            continue
        place, honest = somewhere(t, name, draw), t[name]
        value = explain(t, name, **place).value
        t[name] = honest.clone()
        t[name][tuple(place.values())] = 0.0 if value == -torch.inf else value + 1e-6 * (1 + abs(value))
        formula = explain(t, name, **place)
        assert not formula.check.passed and "✗" in formula.text(), name
        t[name] = honest


ENDS = {
    "gpt": ("output_projection.probabilities", {"position": 2, "vocab": 4}, "embedding.one_hot"),
    "llama": ("output_projection.probabilities", {"position": 5, "vocab": 1}, "embedding.one_hot"),
    "bert": ("classes.projection.probabilities", {"label": 2}, "embedding.one_hot"),
    "vit": ("output_projection.probabilities", {"label": 1}, "embedding"),
    "series": ("forecast", {"step": 3, "variable": 1}, "embedding"),
    "recurrent": ("output_projection.probabilities", {"position": 1, "vocab": 7}, "decoder"),
}


@pytest.mark.parametrize("variant", ENDS)
def test_from_what_is_predicted_down_to_what_was_read(variant: str) -> None:
    """Every step is an operand of the one before, and checked."""
    name, index, end = ENDS[variant]
    t = recorded(variant)
    formulas = list(trace_back(t, explain(t, name, **index)))
    for above, below in itertools.pairwise(formulas):
        assert below.place in [number.place for number in above.operands]
    assert len(formulas) > 3
    assert formulas[-1].place.name.startswith(end)
    assert all(formula.check.passed for formula in formulas)


def test_what_has_no_formula_says_why() -> None:
    t = recorded("recurrent")
    with pytest.raises(ConfigError, match=r"decoder\.states_0 has no formula: an LSTM's gates are computed in one ker"):
        explain(t, "decoder.states_0", position=0, d_hidden=0)


def test_a_group_of_heads_asks_one_head_of_keys() -> None:
    """Four heads ask two: the third and the fourth the second one."""
    t = recorded("llama")
    path = "decoder.layers.1.self_attention"
    formula = explain(t, f"{path}.scores", head=2, query=3, key=1)
    keys = {dict(number.place.index)["head"] for number in formula.operands if number.place and "_k" in number.symbol}
    assert keys == {1}
    assert "2 heads share their keys" in formula.reference


def test_a_mean_leaves_padding_out() -> None:
    """The sentence vector of BERT, with its formula from the tokens that are seen."""
    model, seen = small_model("bert"), torch.tensor([[True, True, True, True, False, False]])
    with trace(model) as t, torch.no_grad():
        model.embed(*inputs("bert"), seen)
    assert explain(t, "embedded", d_model=3).check.passed
    with trace(model) as t, torch.no_grad():
        model.embed(*inputs("bert"))
    assert explain(t, "embedded", d_model=3).check.passed


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_edit_takes_the_place_of_the_tensor(variant: str) -> None:
    """Attention that looks nowhere leaves no context, in whichever stack it is."""
    model = small_model(variant)
    name = next(name for name in recorded(variant, model) if name.endswith("attention.weights"))
    with trace(model, edits={name: torch.zeros_like}) as t, torch.no_grad():
        model(*inputs(variant))
    assert t[name.replace("weights", "context")].count_nonzero() == 0
