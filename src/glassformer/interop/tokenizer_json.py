"""Our vocabularies as one file of the ``tokenizers`` library that encodes and decodes just as ours do, and back."""

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tokenizers
from tokenizers import Regex, decoders, processors

from glassformer.errors import CheckpointError
from glassformer.interop.sentencepiece import pipeline, read_sentencepiece
from glassformer.text import Tokenizer, TokenizerPair
from glassformer.text.allowed import library_errors
from glassformer.text.pretrained import KIND, UNNAMED, ForeignConfig, PretrainedTokenizer
from glassformer.text.words import JOINER

SOURCE_PIECES, TARGET_PIECES = "source.spm", "target.spm"
MARKS = ("[CLS]", "[SEP]", "[MASK]")

Around = Literal["end", "document", "marks", "nothing"]
"""The end symbol after a text; before it, as between documents; ``[CLS]`` before and ``[SEP]`` after each; or what the
pipeline itself has."""


@dataclass(frozen=True)
class Pipeline:
    """A ``tokenizer.json`` and what stands beside it, before it is known what its symbols are for."""

    document: dict[str, Any]
    entries: list[str] | None
    """Every entry of the model, where the model has more than the pipeline."""
    settings: dict[str, Any]
    encoder: tokenizers.Tokenizer
    origin: Path

    def special(self, name: str, usual: str | None = None) -> int | None:
        """The id of what ``tokenizer_config.json`` calls ``name`` (``unk_token``), or else of the ``usual`` entry."""
        told = self.settings.get(name) or usual
        told = told.get("content") if isinstance(told, dict) else told
        return None if told is None else self.encoder.token_to_id(told)

    def unknown(self) -> int | None:
        found = self.special("unk_token", self.document["model"].get("unk_token"))
        return self.document["model"].get("unk_id") if found is None else found

    def around(self) -> list[int]:
        """What the pipeline puts around a text."""
        return [int(id) for id in self.encoder.encode("", add_special_tokens=True).ids]


def to_tokenizer_json(tokenizer: Tokenizer, around: Around = "end") -> tokenizers.Tokenizer:
    """With what stands ``around`` a text, and a decoder: what comes back is exactly what ``tokenizer`` decodes."""
    document = copy.deepcopy(tokenizer.to_json()["pipeline"])
    foreign = tokenizer.kind == KIND
    if foreign and document["model"]["type"] == "Unigram":
        del document["model"]["vocab"][tokenizer.vocab_size :]
    whole = tokenizers.Tokenizer.from_str(json.dumps(document))
    if not foreign:
        whole.decoder = _decoder(tokenizer.kind, document["model"].get("byte_fallback", False))
        whole.add_special_tokens(
            [tokenizers.AddedToken(name, normalized=False, special=True) for name in tokenizer.special_tokens]
        )
    if template := _template(tokenizer, whole, around):
        whole.post_processor = template
    whole.encode_special_tokens = True
    return whole


def named_special(tokenizer: Tokenizer, whole: tokenizers.Tokenizer, name: str) -> str | None:
    """What ``whole`` calls our special token ``name``; None where it stands for nothing there."""
    id = tokenizer.special_tokens[name]
    special = {place for place, token in whole.get_added_tokens_decoder().items() if token.special}
    return str(whole.id_to_token(id)) if id in special else None


def pieces_left_out(tokenizer: Tokenizer) -> int:
    """Entries of a pipeline that the model does not know, and that ``to_tokenizer_json`` does without."""
    model = tokenizer.to_json()["pipeline"]["model"]
    return max(0, len(model["vocab"]) - tokenizer.vocab_size) if model["type"] == "Unigram" else 0


def read_tokenizers(folder: Path, config: dict[str, Any], sizes: tuple[int, int]) -> TokenizerPair:
    """From ``tokenizer.json``, or Marian's ``source.spm``, ``target.spm`` and ``vocab.json``.

    ``config`` is their ``config.json``, which says what is padding, start and end; ``sizes`` are the model's.
    """
    if (folder / SOURCE_PIECES).is_file():
        sides = [_pieces(folder, name, config, size) for name, size in zip((SOURCE_PIECES, TARGET_PIECES), sizes)]
    elif (folder / "tokenizer.json").is_file():
        sides = [_whole(folder, config, sizes[0])]
        if (folder / "target" / "tokenizer.json").is_file():
            sides.append(_whole(folder / "target", config, sizes[1]))
    else:
        raise CheckpointError(f"{folder}: has neither tokenizer.json nor {SOURCE_PIECES}; {way_to_a_tokenizer(folder)}")
    return foreign_pair(*sides)


def way_to_a_tokenizer(folder: Path) -> str:
    """What to do where ``folder`` holds none that can be used."""
    saved = f"AutoTokenizer.from_pretrained(MODEL).save_pretrained({str(folder)!r})"
    return f"copy the tokenizer's files there, or save them: {saved}"


