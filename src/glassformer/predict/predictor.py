"""Models that compute without a search: engine, precision, and labels with their probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.native import Accelerated, Engine, Precision, check_decoding
from glassformer.predict.loading import LoadedRun, load_run


@dataclass(frozen=True, repr=False, kw_only=True)
class Predictor:
    """A model in use. Subclasses have the field ``model``."""

    tasks: ClassVar[tuple[str, ...]] = ()
    """Tasks whose runs it loads."""

    engine: Engine = "auto"
    precision: Precision = "float32"
    """``int8``: products of matrices in eight bits, on CPUs; ``bfloat16``: on GPUs."""
    path: Path | None = field(default=None, compare=False)
    """The checkpoint that the model was loaded from, if any."""

    @classmethod
    def load(
        cls, path: str | Path, device: str = "cpu", engine: Engine = "auto", precision: Precision = "float32"
    ) -> Self:
        """Load a run folder (its best checkpoint) or a checkpoint folder."""
        return cls(**cls._parts(load_run(path, cls.tasks, device)), engine=engine, precision=precision)

    @classmethod
    def _parts(cls, run: LoadedRun) -> dict[str, Any]:
        """Values of the fields but ``engine`` and ``precision``."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        check_decoding(self._model, self.engine, self.precision, self.device)

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self._model.parameters()).device
        return device

    def refresh(self) -> None:
        """Read the weights of ``model`` again, after they were written."""
        self._accelerated.refresh()

    @property
    def _model(self) -> Any:
        return getattr(self, "model")  # noqa: B009 - a field of the subclasses, of their own type

    @cached_property
    def _accelerated(self) -> Accelerated:
        return Accelerated(self._model)

    @property
    def _form(self) -> Any:
        """The model in the form that computes fastest with these settings; the model itself for a trace or hooks."""
        return self._accelerated.form(self.engine, self.precision)


@dataclass(frozen=True)
class Prediction:
    """``probabilities`` by label, the most probable first."""

    probabilities: dict[str, float]

    @property
    def label(self) -> str:
        return next(iter(self.probabilities))

    @property
    def probability(self) -> float:
        return self.probabilities[self.label]


def predictions(logits: Float[Tensor, "rows classes"], labels: Sequence[str]) -> list[Prediction]:
    """The softmax of each row; equals in the order of ``labels``."""
    values, order = torch.sort(logits.float().softmax(-1), dim=-1, descending=True, stable=True)
    rows = zip(values.tolist(), order.tolist(), strict=True)
    return [Prediction({labels[index]: value for value, index in zip(*row, strict=True)}) for row in rows]
