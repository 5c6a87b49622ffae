"""A folder to write text in, and vocabularies in which a word is a token, so that lengths are known."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from glassformer.data import DataConfig
from glassformer.text import TextConfig, TokenizerPair, train_tokenizers

WORDS = [f"w{number}" for number in range(50)]


@pytest.fixture(scope="session")
def tokenizers() -> TokenizerPair:
    """Two vocabularies of the words w0 … w49."""
    config = TextConfig(kind="word", min_frequency=1, joint=False)
    return train_tokenizers(config, lambda: iter(WORDS), lambda: iter(WORDS[::-1]))


@pytest.fixture
def make_config(tmp_path: Path) -> Callable[..., DataConfig]:
    def make(path: str = "train", **values: object) -> DataConfig:
        train = values.pop("train", [str(tmp_path / path)])
        return DataConfig.parse(
            {"source": "en", "target": "de", "train": train, "cache": str(tmp_path / "cache"), **values}
        )

    return make


@pytest.fixture
def write_pairs(tmp_path: Path) -> Callable[..., str]:
    """Writes the two files of a parallel corpus, gives its path."""

    def write(pairs: Sequence[tuple[str, str]], name: str = "train") -> str:
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (tmp_path / f"{name}.{language}").write_bytes(text.encode())
        return str(tmp_path / name)

    return write
