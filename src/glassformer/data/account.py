"""What became of every line: kept, or dropped for one reason that is counted and whose first lines are named."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from glassformer.config import DataError
from glassformer.text import TextConfig

Reason = Literal["empty", "too_long", "length_ratio", "duplicate", "invalid_utf8", "malformed"]
REASONS: tuple[Reason, ...] = ("empty", "too_long", "length_ratio", "duplicate", "invalid_utf8", "malformed")
LINES_SHOWN = 5


@dataclass
class FileAccount:
    """The lines of one path: ``read`` = ``kept`` + the sum of ``dropped``."""

    path: str
    read: int = 0
    kept: int = 0
    truncated: int = 0  # of the kept ones
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    first_lines: dict[str, list[int]] = field(default_factory=lambda: {reason: [] for reason in REASONS})

    def drop(self, reason: Reason, line: int) -> None:
        """``line`` counts from 1. Lines may come out of order; the lowest are remembered."""
        self.dropped[reason] += 1
        lines = self.first_lines[reason]
        if len(lines) < LINES_SHOWN or line < lines[-1]:
            self.first_lines[reason] = sorted([*lines, line])[:LINES_SHOWN]

    def describe(self) -> str:
        parts = []
        for reason in REASONS:
            if count := self.dropped[reason]:
                lines = ", ".join(map(str, self.first_lines[reason])) + (", …" if count > LINES_SHOWN else "")
                parts.append(f"{reason} {count:,} (line {lines})")
        kept = f"{self.kept:,} kept" + (f" ({self.truncated:,} truncated)" if self.truncated else "")
        return f"{self.path}: {self.read:,} read, {kept}" + "".join(f", {part}" for part in parts)


@dataclass
class TokenAccount:
    """Tokens of the kept lines of one side, without the end-of-sentence tokens."""

    tokens: int = 0
    unknown: int = 0

    @property
    def unknown_rate(self) -> float:
        return self.unknown / self.tokens if self.tokens else 0.0


@dataclass
class Account:
    """Every line read, by file, and every token kept, by side."""

    files: list[FileAccount] = field(default_factory=list)
    source: TokenAccount = field(default_factory=TokenAccount)
    target: TokenAccount = field(default_factory=TokenAccount)

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
        """For printing: one line a file, then one on unknown tokens."""
        rates = ", ".join(
            f"{side}{tokens.unknown:,} of {tokens.tokens:,} ({tokens.unknown_rate:.2%})" for side, tokens in self._sides
        )
        return [*(file.describe() for file in self.files), f"unknown tokens: {rates}"]

    @property
    def _sides(self) -> tuple[tuple[str, TokenAccount], ...]:
        """With a word to stand before "tokens", where there are two."""
        return (("source ", self.source), ("target ", self.target)) if self.target.tokens else (("", self.source),)

    def to_json(self) -> dict[str, Any]:
        return {"read": self.read, "kept": self.kept, "dropped": self.dropped, **asdict(self)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Account":
        files = [FileAccount(**file) for file in values["files"]]
        return cls(files, TokenAccount(**values["source"]), TokenAccount(**values["target"]))

    @classmethod
    def total(cls, accounts: Iterable["Account"]) -> "Account":
        """One account over several corpora."""
        total = cls()
        for account in accounts:
            total.files += account.files
            for mine, other in ((total.source, account.source), (total.target, account.target)):
                mine.tokens += other.tokens
                mine.unknown += other.unknown
        return total
