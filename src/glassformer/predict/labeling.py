"""The class of a text, or of a pair of texts, and a tag for every word of a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.data.token_classification import encode_words, fitting_words
from glassformer.data.token_store import Ragged
from glassformer.predict.encoder import Encoder, Text
from glassformer.predict.loading import LoadedRun
from glassformer.predict.predictor import Prediction, predictions
from glassformer.text.arguments import list_of_sentences
from glassformer.text.errors import TextError, warn_of_unknown


@dataclass(frozen=True, repr=False)
class Classifier(Encoder):
    """A classifier of texts with its labels."""

    tasks: ClassVar = ("classification",)
    labels: tuple[str, ...]

    @classmethod
    def _parts(cls, run: LoadedRun) -> dict[str, Any]:
        return super()._parts(run) | {"labels": tuple(run.setting("labels"))}

    def classify(self, texts: Sequence[Text]) -> list[Prediction]:
        """The label of each text, or of each (text, pair). An empty text is a ``DataError``."""
        model, encoded = self._form, self._encoded(texts)
        assert self.model.classes is not None
        for number, parts in enumerate(encoded, start=1):
            if not all(len(ids) for ids in parts):
                raise TextError("text", number, "is empty; give words to be classified")

        def labeled(*batch: Tensor) -> list[Prediction]:
            # One text at a time: the bits of PyTorch's product depend on its number of rows.
            first = model.hidden(*batch)[:, :1]
            return predictions(torch.cat([model.classes(one) for one in first.split(1)]), self.labels)

        return self._rows(encoded, labeled)


@dataclass(frozen=True, repr=False)
class Tagger(Encoder):
    """A tagger with its tags. A sentence that is too long to be seen whole is tagged in parts."""

    tasks: ClassVar = ("tagging",)
    tags: tuple[str, ...]

    @classmethod
    def _parts(cls, run: LoadedRun) -> dict[str, Any]:
        return super()._parts(run) | {"tags": tuple(run.setting("tags"))}

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """The tag of each word; a sentence is a list of words, or a text whose words stand between spaces."""
        return [[one.label for one in words] for words in self._predictions(sentences)]

    def predictions(self, sentences: Sequence[Sequence[str]]) -> list[list[Prediction]]:
        """The same with the probabilities of all tags."""
        return self._predictions(sentences)

    def _predictions(self, sentences: Sequence[Sequence[str]]) -> list[list[Prediction]]:
        words = list_of_sentences(sentences, "sentences")
        encoded = [encode_words(self.tokenizer, one) if one else [] for one in words]
        each = (
            (n, *pair)
            for n, one in enumerate(zip(words, encoded, strict=True), start=1)
            for pair in zip(*one, strict=True)
        )
        warn_of_unknown(self.tokenizer, "sentence", each, stacklevel=3)
        parts = [(i, part) for i, one in enumerate(zip(words, encoded, strict=True)) for part in self._cut(i, *one)]
        rows = self._rows([[part.values] for _, part in parts], self._logits)
        results: list[list[Prediction]] = [[] for _ in words]
        for (index, part), logits in zip(parts, rows, strict=True):
            results[index] += predictions(logits[1 + torch.from_numpy(part.offsets[:-1])], self.tags)  # 1: [CLS]
        return results

    def _cut(self, index: int, words: list[str], pieces: list[list[int]]) -> list[Ragged]:
        """Split a sentence into as few parts as possible; ``pieces`` are the ids of each word."""
        done, parts = 0, list[Ragged]()
        while done < len(pieces):
            part = fitting_words(pieces[done:], self.max_length)
            if not len(part):
                fault = (
                    f"has the word {words[done][:20]!r}… of {len(pieces[done])} tokens, more than the "
                    f"{self.max_length - 2} that the model sees; shorten it"
                )
                raise TextError("sentence", index + 1, fault)
            parts.append(part)
            done += len(part)
        return parts

    def _logits(
        self,
        tokens: Int[Tensor, "rows width"],
        mask: Bool[Tensor, "rows width"],
        segments: Int[Tensor, "rows width"],
    ) -> list[Float[Tensor, "_ tags"]]:
        assert self.model.tags is not None
        model = self._form
        hidden = model.hidden(tokens, mask, segments)
        # One text at a time, without padding: the bits of PyTorch's product depend on its number of rows.
        each = zip(hidden, mask.sum(1).tolist(), strict=True)
        return [model.tags(row[None, :length])[0].cpu() for row, length in each]
