"""Conversion of our tokenizers to ``tokenizer.json`` with identical encoding and decoding, and back."""

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tokenizers
from tokenizers import Regex, decoders, processors

from glassformer.errors import CheckpointError
from glassformer.interop.folder import read_json, read_optional
from glassformer.interop.sentencepiece import read_sentencepiece, unigram_pipeline
from glassformer.text import Tokenizer, TokenizerPair
from glassformer.text.allowed import library_errors
from glassformer.text.config import MARKS
from glassformer.text.pretrained import KIND, PretrainedConfig, PretrainedTokenizer, entries_by_id
from glassformer.text.words import JOINER

SOURCE_PIECES, TARGET_PIECES = "source.spm", "target.spm"

Around = Literal["end", "document", "marks", "nothing"]
"""Special tokens around a text.

``end``: the end token after it; ``document``: the end token before it, as between documents; ``marks``: ``[CLS]``
before and ``[SEP]`` after each; ``nothing``: those of the pipeline itself.
"""


@dataclass(frozen=True)
class Pipeline:
    """A ``tokenizer.json`` and its settings, before its special tokens are assigned to roles."""

    document: dict[str, Any]
    entries: list[str] | None
    """All entries of the model, if it has more than the pipeline."""
    settings: dict[str, Any]
    encoder: tokenizers.Tokenizer
    origin: Path

    def special(self, name: str, default: str | None = None) -> int | None:
        """Id of the special token ``name`` in ``tokenizer_config.json`` (``unk_token``), or of ``default``."""
        entry = self.settings.get(name) or default
        entry = entry.get("content") if isinstance(entry, dict) else entry
        return None if entry is None else self.encoder.token_to_id(entry)

    def unknown(self) -> int | None:
        """Id of the unknown token."""
        id = self.special("unk_token", self.document["model"].get("unk_token"))
        return self.document["model"].get("unk_id") if id is None else id

    def around(self) -> list[int]:
        """Ids that the pipeline adds around a text."""
        return [int(id) for id in self.encoder.encode("", add_special_tokens=True).ids]


def to_tokenizer_json(tokenizer: Tokenizer, around: Around = "end") -> tokenizers.Tokenizer:
    """Convert ``tokenizer``, with special tokens ``around`` a text and a decoder that gives exactly the same text."""
    document = copy.deepcopy(tokenizer.to_json()["pipeline"])
    pretrained = tokenizer.kind == KIND
    if pretrained and document["model"]["type"] == "Unigram":
        del document["model"]["vocab"][tokenizer.vocab_size :]
    converted = tokenizers.Tokenizer.from_str(json.dumps(document))
    if not pretrained:
        converted.decoder = _decoder(tokenizer.kind, document["model"].get("byte_fallback", False))
        converted.add_special_tokens(
            [tokenizers.AddedToken(name, normalized=False, special=True) for name in tokenizer.special_tokens]
        )
    if template := _template(tokenizer, converted, around):
        converted.post_processor = template
    converted.encode_special_tokens = True
    return converted


def write_sides(pair: TokenizerPair, folder: Path) -> None:
    """Write ``source.json`` and ``target.json`` for the library ``tokenizers``."""
    for side, tokenizer in (("source", pair.source), ("target", pair.target)):
        to_tokenizer_json(tokenizer).save(str(folder / f"{side}.json"))


def named_special(tokenizer: Tokenizer, converted: tokenizers.Tokenizer, name: str) -> str | None:
    """Entry of ``converted`` for our special token ``name``; None if it is not special there."""
    id = tokenizer.special_tokens[name]
    special = {index for index, token in converted.get_added_tokens_decoder().items() if token.special}
    return str(converted.id_to_token(id)) if id in special else None


def count_unused_pieces(tokenizer: Tokenizer) -> int:
    """Number of pipeline entries beyond the vocabulary of the model, which ``to_tokenizer_json`` drops."""
    model = tokenizer.to_json()["pipeline"]["model"]
    return max(0, len(model["vocab"]) - tokenizer.vocab_size) if model["type"] == "Unigram" else 0


