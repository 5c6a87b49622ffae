"""Hidden tokens told from what stands around them (Devlin et al. 2019, section 3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.data.sequences import special_id
from glassformer.errors import ConfigError
from glassformer.predict.encoder import Encoder
from glassformer.text import Tokenizer
from glassformer.text.arguments import list_of_texts
from glassformer.text.errors import TextError, warn_of_unknown

MASK = "[MASK]"
STAND_IN = "\ue000"
"""Stands where ``[MASK]`` was written, so that what is beside it is cut into words as beside any word: a letter of
nobody's, and so unknown."""


@dataclass(frozen=True)
class Candidate:
    """Candidate for a mask: ``token`` is the vocabulary entry, ``text`` its readable form."""

    token: str
    text: str
    probability: float


@dataclass(frozen=True)
class Filled:
    """For every mask of a text its candidates, the most probable first; ``text`` is as given, with the first in each
    place: what the vocabulary does not know, or writes otherwise, stays as it was."""

    text: str
    blanks: list[list[Candidate]]


@dataclass(frozen=True, repr=False)
class Filler(Encoder):
    """A masked language model. ``[MASK]`` in a text is the mask token, here and nowhere else."""

    tasks: ClassVar = ("masked",)

    def fill(self, texts: Sequence[str], top: int = 5) -> list[Filled]:
        """The ``top`` candidates for every ``[MASK]`` of each text; special tokens are none.

        Raises ``DataError`` for a text without a mask, and for one that is too long to be seen whole.
        """
        texts = list_of_texts(texts, "texts")
        if top < 1:
            raise ConfigError(f"top={top} is not a number of candidates; choose 1 or more")
        ids = [self._with_masks(number, text) for number, text in enumerate(texts, start=1)]
        each = ((number, text.replace(MASK, " "), one) for number, (text, one) in enumerate(zip(texts, ids), start=1))
        warn_of_unknown(self.tokenizer, "text", each, stacklevel=2)
        found = self._rows([[one] for one in ids], partial(self._candidates, top))
        return [self._filled(*pair) for pair in zip(texts, found, strict=True)]

    def _with_masks(self, number: int, text: str) -> list[int]:
        if MASK not in text:
            raise TextError("text", number, f'has no {MASK}; write one in place of a word, as in "A {MASK} runs."')
        ids = encode_with_masks(self.tokenizer, text)
        if len(ids) + 2 > self.max_length:
            fault = f"has {len(ids) + 2} tokens, more than the {self.max_length} that the model sees; shorten it"
            raise TextError("text", number, fault)
        return ids

    def _candidates(
        self,
        top: int,
        tokens: Int[Tensor, "rows width"],
        mask: Bool[Tensor, "rows width"],
        segments: Int[Tensor, "rows width"],
    ) -> list[Float[Tensor, "masks 2 top"]]:
        """Most probable ids of each mask of a row, with their probabilities."""
        assert self.model.transform is not None and self.model.output_projection is not None
        model = self._form
        hidden = model.hidden(tokens, mask, segments)
        special = torch.tensor(sorted(set(self.tokenizer.special_tokens.values())), device=tokens.device)
        results = []
        for row, ids in zip(hidden, tokens, strict=True):
            places = ids == special_id(self.tokenizer, MASK)
            logits = model.output_projection(model.transform(row[places])).float()
            probabilities = logits.softmax(-1).index_fill(1, special, -1.0)
            count = min(top, probabilities.size(1) - len(special))
            values, best = probabilities.topk(count, dim=-1)
            results.append(torch.stack([best.to(values.dtype), values], dim=1).cpu())
        return results

    def _filled(self, text: str, found: Float[Tensor, "masks 2 top"]) -> Filled:
        tokenizer, blanks = self.tokenizer, []
        for entries, values in found.tolist():
            chosen = [int(entry) for entry in entries]
            rows = zip(tokenizer.tokens(chosen), chosen, values, strict=True)
            blanks.append([Candidate(token, tokenizer.decode([id]), value) for token, id, value in rows])
        begin, *rest = text.split(MASK)
        pairs = zip(blanks, rest, strict=True)
        return Filled(begin + "".join(f"{candidates[0].text}{after}" for candidates, after in pairs), blanks)


def encode_with_masks(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of ``text``, in which ``[MASK]`` is the mask token. (Elsewhere text that looks like a token is text.)"""
    pieces = text.split(MASK)
    stand_in, mask = tokenizer.encode(STAND_IN), special_id(tokenizer, MASK)
    alone = tokenizer.unknown_id in stand_in
    last = len(pieces) - 1
    ids: list[int] = []
    for place, piece in enumerate(pieces):
        before, after = alone and place > 0, alone and place < last
        part = tokenizer.encode(STAND_IN * before + piece + STAND_IN * after)
        if before:
            part = part[len(stand_in) if part[: len(stand_in)] == stand_in else 1 :]
        ids += part[: len(part) - len(stand_in)] if after else part
        ids += [mask] * (place < last)
    return ids
