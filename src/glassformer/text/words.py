"""Pre-tokenization and its inverse: Unicode normalization, spaces, and punctuation split without losing a space.

Punctuation stands apart from words, so that ``dogs`` is the same word before a space and before a full stop. Where no
space stood, a joiner says so (the annotation of OpenNMT's tokenizer): ``T-Shirt.`` is ``T ￭-￭ Shirt ￭.``.
Everything on the way in runs in compiled code, as one pipeline of the ``tokenizers`` library.
"""

import re

from tokenizers import Regex, normalizers, pre_tokenizers

from glassformer.text.config import TextConfig

JOINER = "￭"
"""Mark of a side without a space. In a user's text it becomes ■, its compatibility equivalent: never ambiguous."""

END_OF_WORD = "</w>"
"""Displayed form of the end-of-word symbol of BPE. It is stored as a space, which can stand nowhere else in a word."""

_SPACES = Regex(r"[\s\p{Z}\p{Cc}]+")
# Accents, zero-width joiners and skin tones stay with the sign before them: ❤️ and 👩‍👩‍👧 are one unit each.
_ATTACHED = r"[\p{M}\x{200D}\x{1F3FB}-\x{1F3FF}]"
_BEFORE_SIGN = Regex(rf"(?<=[^ \x{{200D}}])(?!{_ATTACHED})(?=[\p{{P}}\p{{S}}])")
_AFTER_SIGN = Regex(rf"(?!{JOINER})[\p{{P}}\p{{S}}]{_ATTACHED}*+\K(?=[^ \p{{P}}\p{{S}}])")
_END_OF_TEXT = Regex(r"(?<=[^ ])\z")
_RUNS_OF_SPACES = re.compile(" +")


def normalizer(config: TextConfig) -> normalizers.Normalizer:
    """Text → words separated by single spaces, with joiners; for bpe a space ends every word, the last one too.

    ``char`` and ``bytes`` only normalize characters: their spaces and line ends are tokens or parts of tokens.
    """
    steps = _characters(config)
    if config.kind in ("bpe", "word"):
        steps = [normalizers.Replace(JOINER, "■"), *steps]
        steps += [normalizers.Replace(_SPACES, " "), normalizers.Strip()]
        steps += _punctuation() if config.pre_tokenizer == "punctuation" else _literal_specials(config)
    if config.kind == "bpe":
        steps.append(normalizers.Replace(_END_OF_TEXT, " "))
    return normalizers.Sequence(steps)


def pre_tokenizer(config: TextConfig) -> pre_tokenizers.PreTokenizer | None:
    """Cut the normalized text into words. For bpe each keeps the space after it, as its end-of-word symbol.

    For bytes, GPT-2's pattern: words, numbers or punctuation, each with the space before it, or runs of spaces.
    """
    if config.kind == "bytes":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if config.kind == "bpe":
        return pre_tokenizers.Split(" ", "merged_with_previous")
    return pre_tokenizers.Split(" ", "removed") if config.kind == "word" else None


def replace_lone_surrogates(text: str) -> str:
    """Half a surrogate pair, which no UTF-8 text can hold, becomes U+FFFD; all other text stays as it is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def join_words(text: str) -> str:
    """Undo the joiners: ``dogs ￭. `` → ``dogs.``; spaces at the ends and in runs go, as in normalized text."""
    text = text.replace(" " + JOINER, "").replace(JOINER + " ", "").replace(JOINER, "")
    return _RUNS_OF_SPACES.sub(" ", text).strip(" ")


def _characters(config: TextConfig) -> list[normalizers.Normalizer]:
    forms: dict[str, list[normalizers.Normalizer]] = {
        "none": [],
        "nfc": [normalizers.NFC()],
        "nfkc": [normalizers.NFKC()],
    }
    form = forms[config.normalization]
    # A lowered character may combine anew, and NFKC may bring capitals (㎒ → MHz): hence the form once more.
    return [*form, normalizers.Lowercase(), *form] if config.lowercase else form


def _punctuation() -> list[normalizers.Normalizer]:
    return [normalizers.Replace(_BEFORE_SIGN, " " + JOINER), normalizers.Replace(_AFTER_SIGN, JOINER + " ")]


def _literal_specials(config: TextConfig) -> list[normalizers.Normalizer]:
    """A word spelled like a special token, say ``<s>`` in a tokenized corpus, becomes ``<￭s>``: never the token itself.

    With ``punctuation`` this cannot happen, since brackets are set apart from names.
    """
    names = "|".join(re.escape(token[1:]) for token in config.special_tokens)
    if config.byte_fallback:
        names += "|0x[0-9A-F]{2}>"
    return [normalizers.Replace(Regex(rf"(?<=[<\[])(?={names})"), JOINER)]
