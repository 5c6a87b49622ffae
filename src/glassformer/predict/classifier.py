"""The class of a text, or of a pair of texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from glassformer.native import Engine, Precision
from glassformer.predict.encoder import Encoder, Text
from glassformer.predict.loading import load_run
from glassformer.predict.predictor import Prediction, predictions
from glassformer.text.errors import TextError


@dataclass(frozen=True, repr=False)
class Classifier(Encoder):
    """A classifier of texts with its labels."""

    labels: tuple[str, ...]

    @classmethod
    def load(
        cls, path: str | Path, device: str = "cpu", engine: Engine = "auto", precision: Precision = "float32"
    ) -> Self:
        """Load a run folder (its best checkpoint) or a checkpoint folder."""
        run = load_run(path, ("classification",), device)
        return cls(**cls._parts(run), labels=tuple(run.setting("labels")), engine=engine, precision=precision)

    def classify(self, texts: Sequence[Text]) -> list[Prediction]:
        """The label of each text, or of each (text, pair). An empty text is a ``DataError``."""
        model, encoded = self._form, self._encoded(texts)
        assert self.model.classes is not None
        for number, parts in enumerate(encoded, start=1):
            if not all(len(ids) for ids in parts):
                raise TextError("text", number, "is empty; give words to be classified")
        return self._rows(encoded, lambda *batch: predictions(model.classes(model.hidden(*batch)), self.labels))
