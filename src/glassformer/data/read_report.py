"""Counts of lines that were kept or dropped, by reason, with the numbers of the first dropped lines."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import DataError
from glassformer.text import TextConfig

Reason = Literal["empty", "too_long", "length_ratio", "duplicate", "invalid_utf8", "malformed"]
REASONS: tuple[Reason, ...] = ("empty", "too_long", "length_ratio", "duplicate", "invalid_utf8", "malformed")
MAX_LINES = 5
MAX_FILES = 10
MAX_CHARACTERS = 3
CHARACTERS_STORED = 10


@dataclass
class FileReadReport:
    """The lines of one path: ``read`` = ``kept`` + ``held_out`` + the sum of ``dropped``."""

    path: str
    read: int = 0
    kept: int = 0
    truncated: int = 0  # of the kept ones
    held_out: int = 0  # for validation, by data.validation_share
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    first_lines: dict[str, list[int]] = field(default_factory=lambda: {reason: [] for reason in REASONS})

    def drop(self, reason: Reason, line: int) -> None:
        """``line`` counts from 1. Lines may come out of order; the lowest are remembered."""
        self.dropped[reason] += 1
        lines = self.first_lines[reason]
        if len(lines) < MAX_LINES or line < lines[-1]:
            self.first_lines[reason] = sorted([*lines, line])[:MAX_LINES]

    def add(self, other: "FileReadReport") -> None:
        """Add the counts of further lines of the same path."""
        self.read += other.read
        self.kept += other.kept
        self.truncated += other.truncated
        self.held_out += other.held_out
        for reason in REASONS:
            self.dropped[reason] += other.dropped[reason]
            self.first_lines[reason] = sorted([*self.first_lines[reason], *other.first_lines[reason]])[:MAX_LINES]

    def describe(self) -> str:
        parts = []
        for reason in REASONS:
            if count := self.dropped[reason]:
                lines = ", ".join(map(str, self.first_lines[reason])) + (", …" if count > MAX_LINES else "")
                parts.append(f"{reason} {count:,} (line {lines})")
        if self.held_out:
            parts.insert(0, f"{self.held_out:,} held out for validation")
        kept = f"{self.kept:,} kept" + (f" ({self.truncated:,} truncated)" if self.truncated else "")
        return f"{self.path}: {self.read:,} read, {kept}" + "".join(f", {part}" for part in parts)


@dataclass
class TokenReadReport:
    """Tokens of the kept lines of one side, without the end-of-sentence tokens."""

    tokens: int = 0
    unknown: int = 0
    compared: int = 0  # characters of text that was compared with its decoded tokens
    lost: int = 0  # compared characters that are missing from the decoded text
    lost_most: dict[str, int] = field(default_factory=dict)  # counts of the most frequent lost characters

    @property
    def unknown_rate(self) -> float:
        return self.unknown / self.tokens if self.tokens else 0.0

    def count(self, ids: NDArray[np.integer], unknown_id: int) -> None:
        self.tokens += len(ids)
        self.unknown += int(np.count_nonzero(ids == unknown_id))

    def compare(self, text: str, decoded: str) -> None:
        """Count the characters of ``text`` that ``decoded`` lacks; decoding does not change their order."""
        self.compared += len(text)
        if decoded != text:
            lost = Counter(text) - Counter(decoded)
            self.lost += lost.total()
            self._store(lost)

    def add(self, other: "TokenReadReport") -> None:
        self.tokens += other.tokens
        self.unknown += other.unknown
        self.compared += other.compared
        self.lost += other.lost
        self._store(other.lost_most)

    def describe_lost(self, side: str) -> str:
        """Report characters lost by encoding and decoding."""
        frequent = sorted(self.lost_most.items(), key=lambda item: (-item[1], item[0]))[:MAX_CHARACTERS]
        most = ", ".join(f"{character!r} {count:,}" for character, count in frequent)
        return (
            f"{side}characters lost by encoding and decoding: {self.lost:,} of {self.compared:,} compared "
            f"({self.lost / self.compared:.2%}), most often {most}"
        )

    def _store(self, lost: dict[str, int]) -> None:
        counts = Counter(self.lost_most)
        counts.update(lost)
        self.lost_most = dict(sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:CHARACTERS_STORED])


@dataclass
class ReadReport:
    """Every line read, by file, and every token kept, by side."""

    files: list[FileReadReport] = field(default_factory=list)
    source: TokenReadReport = field(default_factory=TokenReadReport)
    target: TokenReadReport = field(default_factory=TokenReadReport)

    @property
    def read(self) -> int:
        return sum(file.read for file in self.files)

    @property
    def kept(self) -> int:
        return sum(file.kept for file in self.files)

    @property
    def dropped(self) -> dict[str, int]:
        """Lines by reason, over all files."""
        return {reason: sum(file.dropped[reason] for file in self.files) for reason in REASONS}

    def check_unknown(self, config: TextConfig, kept_from: str | None = None) -> None:
        """Raise ``DataError`` when a vocabulary covers its side badly: see ``text.max_unknown_rate``.

        ``kept_from`` is the ``train.start_from`` that the vocabulary was taken from, where it was.
        """
        limit = config.unknown_rate_limit
        whose = f"the vocabulary of train.start_from={kept_from}" if kept_from else "the vocabulary"
        other = "start from a run that knows them" if kept_from else "raise text.vocab_size, lower text.min_frequency"
        for side, tokens in self._sides:
            if tokens.unknown_rate > limit:
                raise DataError(
                    f"{tokens.unknown_rate:.2%} of the {side}tokens are unknown to {whose}, more than "
                    f"text.max_unknown_rate={limit:g}; {other}, or raise text.max_unknown_rate to accept it"
                )

    def lines(self) -> list[str]:
        """Lines to print: one per file, one on unknown tokens, and one per side with lost characters."""
        rates = ", ".join(
            f"{side}{tokens.unknown:,} of {tokens.tokens:,} ({tokens.unknown_rate:.2%})" for side, tokens in self._sides
        )
        lost = [tokens.describe_lost(side) for side, tokens in self._sides if tokens.lost]
        return [*self.file_lines(), f"unknown tokens: {rates}", *lost]

    def nothing_left(self, what: str, remedy: str) -> DataError:
        """Error if no ``what`` (document, pair) of the files was kept."""
        return DataError(f"no {what} is left ({'; '.join(self.file_lines())}); {remedy}")

    def file_lines(self) -> list[str]:
        """One line per file; for many files, the total and the first files with lines that were not kept."""
        if len(self.files) <= MAX_FILES:
            return [file.describe() for file in self.files]
        dropped = "".join(f", {reason} {count:,}" for reason, count in self.dropped.items() if count)
        faulty = [file.describe() for file in self.files if file.kept < file.read]
        more = [f"and {len(faulty) - MAX_FILES:,} more files"] if len(faulty) > MAX_FILES else []
        total = f"{len(self.files):,} files: {self.read:,} read, {self.kept:,} kept{dropped}"
        return [total, *faulty[:MAX_FILES], *more]

    @property
    def _sides(self) -> tuple[tuple[str, TokenReadReport], ...]:
        """With a word to stand before "tokens", where there are two."""
        return (("source ", self.source), ("target ", self.target)) if self.target.tokens else (("", self.source),)

    def to_json(self) -> dict[str, Any]:
        return {"read": self.read, "kept": self.kept, "dropped": self.dropped, **asdict(self)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "ReadReport":
        files = [FileReadReport(**file) for file in values["files"]]
        return cls(files, TokenReadReport(**values["source"]), TokenReadReport(**values["target"]))

    @classmethod
    def total(cls, accounts: Iterable["ReadReport"]) -> "ReadReport":
        """One account over several corpora."""
        total = cls()
        for account in accounts:
            total.files += account.files
            total.source.add(account.source)
            total.target.add(account.target)
        return total
