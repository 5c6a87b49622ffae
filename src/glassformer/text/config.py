"""Configuration of tokenizers, stored with each of them."""

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from glassformer.config import Config

Kind = Literal["bpe", "word", "char", "bytes"]

SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
"""Padding, start of sentence, end of sentence, unknown symbol; their ids are 0, 1, 2, 3."""

MARKS = ("[CLS]", "[SEP]", "[MASK]")
"""Further special tokens of an encoder (Devlin et al. 2019, section 3)."""

BYTE_FALLBACK = False
"""Default of ``byte_fallback`` for kind bpe."""

_MARKED = re.compile(r"[<\[]/?\w+[>\]]")


class TextConfig(Config):
    """Configuration of a tokenizer."""

    kind: Kind = "bpe"
    """Byte-pair encoding, words, characters, or byte-level BPE (``bytes``), which is lossless."""
    vocab_size: int = Field(8000, gt=0)
    """Maximum number of entries, including special tokens and the 256 bytes of ``bytes`` and ``byte_fallback``."""
    merges: int | None = Field(None, ge=0)
    """Merges at most (bpe), where ``vocab_size`` has room for them. Not given: as many as fit."""
    min_frequency: int = Field(2, gt=0)
    """Minimum occurrences of a merge (bpe, bytes) or a word (word). With ``byte_fallback`` also of a character;
    otherwise every character is included."""
    byte_fallback: bool = False
    """Encode a character outside the vocabulary as its UTF-8 bytes instead of ``<unk>`` (bpe)."""
    joint: bool = True
    """One vocabulary for source and target, which a tied embedding needs (section 3.4)."""
    normalization: Literal["none", "nfc", "nfkc"] = Field(
        "nfc", description="Unicode form, stored and applied everywhere. Default for bytes: none."
    )
    lowercase: bool = Field(False, description="Lower-case text before anything else.")
    pre_tokenizer: Literal["punctuation", "whitespace"] = "punctuation"
    """``punctuation`` for raw text, ``whitespace`` for a corpus that is already tokenized. Used by bpe and word."""
    bpe_dropout: float = Field(0.0, ge=0.0, le=1.0)
    """Share of merges left out while training (Provilkov et al. 2020); 0.1 is their choice."""
    max_unknown_rate: float | None = Field(None, ge=0.0, le=1.0)
    """Maximum share of ``<unk>`` in a corpus. Default: 0.01; no limit for word."""
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

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_kind(cls, values: Any) -> Any:
        """Fill in the defaults that depend on the kind."""
        if not isinstance(values, dict):
            return values
        values = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}  # from JSON
        kind = values.get("kind", cls.model_fields["kind"].default)
        defaults: dict[str, Any] = {"normalization": "none"} if kind == "bytes" else {}
        return {**defaults, **({"byte_fallback": BYTE_FALLBACK} if kind == "bpe" else {}), **values}

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
    def _fits_the_kind(self) -> "TextConfig":
        if self.bpe_dropout and self.kind not in ("bpe", "bytes"):
            raise ValueError(
                f'bpe_dropout={self.bpe_dropout} needs kind="bpe" or "bytes", not "{self.kind}"; set it to 0'
            )
        if self.byte_fallback and self.kind != "bpe":
            known = "already has all bytes" if self.kind == "bytes" else "has no subwords"
            raise ValueError(f'byte_fallback=true needs kind="bpe": "{self.kind}" {known}; remove byte_fallback')
        signs = [name for name in self.extra_special if not re.search(r"[^\W_]", name)]
        if signs and self.kind == "bytes":  # the pre-tokenizer keeps punctuation together
            raise ValueError(f'{signs[0]!r} in extra_special has no letter, which kind="bytes" needs; rename it')
        return self


class ByteTextConfig(TextConfig):
    """Tokenizer configuration of a language model: byte-level BPE by default."""

    kind: Kind = "bytes"
    """``bytes`` is byte-level BPE, which is lossless, spaces and line ends included."""
