"""Switching off, overwriting and patching: what changes, what must not, and what cannot be done."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import glassformer
from glassformer import ConfigError, Trace, trace
from glassformer.explain.analysis.interventions import (
    Inputs,
    attentions,
    in_turn,
    mean_heads,
    overwrite_row,
    patch,
    patch_from,
    run,
    switch_off,
    zero_heads,
)
from glassformer.explain.formula.dataflow import residual_stream
from glassformer.models.encoder_decoder import EncoderDecoder

SELF, CROSS = "decoder.layers.0.self_attention", "decoder.layers.1.cross_attention"
KINDS = [
    {"norm_order": order, "tie_embeddings": tied, "positions": positions}
    for order, tied, positions in (
        ("post", True, "sinusoidal"),
        ("post", False, "learned"),
        ("pre", True, "rotary"),
        ("pre", False, "sinusoidal"),
    )
]


def inputs() -> Inputs:
    source_mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    target_mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    return Inputs(torch.randint(3, 12, (2, 6)), torch.randint(3, 12, (2, 5)), source_mask, target_mask)


def recorded(model: EncoderDecoder, given: Inputs, edits: dict | None = None) -> Trace:
    with trace(model, edits=edits) as t:
        model(*given.arguments)
    return t


@pytest.mark.parametrize("kind", KINDS)
def test_identity_interventions_change_no_bit(make_model: Callable[..., EncoderDecoder], kind: dict) -> None:
    model, given = make_model(**kind), inputs()
    plain = recorded(model, given)
    logits = plain["output_projection.logits"]
    editable = [*residual_stream(model, "decoder"), *(f"{CROSS}.{tap}" for tap in ("q", "v", "weights", "result"))]
    for edits in (
        switch_off(model, dict.fromkeys(attentions(model), ())),
        {f"{SELF}.context": in_turn()},
        {f"{CROSS}.weights": overwrite_row(1, 2, plain[f"{CROSS}.weights"][1, 1, 2], batch=1)},
        patch_from(plain, editable),
        patch_from(plain, editable, [0, 2]),
    ):
        assert torch.equal(run(model, given, edits), logits)
    off = run(model, given, switch_off(model, {SELF: [1]}))
    assert not torch.equal(off, logits)  # the same comparison sees a head that is off


def test_a_head_that_is_off_gives_zero_and_the_others_what_they_gave(
    make_model: Callable[..., EncoderDecoder],
) -> None:
    model, given = make_model(), inputs()
    plain, off = recorded(model, given), recorded(model, given, switch_off(model, {SELF: [1], CROSS: [0]}))
    assert off[f"{SELF}.context"][:, 1].count_nonzero() == 0
    assert off[f"{CROSS}.context"][:, 0].count_nonzero() == 0
    assert torch.equal(off[f"{SELF}.context"][:, 0], plain[f"{SELF}.context"][:, 0])
    assert off[f"{CROSS}.context"][:, 1].count_nonzero() > 0 < plain[f"{SELF}.context"][:, 1].count_nonzero()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
def test_with_every_head_off_only_the_bias_is_left(
    make_model: Callable[..., EncoderDecoder], kind: dict, bias: bool
) -> None:
    model, given = make_model(**kind, attention_bias=bias), inputs()

    def only_bias(t: Trace, path: str) -> bool:
        result, output = t[f"{path}.result"], attentions(model)[path].output
        left = torch.zeros(16, dtype=torch.float64) if output.bias is None else output.bias.detach()
        return torch.equal(result, left.expand_as(result))

    all_off = recorded(model, given, switch_off(model, dict.fromkeys(attentions(model), (0, 1))))
    one_on = recorded(model, given, switch_off(model, {SELF: [0]}))
    assert all(only_bias(all_off, path) for path in attentions(model))
    assert not only_bias(one_on, SELF)


@pytest.mark.parametrize("kind", KINDS)
def test_the_embedding_and_the_memory_of_a_donor_give_its_logits(
    make_model: Callable[..., EncoderDecoder], kind: dict
) -> None:
    """And so does the residual stream after any layer, with the memory; neither of the two alone does."""
    model, masks = make_model(**kind), inputs()[2:]
    given, other = Inputs(*inputs()[:2], *masks), Inputs(*inputs()[:2], *masks)
    donor = recorded(model, other)
    expected = donor["output_projection.logits"]
    assert not torch.equal(run(model, given), expected)
    for place in residual_stream(model, "decoder"):
        assert torch.equal(run(model, given, patch_from(donor, [place, "memory"])), expected)
    last, first = residual_stream(model, "decoder")[-1], residual_stream(model, "decoder")[0]
    assert torch.equal(run(model, given, patch_from(donor, [last])), expected)
    assert not torch.equal(run(model, given, patch_from(donor, [first])), expected)
    assert not torch.equal(run(model, given, patch_from(donor, ["memory"])), expected)
    assert not torch.equal(run(model, given, patch_from(donor, [first, "memory"], [0, 1])), expected)


def test_positions_are_patched_and_the_rest_stays(make_model: Callable[..., EncoderDecoder]) -> None:
    model, given, other = make_model(), inputs(), inputs()
    plain, donor = recorded(model, given), recorded(model, other)
    patched = recorded(model, given, patch_from(donor, ["memory"], [1, 4]))["memory"]
    assert torch.equal(patched[:, [1, 4]], donor["memory"][:, [1, 4]])
    assert torch.equal(patched[:, [0, 2, 3, 5]], plain["memory"][:, [0, 2, 3, 5]])
    moved = recorded(model, given, {f"{SELF}.v": patch(donor[f"{SELF}.v"], [0], [3])})[f"{SELF}.v"]
    assert torch.equal(moved[:, :, 0], donor[f"{SELF}.v"][:, :, 3])
    assert torch.equal(moved[:, :, 1:], plain[f"{SELF}.v"][:, :, 1:])


def test_a_row_is_overwritten_and_two_edits_follow_each_other(make_model: Callable[..., EncoderDecoder]) -> None:
    model, given = make_model(), inputs()
    row = torch.tensor([0.0, 0, 1, 0, 0, 0])
    edits = {f"{CROSS}.weights": in_turn(overwrite_row(0, 3, row), overwrite_row(1, 4, row))}
    plain, edited = recorded(model, given), recorded(model, given, edits)
    torch.testing.assert_close(edited[f"{CROSS}.context"][0, 0, 3], plain[f"{CROSS}.v"][0, 0, 2])
    torch.testing.assert_close(edited[f"{CROSS}.context"][0, 1, 4], plain[f"{CROSS}.v"][0, 1, 2])
    assert torch.equal(edited[f"{CROSS}.weights"][1], plain[f"{CROSS}.weights"][1])
    assert torch.equal(edited[f"{CROSS}.weights"][0, 0, :3], plain[f"{CROSS}.weights"][0, 0, :3])


def test_a_mean_is_that_of_the_tokens_and_in_the_decoder_of_those_so_far(
    make_model: Callable[..., EncoderDecoder],
) -> None:
    model, given, path = make_model(), inputs(), "encoder.layers.0.self_attention"
    plain = recorded(model, given)
    off = recorded(model, given, switch_off(model, {path: [0], SELF: [1]}, "mean", given))
    expected = plain[f"{path}.context"][1, 0, :4].mean(0)
    torch.testing.assert_close(off[f"{path}.context"][1, 0], expected.expand(6, -1))
    assert torch.equal(off[f"{path}.context"][:, 1], plain[f"{path}.context"][:, 1])
    with_padding = recorded(model, given, switch_off(model, {path: [0]}, "mean"))[f"{path}.context"]
    assert not torch.allclose(with_padding[1, 0, 0], expected)
    before = recorded(model, given, switch_off(model, {path: [0]}, "mean", given))[f"{SELF}.context"]
    torch.testing.assert_close(off[f"{SELF}.context"][0, 1, 3], before[0, 1, :4].mean(0))


def test_a_mean_in_the_decoder_tells_nothing_of_later_tokens(make_model: Callable[..., EncoderDecoder]) -> None:
    model, given = make_model(), inputs()
    changed = given._replace(target=given.target.clone())
    changed.target[0, 3] = 3 + (changed.target[0, 3] - 2) % 9
    causal = switch_off(model, {SELF: [0, 1], CROSS: [0]}, "mean", given)
    assert torch.equal(run(model, given, causal)[0, :3], run(model, changed, causal)[0, :3])
    leaking = {f"{SELF}.context": mean_heads(0, 1, causal=False)}
    assert not torch.equal(run(model, given, leaking)[0, :3], run(model, changed, leaking)[0, :3])


def test_an_edit_lets_gradients_through(make_model: Callable[..., EncoderDecoder]) -> None:
    model, given = make_model(), inputs()
    run(model, given, switch_off(model, {SELF: [0]})).sum().backward()
    gradient = attentions(model)[SELF].value.weight.grad
    assert gradient is not None
    assert gradient[:4].count_nonzero() == 0 < gradient[4:].count_nonzero()
    model.zero_grad()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m, g: switch_off(m, {"decoder.layer.1.cross_attention": [0]}), r"no attention is called .*; did you"),
        (lambda m, g: switch_off(m, {CROSS: [2]}), rf"head=2 is outside {CROSS}; choose from 0 to 1"),
        (lambda m, g: switch_off(m, {CROSS: [-1]}), "head=-1 is outside"),
        (lambda m, g: run(m, g, {f"{CROSS}.context": zero_heads(5)}), "head=5 is outside the attention; choose"),
        (lambda m, g: overwrite_row(0, 0, torch.full((6,), 0.2)), r"sums to 1\.2 .* divide them by their sum"),
        (lambda m, g: overwrite_row(0, 0, torch.tensor([1.5, -0.5])), "smallest weight is −0.5; weights are at least"),
        (lambda m, g: overwrite_row(0, 0, torch.full((6,), torch.nan)), "sums to nan"),
        (lambda m, g: run(m, g, {f"{CROSS}.weights": overwrite_row(0, 0, torch.ones(1))}), "1 weights for 6 keys"),
        (lambda m, g: run(m, g, {f"{CROSS}.weights": overwrite_row(0, 9, torch.eye(6)[0])}), "query=9 is outside"),
        (lambda m, g: run(m, g, {"memory": patch(torch.zeros(2, 6, 16), [6])}), "position=6 is outside .* 0 to 5"),
        (lambda m, g: run(m, g, {"memory": patch(torch.zeros(2, 6, 16), [0], [1, 2])}), "1 positions and 2 of the"),
        (lambda m, g: run(m, g, {"memory": patch(torch.zeros(2, 7, 16))}), r"gives a shape of \[2, 7, 16\] instead"),
        (lambda m, g: run(m, g, {"memories": torch.zeros_like}), "did you mean memory"),
        (lambda m, g: g.row(2), "row=2 is outside the batch; choose from 0 to 1"),
        (
            lambda m, g: run(
                m, g._replace(target=g.target[:, :1], target_mask=None), switch_off(m, {SELF: [0]}, "mean")
            ),
            "the mean over 1 position is that position",
        ),
        (
            lambda m, g: switch_off(m, {SELF: [0]}, "mean", g._replace(target_mask=torch.ones(2, 5, dtype=torch.int))),
            "the rows hold several sentences",
        ),
    ],
)
def test_what_cannot_be_done_is_said(
    make_model: Callable[..., EncoderDecoder], make: Callable[[EncoderDecoder, Inputs], object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make(make_model(), inputs())


def test_dropout_is_refused(make_model: Callable[..., EncoderDecoder]) -> None:
    with pytest.raises(ConfigError, match=r"dropout changes every run; call model\.eval\(\) first"):
        run(make_model(dropout=0.2).train(), inputs())
    assert isinstance(run(make_model().train(), inputs()), Tensor)


def test_the_inputs_of_an_example_are_what_it_was_traced_with() -> None:
    """A trained model and raw text; another target gives other logits."""
    translator = glassformer.load(Path(__file__).parents[1] / "data" / "format_1")
    example = glassformer.examine(translator, "the doctor carries them.", "le médecin les porte.")
    other = glassformer.examine(translator, "the doctor carries them.", "le médecin porte.")
    model = translator.models[0]
    logits = example.trace["output_projection.logits"]
    assert torch.equal(run(model, Inputs.of(example)), logits)
    assert not torch.equal(run(model, Inputs.of(other))[:, -1], logits[:, -1])
