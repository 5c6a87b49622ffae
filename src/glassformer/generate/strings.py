"""Decoding settings that are text: stop strings and logit biases, checked against a vocabulary."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from glassformer.errors import ConfigError
from glassformer.text import Tokenizer

ID = re.compile(r"#([0-9]+)")


@dataclass(frozen=True)
class StopStrings:
    """Stop strings: a text ends before the first occurrence of any of ``strings``.

    The result depends on the text alone, not on its tokenization.
    """

    strings: tuple[str, ...]

    def cut(self, text: str) -> int | None:
        """Index of the first occurrence in ``text``; None without one."""
        return min((start for one in self.strings if (start := text.find(one)) >= 0), default=None)

    def open(self, text: str) -> int:
        """Index at which a partial stop string starts at the end of ``text``; the length of ``text`` without one."""
        longest = max(map(len, self.strings), default=1)
        for start in range(max(0, len(text) - longest + 1), len(text)):
            if any(len(one) > len(text) - start and one.startswith(text[start:]) for one in self.strings):
                return start
        return len(text)

    def complete(self, text: str) -> bool:
        """True if ``text`` contains a stop string, and no other that started earlier may still be completed."""
        cut = self.cut(text)
        return cut is not None and cut <= self.open(text)


def stop_strings(strings: tuple[str, ...], tokenizer: Tokenizer) -> StopStrings:
    """Check ``strings``; raise ``ConfigError`` for one that no text of this vocabulary can contain."""
    for one in strings:
        if not _can_occur(one, tokenizer):
            read = tokenizer.decode(tokenizer.encode(f"x{one}x"))
            raise ConfigError(
                f"stop={one!r} can never occur: this vocabulary reads {f'x{one}x'!r} as {read!r}; "
                "choose a string of its characters"
            )
    return StopStrings(strings)


def _can_occur(text: str, tokenizer: Tokenizer) -> bool:
    """True if ``text`` survives encoding: alone, beside a word (which keeps a space) or, with word tokens, in one."""
    if text in tokenizer.decode(tokenizer.encode(text)):
        return True
    pieces = [tokenizer.decode([id]).strip() for id in range(tokenizer.vocab_size)]
    word = next((one for one in pieces if one.isalpha()), "")
    beside = [word + text, text + word, word + text + word]
    if any(text in tokenizer.decode(tokenizer.encode(one)) for one in beside):
        return True
    written = {character for piece in pieces for character in piece} | {" "}
    return tokenizer.kind == "word" and set(text) <= written and any(text in tokenizer.normalize(x) for x in beside)


def token_biases(biases: Mapping[str, float], tokenizer: Tokenizer) -> dict[int, float]:
    """Biases by token id; raise ``ConfigError`` for a key that is not one token."""
    by_id: dict[int, float] = {}
    for key, value in biases.items():
        id = _one_token(key, tokenizer)
        by_id[id] = by_id.get(id, 0.0) + value
    return by_id


def _one_token(key: str, tokenizer: Tokenizer) -> int:
    if numbered := ID.fullmatch(key):
        if (id := int(numbered[1])) < tokenizer.vocab_size:
            return id
        raise ConfigError(
            f"logit_bias: {key} is not in this vocabulary; its ids go from #0 to #{tokenizer.vocab_size - 1}"
        )
    if key in tokenizer.special_tokens:
        return tokenizer.special_tokens[key]
    ids = tokenizer.encode(key)
    if len(ids) == 1 and ids[0] != tokenizer.unknown_id:
        return ids[0]
    if tokenizer.unknown_id in ids or not ids:
        raise ConfigError(f"logit_bias: {key!r} is not in this vocabulary; choose a token of it, or #id")
    named = ", ".join(f"{token!r} (#{id})" for token, id in zip(tokenizer.tokens(ids), ids, strict=True))
    raise ConfigError(f"logit_bias: {key!r} is {len(ids)} tokens; choose one of them: {named}")
