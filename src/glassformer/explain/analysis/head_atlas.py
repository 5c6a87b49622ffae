"""Every head of a model over several sentences: spread, distance, importance, and alignment by gold links."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from glassformer.alignment.links import GoldLinks
from glassformer.explain.analysis.attention_measures import distance, entropy
from glassformer.explain.analysis.heads import head_importance
from glassformer.explain.analysis.interventions import Inputs, Predictor, attentions
from glassformer.explain.analysis.word_links import cross_attentions, example_attention, head_links, score_heads
from glassformer.explain.example import Example
from glassformer.explain.formula.dataflow import token_projection
from glassformer.predict.alignment import HeadLinks

HeadPlace = tuple[str, int]
"""Path of an attention, and a head of it."""


@dataclass(frozen=True)
class HeadRecord:
    """One head over all sentences so far; each sentence counts as much as any other."""

    path: str
    head: int
    entropy: float
    """Nats, the mean over queries."""
    distance: float
    """Tokens between a query and what it attends to."""
    importance: float | None
    """Mean of |∂L/∂ξ| (Michel et al. 2019), in nats a token; None of a model that predicts no tokens."""
    naive_error_rate: float | None
    """AER over the sentences with gold links; None without any, and outside of attention over the source."""
    shifted_error_rate: float | None


@dataclass
class HeadAtlas:
    """Sums over sentences, which are added one at a time."""

    count: int = 0
    aligned: int = 0
    """Sentences with gold links."""
    _sums: dict[HeadPlace, list[float]] = field(default_factory=dict)
    _importance: dict[HeadPlace, float] = field(default_factory=dict)
    _links: dict[HeadPlace, HeadLinks] = field(default_factory=dict)
    _gold: list[GoldLinks] = field(default_factory=list)

    def add(self, example: Example, gold: GoldLinks | None = None) -> None:
        """Measure every head on ``example``. Its trace needs the attention weights only (``*.weights``)."""
        importance = sentence_importance(example)
        for path, module in attentions(example.model).items():
            for head, weights in enumerate(example.trace[f"{path}.weights"][0].double().cpu().numpy()):
                sums = self._sums.setdefault((path, head), [0.0, 0.0])
                sums[0] += entropy(weights)
                sums[1] += distance(weights)
                if importance:
                    self._importance[path, head] = self._importance.get((path, head), 0.0) + importance[path, head]
            assert len(example.trace[f"{path}.weights"][0]) == module.n_heads
        if gold is not None:
            self._align(example, gold)
        self.count += 1

    def records(self) -> list[HeadRecord]:
        """A record for each head, in the order of the computation; nothing before the first sentence."""
        scores = {}
        if self._gold:
            scored = score_heads(list(self._links.values()), self._gold)
            scores = dict(zip(self._links, scored, strict=True))
        return [
            HeadRecord(
                path,
                head,
                sums[0] / self.count,
                sums[1] / self.count,
                self._importance[path, head] / self.count if self._importance else None,
                scores[path, head].naive.error_rate if (path, head) in scores else None,
                scores[path, head].shifted.error_rate if (path, head) in scores else None,
            )
            for (path, head), sums in self._sums.items()
        ]

    def _align(self, example: Example, gold: GoldLinks) -> None:
        attention = example_attention(example)
        if attention is None:
            return
        paths = cross_attentions(example)
        for one in head_links([attention]):
            if one.head is None:
                continue
            known = self._links.setdefault((paths[one.layer], one.head), HeadLinks(one.layer, one.head, [], []))
            known.naive.extend(one.naive)
            known.shifted.extend(one.shifted)
        self._gold.append(gold)
        self.aligned += 1


def sentence_importance(example: Example) -> Mapping[HeadPlace, float]:
    """|∂L/∂ξ| of each head by its place; empty for a model that predicts no tokens."""
    if token_projection(example.model) is None or not isinstance(example.model, Predictor):
        return {}
    inputs, device = Inputs.of(example), next(example.model.parameters()).device
    if example.task == "language" and len(example.source_ids) > 1:  # nothing is known to follow the last token
        predicts = torch.ones(1, len(example.source_ids), dtype=torch.bool, device=device)
        predicts[0, -1] = False
        inputs = inputs._replace(predicts=predicts)
    predicted = torch.tensor([list(example.predicted_ids)], device=device)
    measured = head_importance(example.model, inputs, predicted).importance
    return {
        (path, head): float(value)
        for path, row in zip(attentions(example.model), measured, strict=True)
        for head, value in enumerate(row.tolist())
    }
