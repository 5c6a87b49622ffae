"""What a tokenizer is to be: chosen before training, stored with it, and never guessed again."""

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from glassformer.config import Config

SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
"""Padding, start of sentence, end of sentence, unknown symbol; their ids are 0, 1, 2, 3."""

_MARKED = re.compile(r"[<\[]/?\w+[>\]]")


class TextConfig(Config):
    """How text becomes token ids."""

    kind: Literal["bpe", "word", "char"] = Field("bpe", description="byte-pair encoding, words or characters")
    vocab_size: int = Field(8000, gt=0)
    """Entries at most, special tokens included."""
    merges: int | None = Field(None, ge=0)
    """Merges at most (bpe), where ``vocab_size`` has room for them. Not given: as many as fit."""
    min_frequency: int = Field(2, gt=0)
    """Fewest occurrences of a merge (bpe) or a word (word). Characters are kept however rare they are."""
    joint: bool = True
    """One vocabulary for source and target, which a tied embedding needs (section 3.4)."""
    normalization: Literal["none", "nfc", "nfkc"] = Field(
        "nfc", description="Unicode form, stored and applied everywhere"
    )
    lowercase: bool = Field(False, description="before anything else")
    pre_tokenizer: Literal["punctuation", "whitespace"] = "punctuation"
    """``punctuation`` for raw text, ``whitespace`` for a corpus that is already tokenised. No effect on char."""
    bpe_dropout: float = Field(0.0, ge=0.0, le=1.0)
    """Share of merges left out while training (Provilkov et al. 2020); 0.1 is their choice."""
    max_unknown_rate: float | None = Field(None, ge=0.0, le=1.0)
    """Largest share of ``<unk>`` a corpus may have. Not given: 0.01 for bpe and char, no limit for word."""
    extra_special: tuple[str, ...] = ()
    """Further special tokens such as ``[MASK]``; their ids follow ``<unk>``."""

    @property
    def special_tokens(self) -> tuple[str, ...]:
        return SPECIAL_TOKENS + self.extra_special

    @property
    def unknown_rate_limit(self) -> float:
        """``max_unknown_rate`` with its default filled in."""
        if self.max_unknown_rate is not None:
            return self.max_unknown_rate
        return 1.0 if self.kind == "word" else 0.01

    @field_validator("extra_special")
    @classmethod
    def _marked_and_new(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for position, name in enumerate(names):
            if not _MARKED.fullmatch(name):
                raise ValueError(f"{name!r} does not look like a special token; write it as [NAME] or <name>")
            if name in SPECIAL_TOKENS or name in names[:position]:
                raise ValueError(f"{name!r} is a special token already; leave it out")
        return names

    @model_validator(mode="after")
    def _dropout_needs_merges(self) -> "TextConfig":
        if self.bpe_dropout and self.kind != "bpe":
            raise ValueError(f'bpe_dropout={self.bpe_dropout} needs kind="bpe", not "{self.kind}"; set it to 0')
        return self