def _template(tokenizer: Tokenizer, whole: tokenizers.Tokenizer, around: Around) -> Any:
    """None where what the pipeline has is right."""
    if around == "nothing" or (around == "end" and tokenizer.end_id in whole.encode("").ids):
        return None
    names = MARKS[:2] if around == "marks" else ("</s>",)
    ids = {name: tokenizer.special_tokens[name] for name in names}
    entries = {name: str(whole.id_to_token(id)) for name, id in ids.items()}
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
    """From ``tokenizer.json``, for a model of ``size`` entries."""
    document = read_json(folder / "tokenizer.json")
    settings = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    return pipeline_from(document, settings, size, folder)


def pipeline_from(document: dict[str, Any], settings: dict[str, Any], size: int, folder: Path) -> Pipeline:
    """``CheckpointError`` where the library cannot read ``document``, or it has more entries than the model."""
    try:
        with library_errors("cannot be read"):
            encoder = tokenizers.Tokenizer.from_str(json.dumps(document))
    except CheckpointError:
        version = f"version {tokenizers.__version__} of tokenizers"
        raise CheckpointError(
            f"{folder}: tokenizer.json cannot be read by {version}; save it again with that"
        ) from None
    names = {id: entry for entry, id in encoder.get_vocab(with_added_tokens=True).items()}
    if max(names) >= size:
        raise CheckpointError(f"{folder}: tokenizer.json has {max(names) + 1} entries and the model {size}")
    entries = [names.get(id, f"{UNNAMED}{id}") for id in range(size)] if len(names) < size else None
    return Pipeline(document, entries, settings, encoder, folder)


def foreign_pair(tokenizer: PretrainedTokenizer, other: PretrainedTokenizer | None = None) -> TokenizerPair:
    """One vocabulary, or one for each side."""
    sizes = [one.vocab_size for one in (tokenizer, other) if one is not None]
    settings = {"vocab_size": max(sizes), "joint": other is None, "normalization": "none"}
    return TokenizerPair(ForeignConfig.parse(settings), tokenizer, other)


def generation_file(folder: Path) -> Path:
    """Where it is said how text is generated: older folders say it in ``config.json``."""
    path = folder / "generation_config.json"
    return path if path.is_file() else folder / "config.json"


def generation_settings(folder: Path) -> dict[str, Any]:
    return read_json(generation_file(folder))


def _whole(folder: Path, config: dict[str, Any], size: int) -> PretrainedTokenizer:
    found = read_pipeline(folder, size)
    symbols, around = _symbols(config, found.unknown()), found.around()
    if symbols["</s>"] in around[:-1]:
        names = " ".join(found.encoder.encode("", add_special_tokens=True).tokens)
        raise CheckpointError(
            f"{folder}: tokenizer.json puts {names!r} around a text, and what a model reads ends with the end symbol "
            "here, and has no other; load it with AutoTokenizer and save it, or choose a model whose language stands "
            "before the text, as mBART-50's"
        )
    return PretrainedTokenizer(symbols, found.document, found.entries)


def _pieces(folder: Path, name: str, config: dict[str, Any], size: int) -> PretrainedTokenizer:
    separate = folder / "target_vocab.json"
    ids = read_json(separate if name == TARGET_PIECES and separate.is_file() else folder / "vocab.json")
    if max(ids.values()) >= size:
        raise CheckpointError(f"{folder}: vocab.json has {max(ids.values()) + 1} entries and the model {size}")
    names = {id: entry for entry, id in ids.items()}
    entries = [names.get(id, f"{UNNAMED}{id}") for id in range(size)]
    if "<unk>" not in ids:
        raise CheckpointError(f"{folder}: vocab.json has no <unk>; copy it again")
    document = pipeline(read_sentencepiece(folder / name), entries, ids["<unk>"])
    document["added_tokens"] = [_language(id, entry) for id, entry in names.items() if _is_language(entry)]
    for token in document["added_tokens"]:  # found in the text as it is, so the model must know it by its name
        document["model"]["vocab"][token["id"]][0] = token["content"]
    return PretrainedTokenizer(_symbols(config, ids["<unk>"]), document, entries)


def _symbols(config: dict[str, Any], unknown: int | None) -> dict[str, int]:
    """Where theirs has no unknown symbol (all bytes have one) its place is the padding's, which no text has."""
    pad, end = config.get("pad_token_id"), config.get("eos_token_id")
    start = config.get("decoder_start_token_id")
    for name, value in {"pad_token_id": pad, "eos_token_id": end, "decoder_start_token_id": start}.items():
        if not isinstance(value, int):
            raise CheckpointError(f"config.json: {name}={value!r} is not one id; name it there")
    assert isinstance(pad, int) and isinstance(start, int) and isinstance(end, int)
    return {"<pad>": pad, "<s>": start, "</s>": end, "<unk>": pad if unknown is None else unknown}


def _is_language(entry: str) -> bool:
    return entry.startswith(">>") and entry.endswith("<<")


def _language(id: int, content: str) -> dict[str, Any]:
    """``>>fra<<`` before a text says what it is to be translated to."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {"id": id, "content": content, **flags}


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); copy the entire folder") from None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise CheckpointError(f"{path}: is not a JSON object; copy it again")
    return document
