"""Importance of each attention head: by switching it off, and by the gradient of a gate on it.

Michel, Levy & Neubig 2019, "Are Sixteen Heads Really Better than One?" (arXiv:1905.10650), sections 3 and 4.1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.explain.analysis.interventions import Inputs, Off, Predictor, attentions, run, switch_off
from glassformer.taps import Edit


@dataclass(frozen=True)
class HeadAblation:
    """The log-probability (nats) of each predicted token with every head on, and with one head off at a time."""

    attentions: tuple[str, ...]
    log_probability: Float[Tensor, "batch ..."]
    without: Float[Tensor, "attention head batch *target"]
    counted: Bool[Tensor, "batch ..."]
    """False at padding, and where nothing is predicted."""

    @property
    def change(self) -> Float[Tensor, "attention head batch *target"]:
        """Change of each token's log-probability when the head is switched off; 0 at padding."""
        return (self.without - self.log_probability).masked_fill(~self.counted, 0.0)

    @property
    def loss(self) -> float:
        """Negative log-likelihood in nats a token, with every head on."""
        return float(_mean_nll(self.log_probability, self.counted))

    @property
    def loss_change(self) -> Float[Tensor, "attention head"]:
        """Change of ``loss`` when the head is switched off; above 0 where the head helps."""
        return -self.change.flatten(2).sum(-1) / self.counted.sum()


@dataclass(frozen=True)
class HeadImportance:
    """∂L/∂ξ of each head's gate ξ = 1, L being the loss of a row of the batch in nats a token."""

    attentions: tuple[str, ...]
    gradient: Float[Tensor, "attention batch head"]

    @property
    def importance(self) -> Float[Tensor, "attention head"]:
        """The mean over rows of |∂L/∂ξ|."""
        return self.gradient.abs().mean(1)

    @property
    def relative(self) -> Float[Tensor, "attention head"]:
        """``importance`` divided by its ℓ2 norm in each attention, as the paper ranks heads; zeros where all are 0."""
        norm = self.importance.norm(dim=-1, keepdim=True)
        return self.importance / norm.masked_fill(norm == 0, 1.0)


@torch.no_grad()
def head_ablation(
    model: Predictor,
    inputs: Inputs,
    predicted: Int[Tensor, "batch ..."],
    by: Off = "zero",
    before_run: Callable[[], None] = lambda: None,
) -> HeadAblation:
    """Section 3.2 of the paper: switch off each head alone. ``predicted`` is what follows each of ``inputs.target``; of
    one stack what follows (GPT) or is (BERT) each token, or the class (ViT).

    One run a head, before which ``before_run`` is called, which may raise to end here. Heads that stand in for each
    other all look dispensable: none is missed while the others are on.
    """
    plain = _log_probability(run(model, inputs), predicted)
    known = attentions(model)

    def without_head(path: str, head: int) -> Float[Tensor, "batch ..."]:
        before_run()
        return _log_probability(run(model, inputs, switch_off(model, {path: [head]}, by, inputs)), predicted)

    without = [
        torch.stack([without_head(path, head) for head in range(attention.n_heads)])
        for path, attention in known.items()
    ]
    return HeadAblation(tuple(known), plain, torch.stack(without), inputs.counted)


def head_importance(model: Predictor, inputs: Inputs, predicted: Int[Tensor, "batch ..."]) -> HeadImportance:
    """|∂L/∂ξ_h| by one backward pass, ξ_h multiplying the ``context`` of head h (section 4.1).

    It is the slope with the head on, and tells nothing of how far it holds: switching the head off is a step of 1.
    """
    with torch.enable_grad():
        gates = {
            path: torch.ones(
                len(inputs.source), attention.n_heads, dtype=attention.output.weight.dtype, device=inputs.source.device
            ).requires_grad_()
            for path, attention in attentions(model).items()
        }
        logits = run(model, inputs, gate_edits(gates))
        loss = _mean_nll(_log_probability(logits, predicted), inputs.counted, by_row=True).sum()
        gradients = torch.autograd.grad(loss, list(gates.values()))
    return HeadImportance(tuple(gates), torch.stack(gradients))


def gate_edits(gates: dict[str, Float[Tensor, "batch head"]]) -> dict[str, Edit]:
    """The edits that multiply the context of each head by its gate, by the path of its attention."""

    def multiply(gate: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda context: context * gate[:, :, None, None]

    return {f"{path}.context": multiply(gate) for path, gate in gates.items()}


def _log_probability(
    logits: Float[Tensor, "batch *target vocab"], predicted: Int[Tensor, "batch ..."]
) -> Float[Tensor, "batch ..."]:
    return logits.log_softmax(-1).gather(-1, predicted[..., None])[..., 0]


def _mean_nll(
    log_probability: Float[Tensor, "batch ..."], counted: Bool[Tensor, "batch ..."], by_row: bool = False
) -> Tensor:
    """Nats a token, of the whole batch or of each row."""
    count = len(log_probability)
    rows, known = log_probability.reshape(count, -1), counted.reshape(count, -1)  # a class is one prediction a row
    axes = (1,) if by_row else (0, 1)
    return -rows.masked_fill(~known, 0.0).sum(axes) / known.sum(axes).clamp(min=1)