def read_tokenizers(folder: Path, config: dict[str, Any], sizes: tuple[int, int]) -> TokenizerPair:
    """Read ``tokenizer.json``, or ``source.spm``, ``target.spm`` and ``vocab.json`` of a Marian.

    ``config`` is their ``config.json`` with the ids of padding, start and end; ``sizes`` are vocabulary sizes.
    """
    if (folder / SOURCE_PIECES).is_file():
        sides = [_read_pieces(folder, name, config, size) for name, size in zip((SOURCE_PIECES, TARGET_PIECES), sizes)]
    elif (folder / "tokenizer.json").is_file():
        sides = [_read_tokenizer(folder, config, sizes[0])]
        if (folder / "target" / "tokenizer.json").is_file():
            sides.append(_read_tokenizer(folder / "target", config, sizes[1]))
    else:
        raise CheckpointError(f"{folder}: has neither tokenizer.json nor {SOURCE_PIECES}; {tokenizer_remedy(folder)}")
    return pretrained_pair(*sides)


def tokenizer_remedy(folder: Path) -> str:
    """Remedy for a ``folder`` without usable tokenizer files."""
    saved = f"AutoTokenizer.from_pretrained(MODEL).save_pretrained({str(folder)!r})"
    return f"copy the tokenizer's files there, or save them: {saved}"


def _template(tokenizer: Tokenizer, converted: tokenizers.Tokenizer, around: Around) -> Any:
    """Post-processor for ``around``; None to keep that of the pipeline."""
    if around == "nothing" or (around == "end" and tokenizer.end_id in converted.encode("").ids):
        return None
    names = MARKS[:2] if around == "marks" else ("</s>",)
    ids = {name: tokenizer.special_tokens[name] for name in names}
    entries = {name: str(converted.id_to_token(id)) for name, id in ids.items()}
    forms = {"end": ("$A {</s>}", "$A {</s>} $B {</s>}"), "document": ("{</s>} $A", "{</s>} $A $B")}
    forms["marks"] = ("{[CLS]} $A {[SEP]}", "{[CLS]} $A {[SEP]} $B:1 {[SEP]}:1")
    single, pair = (_with_entries(form, entries) for form in forms[around])
    return processors.TemplateProcessing(single, pair, [(entries[name], id) for name, id in ids.items()])


def _with_entries(form: str, entries: dict[str, str]) -> str:
    for name, entry in entries.items():
        form = form.replace(f"{{{name}}}", entry)
    return form


def _decoder(kind: str, byte_fallback: bool) -> decoders.Decoder:
    """``join_words`` as steps of the library. It decodes invalid UTF-8 to more U+FFFD than our tokenizers do."""
    if kind == "bytes":
        return decoders.ByteLevel()
    if kind == "char":
        return decoders.Sequence([decoders.Fuse()])
    between = [decoders.Replace(Regex(r"\z"), " ")] if kind == "word" else []
    joined = [decoders.Replace(mark, "") for mark in (f" {JOINER}", f"{JOINER} ", JOINER)]
    spaces = [decoders.Replace(Regex(" +"), " "), decoders.Replace(Regex(r"\A | \z"), "")]
    fallback = [decoders.ByteFallback()] if byte_fallback else []
    return decoders.Sequence([*fallback, *between, decoders.Fuse(), *joined, *spaces])


def read_pipeline(folder: Path, size: int) -> Pipeline:
    """Read ``tokenizer.json`` for a model of ``size`` entries."""
    document = read_json(folder / "tokenizer.json")
    return pipeline_from(document, read_optional(folder / "tokenizer_config.json"), size, folder)


