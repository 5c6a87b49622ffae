"""Head importance is the derivative that it claims to be; a head that does nothing scores nothing."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from glassformer.explain.analysis.heads import HeadImportance, gate_edits, head_ablation, head_importance
from glassformer.explain.analysis.interventions import Inputs, attentions, run, switch_off
from glassformer.models.encoder_decoder import EncoderDecoder

KINDS = [{"norm_order": order, "tie_embeddings": tied} for order in ("post", "pre") for tied in (True, False)]
DEAD = "decoder.layers.1.cross_attention"


def inputs() -> tuple[Inputs, Tensor]:
    source_mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    target_mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    given = Inputs(torch.randint(3, 12, (2, 6)), torch.randint(3, 12, (2, 5)), source_mask, target_mask)
    return given, torch.randint(3, 12, (2, 5))


def loss_of_rows(model: EncoderDecoder, given: Inputs, predicted: Tensor, edits: dict | None = None) -> Tensor:
    """By PyTorch's own cross-entropy, token by token."""
    nll = torch.nn.functional.cross_entropy(run(model, given, edits).transpose(1, 2), predicted, reduction="none")
    assert given.target_mask is not None
    return torch.stack([row[seen].mean() for row, seen in zip(nll, given.target_mask)])


def central_difference(model: EncoderDecoder, given: Inputs, predicted: Tensor, path: str, head: int) -> Tensor:
    losses = []
    for step in (1e-5, -1e-5):
        gate = torch.ones(2, 2, dtype=torch.float64)
        gate[:, head] += step
        losses.append(loss_of_rows(model, given, predicted, gate_edits({path: gate})))
    return (losses[0] - losses[1]) / 2e-5


@pytest.mark.parametrize("kind", KINDS)
def test_importance_is_the_central_difference(make_model: Callable[..., EncoderDecoder], kind: dict) -> None:
    model, (given, predicted) = make_model(**kind), inputs()
    found = head_importance(model, given, predicted)
    assert found.attentions == tuple(attentions(model))
    assert found.gradient.shape == (6, 2, 2)
    with torch.no_grad():
        expected = torch.stack(
            [
                torch.stack([central_difference(model, given, predicted, path, head) for head in (0, 1)], dim=1)
                for path in found.attentions
            ]
        )
    torch.testing.assert_close(found.gradient, expected, atol=1e-9, rtol=1e-6)
    torch.testing.assert_close(found.importance, expected.abs().mean(1), atol=1e-9, rtol=1e-6)
    with pytest.raises(AssertionError):  # gradients of rows that cancel out before the modulus are another number
        torch.testing.assert_close(found.gradient.mean(1).abs(), expected.abs().mean(1), atol=1e-9, rtol=1e-6)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("kill", ["output", "value"])
def test_a_dead_head_scores_exactly_zero(make_model: Callable[..., EncoderDecoder], kill: str) -> None:
    """Nothing reads its values, or they are zero. The same zeros for its keys leave it alive."""
    model, (given, predicted) = make_model(), inputs()
    attention = attentions(model)[DEAD]
    with torch.no_grad():
        if kill == "output":
            attention.output.weight[:, 4:] = 0
        else:
            attention.value.weight[4:], attention.value.bias[4:] = 0, 0
    importance, ablation = head_importance(model, given, predicted), head_ablation(model, given, predicted)
    dead = importance.attentions.index(DEAD)
    alive = torch.ones(6, 2, dtype=torch.bool)
    alive[dead, 1] = False
    assert importance.importance[dead, 1] == 0
    assert importance.relative[dead, 1] == 0
    assert ablation.change[dead, 1].count_nonzero() == 0
    assert ablation.loss_change[dead, 1] == 0
    assert (importance.importance[alive] > 0).all()
    assert (ablation.loss_change[alive] != 0).all()

    model = make_model()
    with torch.no_grad():
        attentions(model)[DEAD].key.weight[6:] = 0
    assert head_importance(model, given, predicted).importance[dead, 1] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_ablation_is_the_change_of_the_loss(make_model: Callable[..., EncoderDecoder], kind: dict) -> None:
    model, (given, predicted) = make_model(**kind), inputs()
    found = head_ablation(model, given, predicted)
    with torch.no_grad():
        off = switch_off(model, {DEAD: [1]})
        plain, without = (loss_of_rows(model, given, predicted, edits) for edits in (None, off))
    tokens = torch.tensor([5, 3])
    number = found.attentions.index(DEAD)
    assert found.loss == pytest.approx(float((plain * tokens).sum() / 8), rel=1e-12)
    assert float(found.loss_change[number, 1]) == pytest.approx(float(((without - plain) * tokens).sum() / 8), rel=1e-9)
    assert float(found.loss_change[number, 0]) != pytest.approx(float(found.loss_change[number, 1]), rel=1e-9)
    assert found.change[..., 1, 3:].count_nonzero() == 0 < found.change[..., 1, :3].count_nonzero()


def test_padding_changes_no_score(make_model: Callable[..., EncoderDecoder]) -> None:
    """Other tokens where there is padding, and another prediction there; a token that counts does change them."""
    model, (given, predicted) = make_model(), inputs()
    plain = head_importance(model, given, predicted).gradient, head_ablation(model, given, predicted, "mean").change
    other = given._replace(source=given.source.clone(), target=given.target.clone())
    other.source[1, 5], other.target[1, 4], predicted[1, 3] = 3, 4, 5
    again = head_importance(model, other, predicted).gradient, head_ablation(model, other, predicted, "mean").change
    assert torch.equal(plain[0], again[0])
    assert torch.equal(plain[1], again[1])
    predicted[1, 1] = 3 + (predicted[1, 1] - 2) % 9
    assert not torch.equal(plain[0], head_importance(model, other, predicted).gradient)


def test_relative_importance_has_norm_one_in_each_attention() -> None:
    found = HeadImportance(("a", "b"), torch.tensor([[[3.0, -4.0]], [[0.0, 0.0]]]))
    assert found.relative.tolist() == [pytest.approx([0.6, 0.8]), [0.0, 0.0]]


def test_no_gradient_outside_is_no_obstacle(make_model: Callable[..., EncoderDecoder]) -> None:
    model, (given, predicted) = make_model(), inputs()
    with torch.no_grad():
        inside = head_importance(model, given, predicted)
    assert torch.equal(inside.gradient, head_importance(model, given, predicted).gradient)
