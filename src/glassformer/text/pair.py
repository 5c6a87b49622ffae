"""The two vocabularies of a translator, or one vocabulary twice, and the file ``tokenizer.json`` that holds them."""

import json
import os
from pathlib import Path
from typing import Any, Self

from glassformer.errors import CheckpointError, ConfigError
from glassformer.text.byte_level import KIND as BYTES
from glassformer.text.byte_level import ByteTokenizer
from glassformer.text.config import TextConfig
from glassformer.text.pretrained import KIND, PretrainedConfig, PretrainedTokenizer
from glassformer.text.tokenizer import FORMAT, Tokenizer, fingerprint, verify


def tokenizer_class(kind: str) -> type[Tokenizer]:
    """The tokenizer class for a vocabulary of ``kind`` trained by glassformer."""
    return ByteTokenizer if kind == BYTES else Tokenizer


class TokenizerPair:
    """``source`` and ``target``: the same object when the vocabulary is joint."""

    def __init__(
        self,
        config: TextConfig,
        source: Tokenizer,
        target: Tokenizer | None = None,
        document: dict[str, Any] | None = None,
    ) -> None:
        """``document`` is what the pair was read from. It is kept, so that a later version, whose configuration has
        more keys, writes the same file and finds the same fingerprint."""
        self.config = config
        self.source = source
        self.target = source if target is None else target
        if not document:
            content = self._content()
            document = {**content, "fingerprint": fingerprint(content)}
        self._document = document

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all that was chosen and learned."""
        return str(self._document["fingerprint"])

    def to_json(self) -> dict[str, Any]:
        return dict(self._document)

    @classmethod
    def from_json(cls, document: dict[str, Any], origin: str = "tokenizer") -> Self:
        """``CheckpointError`` when the document was edited or is no tokenizer; ``origin`` names it in the error."""
        verify(document, origin)
        try:
            if not isinstance(document["config"], dict):
                raise CheckpointError(f"{origin}: the tokenizer's config is not a JSON object; restore the original")
            is_pretrained = document["config"].get("kind") == KIND
            config = (PretrainedConfig if is_pretrained else TextConfig).parse_stored(document["config"], origin)
            tokenizer = PretrainedTokenizer if is_pretrained else tokenizer_class(config.kind)
            source = tokenizer.from_json(document["source"])
            target = tokenizer.from_json(document["target"]) if "target" in document else None
            if {config.kind} != {one.kind for one in (source, target) if one is not None}:
                raise CheckpointError(f"{origin}: the tokenizer's kind is not {config.kind}; restore the original")
        except (KeyError, ConfigError) as error:
            raise CheckpointError(f"{origin}: not a tokenizer of this version ({error}); train it again") from None
        return cls(config, source, target, document)

    def save(self, path: Path) -> None:
        """Write the file under a temporary name, then rename it, so that it is whole or not there."""
        unfinished = path.with_name(path.name + ".unfinished")
        unfinished.write_text(json.dumps(self.to_json(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        os.replace(unfinished, path)

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({error.strerror}); name a tokenizer.json") from None
        except ValueError as error:
            raise CheckpointError(f"{path}: not valid JSON ({error}); restore the original") from None
        return cls.from_json(document, str(path))

    def _content(self) -> dict[str, Any]:
        content = {"format": FORMAT, "config": self.config.model_dump(mode="json"), "source": self.source.to_json()}
        return content if self.target is self.source else {**content, "target": self.target.to_json()}