def pipeline_from(document: dict[str, Any], settings: dict[str, Any], size: int, folder: Path) -> Pipeline:
    """Check ``document``; ``CheckpointError`` if it is unreadable or has more entries than the model."""
    try:
        with library_errors("cannot be read"):
            encoder = tokenizers.Tokenizer.from_str(json.dumps(document))
    except CheckpointError:
        version = f"version {tokenizers.__version__} of tokenizers"
        raise CheckpointError(
            f"{folder}: tokenizer.json cannot be read by {version}; save it again with that"
        ) from None
    ids = encoder.get_vocab(with_added_tokens=True)
    entries = _entries(ids, size, f"{folder}: tokenizer.json")
    return Pipeline(document, entries if len(set(ids.values())) < size else None, settings, encoder, folder)


def _entries(ids: dict[str, int], size: int, origin: str) -> list[str]:
    """Entry of each id of the model; ``CheckpointError`` if the vocabulary ``ids`` in ``origin`` has more of them."""
    if max(ids.values()) >= size:
        raise CheckpointError(f"{origin} has {max(ids.values()) + 1} entries and the model {size}")
    return entries_by_id(ids, size)


def pretrained_pair(tokenizer: PretrainedTokenizer, other: PretrainedTokenizer | None = None) -> TokenizerPair:
    """Pair with one vocabulary for both sides, or one for each."""
    sizes = [one.vocab_size for one in (tokenizer, other) if one is not None]
    settings = {"vocab_size": max(sizes), "joint": other is None, "normalization": "none"}
    return TokenizerPair(PretrainedConfig.parse(settings), tokenizer, other)


def _read_tokenizer(folder: Path, config: dict[str, Any], size: int) -> PretrainedTokenizer:
    pipeline = read_pipeline(folder, size)
    special_ids, around = _special_ids(config, pipeline.unknown()), pipeline.around()
    if special_ids["</s>"] in around[:-1]:
        names = " ".join(pipeline.encoder.encode("", add_special_tokens=True).tokens)
        raise CheckpointError(
            f"{folder}: tokenizer.json puts {names!r} around a text, and what a model reads ends with the end symbol "
            "here, and has no other; load it with AutoTokenizer and save it, or choose a model whose language stands "
            "before the text, as mBART-50's"
        )
    return PretrainedTokenizer(special_ids, pipeline.document, pipeline.entries)


def _read_pieces(folder: Path, name: str, config: dict[str, Any], size: int) -> PretrainedTokenizer:
    separate = folder / "target_vocab.json"
    ids = read_json(separate if name == TARGET_PIECES and separate.is_file() else folder / "vocab.json")
    entries = _entries(ids, size, f"{folder}: vocab.json")
    if "<unk>" not in ids:
        raise CheckpointError(f"{folder}: vocab.json has no <unk>; copy it again")
    document = unigram_pipeline(read_sentencepiece(folder / name), entries, ids["<unk>"])
    document["added_tokens"] = [_language_token(id, entry) for entry, id in ids.items() if _is_language_token(entry)]
    for token in document["added_tokens"]:  # matched verbatim in the text, so the model needs the entry under that name
        document["model"]["vocab"][token["id"]][0] = token["content"]
    return PretrainedTokenizer(_special_ids(config, ids["<unk>"]), document, entries)


def _special_ids(config: dict[str, Any], unknown: int | None) -> dict[str, int]:
    """Ids of the special tokens; padding, which no text contains, also serves as a missing unknown token."""
    pad, end = config.get("pad_token_id"), config.get("eos_token_id")
    start = config.get("decoder_start_token_id")
    for name, value in {"pad_token_id": pad, "eos_token_id": end, "decoder_start_token_id": start}.items():
        if not isinstance(value, int):
            raise CheckpointError(f"config.json: {name}={value!r} is not one id; name it there")
    assert isinstance(pad, int) and isinstance(start, int) and isinstance(end, int)
    return {"<pad>": pad, "<s>": start, "</s>": end, "<unk>": pad if unknown is None else unknown}


def _is_language_token(entry: str) -> bool:
    return entry.startswith(">>") and entry.endswith("<<")


def _language_token(id: int, content: str) -> dict[str, Any]:
    """Added token such as ``>>fra<<``, which names the target language before a text."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {"id": id, "content": content, **flags}
