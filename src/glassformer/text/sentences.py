"""Split long texts at sentence ends, and join the translations of the pieces."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from unicodedata import combining

from glassformer.errors import DataError

# A run of stops is matched once, from its start: a text may consist of thousands of dots.
_CLOSING = r"[\"'”’»)\]}」』）】]*"
_SENTENCE_END = re.compile(rf"(?P<stop>(?<![.!?…؟।])[.!?…؟।]++){_CLOSING}\s+|[。！？｡]+{_CLOSING}\s*|\n\s*")
_CLAUSE_END = re.compile(rf"(?<![.!?…;:,،؛])[.!?…;:,،؛]++{_CLOSING}\s+|[、，；：]+\s*")
_SPACES = re.compile(r"\s+")
_LAST_WORD = re.compile(r"\w+\Z")
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\w+",
        "mr mrs ms dr prof st jr sr vs etc inc ltd no vol fig pp mme nr bzw usw ca vgl hr fr str tj např ul",
    )
)
_JOINS_CHARACTERS = "\u200c\u200d\ufe0e\ufe0f"
# Thai, Lao, Burmese, Khmer; Chinese and Japanese with their punctuation. Korean has spaces.
_WITHOUT_SPACES = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff9f"
    r"\U00020000-\U0003ffff]"
)


def split_text(text: str, limit: int, length: Callable[[str], int]) -> list[str]:
    """Split ``text`` into pieces with a ``length`` of at most ``limit``; ``"".join(pieces) == text``.

    A text within the limit is one piece. A longer text is split into sentences, since translators are trained on
    sentences. A sentence that is too long is split at stops before lower-case letters too. A sentence that is still
    too long is halved until it fits: at the end of a clause or a space in its middle half, at any space, or else
    between two characters.

    Raises ``DataError`` if a single character is longer than ``limit``.
    """
    if length(text) <= limit:
        return [text]
    match = [
        part
        for sentence in sentences(text)
        for part in ([sentence] if length(sentence) <= limit else sentences(sentence, before_small=True))
    ]
    return [piece for sentence in match for piece in _halved(sentence, limit, length)]


def sentences(text: str, before_small: bool = False) -> list[str]:
    """Split ``text`` after each sentence and the spaces that follow it.

    A stop before a lower-case letter does not end a sentence, unless ``before_small``. Nor does a full stop after a
    single letter (initials) or a frequent abbreviation.
    """
    ends = [match.end() for match in _SENTENCE_END.finditer(text) if _ends_sentence(text, match, before_small)]
    return _cut(text, ends)


def join_texts(translations: Iterable[str], pieces: Iterable[str]) -> str:
    """Join the ``translations`` of ``pieces`` into one text, with spaces between them.

    There is no space next to a script without spaces (Chinese, Japanese, Thai, …), or where a word was split.
    """
    return joined_texts(translations, pieces)[0]


def joined_texts(translations: Iterable[str], pieces: Iterable[str]) -> tuple[str, list[int]]:
    """The text of ``join_texts``, and the offset of each translation in it."""
    parts, starts, size = list[str](), list[int](), 0
    last, glued = "", True
    for translation, piece in zip(translations, pieces, strict=True):
        if translation:
            apart = last and not glued and not any(map(_WITHOUT_SPACES.match, (last, translation[0])))
            parts += [" " * bool(apart), translation]
            size += len(parts[-2])
            last, glued = translation[-1], True
        starts.append(size)
        size += len(translation)
        glued = glued and ends_in_word(piece)
    return "".join(parts), starts


def words_before(text: str, offsets: Sequence[int]) -> list[int]:
    """Number of space-separated words in ``text`` that end before each offset in ``places``."""
    begins = [match.start() for match in re.finditer(r"\S+", text)]
    inside = [0 < offset < len(text) and not text[offset - 1].isspace() for offset in offsets]
    return [bisect_left(begins, offset) - within for offset, within in zip(offsets, inside, strict=True)]


def ends_in_word(piece: str) -> bool:
    """True if the last word of ``piece`` continues in the next piece."""
    return bool(_LAST_WORD.search(piece[-1:])) and not _WITHOUT_SPACES.match(piece[-1:])


def _ends_sentence(text: str, match: re.Match[str], before_small: bool) -> bool:
    if match["stop"] is None:
        return True
    if not before_small and text[match.end() : match.end() + 1].islower():
        return False
    word = _LAST_WORD.search(text, max(0, match.start() - 12), match.start())
    if match["stop"] != "." or word is None:
        return True
    return not (word[0].lower() in _ABBREVIATIONS or (len(word[0]) == 1 and word[0].isalpha()))


def _halved(text: str, limit: int, length: Callable[[str], int]) -> Iterator[str]:
    if length(text) <= limit:
        yield text
        return
    if len(text) < 2:
        raise DataError(f"max_source={limit} is less than the {length(text)} tokens of {text!r}; raise it")
    for part in _cut(text, [_middle(text)]):
        yield from _halved(part, limit, length)


def _middle(text: str) -> int:
    """Best offset near the middle of ``text`` at which to split it."""
    size = len(text)
    half = range(size // 4, size - size // 4 + 1)
    for pattern, allowed in ((_CLAUSE_END, half), (_SPACES, half), (_SPACES, range(1, size))):
        ends = [match.end() for match in pattern.finditer(text) if match.end() in allowed and match.end() < size]
        if ends:
            return min(ends, key=lambda end: abs(2 * end - size))
    cut = size // 2
    while cut < size - 1 and (text[cut - 1] == "\u200d" or text[cut] in _JOINS_CHARACTERS or combining(text[cut])):
        cut += 1
    return cut


def _cut(text: str, ends: Sequence[int]) -> list[str]:
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True) if start < end]
