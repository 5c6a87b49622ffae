"""COMET scores from a local model folder (Rei et al. 2020), with the extra ``glassformer[comet]``.

A COMET checkpoint is a pickle, and loading a pickle can run arbitrary code. glassformer itself does not read pickles,
but the COMET library does. Use only folders that you trust.
"""

import logging
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import ConfigError, DataError
from glassformer.models.device import choose_device

FILES = ("checkpoints/model.ckpt", "hparams.yaml")


class Comet:
    """Mean score of a COMET model, on the scale of the model, mostly 0 to 1 (``CorpusMetric``).

    ``folder`` is a model that was downloaded before; nothing is downloaded here. The encoder in its ``hparams.yaml``
    must be in the Hugging Face cache. ``sources`` are in the order of the hypotheses and references.
    """

    def __init__(self, folder: str | Path, sources: Sequence[str], device: str = "cpu", batch_size: int = 16) -> None:
        self.folder, self.sources, self.batch_size = Path(folder), list(sources), batch_size
        self._known: dict[tuple[tuple[str, ...], tuple[str, ...]], NDArray[Any]] = {}
        self.gpus = int(choose_device(device).type == "cuda")
        for name in FILES:
            if not (self.folder / name).is_file():
                raise DataError(f"{folder}: has no {name}; choose the folder of a downloaded COMET model")
        try:
            self.library = import_module("comet")
        except ModuleNotFoundError as error:
            lacks = "" if error.name == "comet" else f" completely: module {error.name!r} is missing"
            raise ConfigError(
                f"COMET is not installed{lacks}; pip install 'glassformer[comet]', or leave out --comet"
            ) from None
        for name in ("comet", "pytorch_lightning"):  # they log advertisements and progress
            logging.getLogger(name).setLevel(logging.WARNING)
        try:
            self.model = self.library.load_from_checkpoint(str(self.folder / FILES[0]), local_files_only=True)
        except Exception as error:  # COMET's dependencies raise many types
            fault = " ".join(str(error).split()) or type(error).__name__
            raise DataError(f"{folder}: COMET cannot load the model ({fault}); choose another") from error

    def counts(self, hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[Any]:
        """The score of each sentence, and a count of 1. Scores are cached, since a model takes minutes."""
        key = tuple(hypotheses), tuple(references)
        if key not in self._known:
            self._known[key] = self._predicted(hypotheses, references)
        return self._known[key]

    def _predicted(self, hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[Any]:
        triples = zip(self.sources, hypotheses, references, strict=True)
        samples = [{"src": source, "mt": hypothesis, "ref": reference} for source, hypothesis, reference in triples]
        with warnings.catch_warnings():
            for category in (DeprecationWarning, FutureWarning):  # from COMET's dependencies
                warnings.simplefilter("ignore", category)
            predicted = self.model.predict(
                samples, batch_size=self.batch_size, gpus=self.gpus, progress_bar=False, num_workers=0
            )
        scores = np.array(predicted.scores, np.float64)
        if not np.isfinite(scores).all():
            line = int(np.flatnonzero(~np.isfinite(scores))[0]) + 1
            raise DataError(f"{self.folder}: COMET scores sentence {line} as {scores[line - 1]}; use another model")
        return np.stack([scores, np.ones(len(scores))], axis=1)

    def score(self, counts: NDArray[Any]) -> float:
        total, sentences = counts.tolist()
        return float(total / sentences)

    def signature(self, **further: Any) -> str:
        values = {"nrefs": 1, "model": self.folder.resolve().name, **further, "version": self.library.__version__}
        return "|".join(f"{name}:{value}" for name, value in values.items())
