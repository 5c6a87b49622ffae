"""How well a model names what it is shown: one loop for texts, words, hidden tokens and images."""

from collections.abc import Iterable

from jaxtyping import Float, Int
from torch import Tensor

from glassformer.train.loss import cross_entropy


def naming_scores(
    shown: Iterable[tuple[Float[Tensor, "examples classes"], Int[Tensor, " examples"]]],
) -> dict[str, float]:
    """The mean negative log-likelihood in nats, and the share named rightly, over (logits, wanted) of all batches."""
    nll, right, examples = 0.0, 0, 0
    for logits, wanted in shown:
        nll += cross_entropy(logits, wanted, 0.0).smoothed.item()
        right += int((logits.argmax(-1) == wanted).sum())
        examples += len(wanted)
    return {"nll": nll / examples, "accuracy": right / examples}
