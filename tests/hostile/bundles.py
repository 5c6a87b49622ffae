"""Malicious checkpoints, each with a matching manifest.

Digests protect against damage, not against malice: an attacker can compute them too. So each bundle matches its own
manifest, and the tests cover the checks behind it.
"""

import copy
import hashlib
import json
import os
import random
import shutil
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.storage.manifest import measure, write_manifest

BASE = Path(__file__).parents[1] / "data" / "format_1"
FILES = ("config.json", "tokenizer.json", "model.safetensors")
HUGE = (10**7, 10**9, 10**12, 2**63, 10**30)
NO_SIZES = (-1, 0, 1.5, 32.0, True, "32", [], {}, [32], float("nan"), float("inf"))


class Bundle(NamedTuple):
    """A malicious checkpoint; ``write`` creates its folder."""

    name: str
    write: Callable[[Path], None]


def bundles(seed: int = 0) -> Iterator[Bundle]:
    """Yield all bundles. ``seed`` selects values where there are too many to try each."""
    yield from _settings()
    yield from _tokenizers()
    yield from _headers()
    yield from _weights()
    yield from _manifests()
    yield from _special_files()
    yield from _random(random.Random(seed))


def pristine(folder: Path) -> None:
    """Write the valid checkpoint from which the others are derived."""
    shutil.copytree(BASE, folder)


def canonical(document: dict[str, Any]) -> str:
    """Fingerprint of a ``tokenizer.json`` document (SHA-256)."""
    content = {key: value for key, value in document.items() if key != "fingerprint"}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def seal(folder: Path) -> None:
    """Rewrite the manifest."""
    write_manifest(folder, {name: measure(folder / name, folder) for name in FILES})


def _edited(name: str, file: str, edit: Callable[[Any], Any]) -> Bundle:
    """Bundle with an edited JSON file. If ``edit`` returns text, that text is written instead."""

    def write(folder: Path) -> None:
        pristine(folder)
        document = json.loads((folder / file).read_text(encoding="utf-8"))
        changed = edit(document)
        (folder / file).write_text(json.dumps(document) if changed is None else changed, encoding="utf-8")
        seal(folder)

    return Bundle(name, write)


def _set(document: Any, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for key in parents:
        document = document[int(key)] if isinstance(document, list) else document[key]
    document[int(last) if isinstance(document, list) else last] = value


def _settings() -> Iterator[Bundle]:
    sizes = ("d_model", "n_heads", "d_ff", "n_encoder_layers", "n_decoder_layers", "vocab_size", "max_length", "d_k")
    values: dict[str, tuple[Any, ...]] = {f"model.{size}": HUGE + NO_SIZES for size in sizes}
    values |= {
        "model.kind": ("", "gpt", "recurrent", "vit", None, 5, [], {}, ["encoder_decoder"]),
        "model.dropout": ("0.1", -1, 2, True, None, float("nan")),
        "model.positions": ("rotary!", None, 1, "learned"),
        "model.tie_embeddings": ("yes", 1, False),
        "model.unheard_of": (1,),
        "model": (None, [], "model", 5, {}),
        "task": (5, [], {}, None, "images", "classification", "no task"),
        "decoding": (5, [], {"beam_size": 10**12}, {"beam_size": True}, {"beam_size": "4"}, {"max_extra": 10**12}),
        "labels": (5, [1], "ab", ["a"]),
        "guided_alignment": (5, {"layer": "x"}, {"unheard_of": 1}, {"layer": 0.5}),
        "bleu_tokenize": (5, []),
        "tokenizer": (5, [], "0" * 64),
        "step": ("x", -1, 1.5),
        "context": ("x", 0, -1),
        "max_length": ("x", -5, 0, [1]),
    }
    for path, several in values.items():
        for value in several:
            yield _edited(f"{path}={value!r:.40}", "config.json", lambda d, p=path, v=value: _set(d, p, v))
    whole = {
        "empty": "",
        "a list": "[]",
        "no JSON": "{",
        "deep": '{"model": ' + "[" * 100_000 + "]" * 100_000 + "}",
        "deep objects": '{"model":' * 50_000 + "1" + "}" * 50_000,
        "a long number": '{"model": ' + "9" * 100_000 + "}",
        "no UTF-8": '{"model": "\ud800"}',
        "twice": '{"model": {}, "model": {}}',
        "many values": '{"model": [' + "[]," * 1_300_000 + "0]}",
        "too large": '{"model": "' + "x" * 5_000_000 + '"}',
    }
    for name, text in whole.items():
        yield _replaced(f"config.json: {name}", "config.json", text.encode("utf-8", "surrogatepass"))


def _replaced(name: str, file: str, data: bytes) -> Bundle:
    def write(folder: Path) -> None:
        pristine(folder)
        (folder / file).write_bytes(data)
        seal(folder)

    return Bundle(name, write)


def _tokenizer(name: str, edit: Callable[[Any], None]) -> Bundle:
    """Bundle with an edited ``tokenizer.json`` and matching fingerprints."""

    def write(folder: Path) -> None:
        pristine(folder)
        document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        edit(document)
        for side in ("source", "target"):
            if isinstance(document.get(side), dict):
                document[side]["fingerprint"] = canonical(document[side])
        document["fingerprint"] = canonical(document)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config["tokenizer"] = document["fingerprint"]
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
        seal(folder)

    return Bundle(f"tokenizer.json: {name}", write)


def _tokenizers() -> Iterator[Bundle]:
    replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 900}
    slow = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"}
    nested: Any = {"type": "NFC"}
    for _ in range(50):
        nested = {"type": "Sequence", "normalizers": [nested]}
    pipeline: dict[str, tuple[Any, ...]] = {
        "normalizer": (
            None,
            5,
            {"type": "Unheard of"},
            {"type": []},
            replace,
            slow,
            nested,
            {"type": "Sequence", "normalizers": [dict(replace, content="aa")] * 40},
            {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 10_000},
            {"type": "Replace", "pattern": {"Regex": "("}, "content": ""},
            {"type": "Replace", "pattern": {"Regex": r"(a)\1"}, "content": ""},
            {"type": "Replace", "pattern": {"Regex": "a*a*a*a*a*b"}, "content": ""},
            {"type": "Replace", "pattern": {"String": ""}, "content": "x"},
            {"type": "Replace", "pattern": {"String": "a"}},
            {"type": "Prepend", "prepend": "x" * 100_000},
            {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
            {"type": "Precompiled", "precompiled_charsmap": 5},
        ),
        "pre_tokenizer": (
            None,
            {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False},
            {"type": "Split", "pattern": {"String": "a"}, "behavior": "Unheard of", "invert": False},
            {"type": "Delimiter", "delimiter": "a"},
            {"type": "Metaspace", "replacement": "too long", "prepend_scheme": "always", "split": True},
        ),
        "post_processor": ({"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}, 5),
        "decoder": ({"type": "Unheard of"}, {"type": "Strip", "content": "a", "start": 2**63, "stop": 0}),
        "truncation": ({"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}, 5),
        "padding": ({"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_id": 0, "pad_token": "x"}, 5),
        "added_tokens": (
            [{"id": 10**9, "content": "dog", "special": True}],
            [{"id": 3, "content": "", "special": False}],
            [{"id": -1, "content": "x", "special": False}],
            5,
            [5],
        ),
        "model": (None, 5, {}, {"type": "BPE"}, {"type": "Unigram", "unk_id": 9, "vocab": []}),
        "model.type": ("Unigram", "WordPiece", "Unheard of", [], None),
        "model.vocab": (5, {}, [], {"a": 0}, {"a": 10**12}, {"a": -1}, {"a": 1.0}, {"a": True}),
        "model.merges": (5, [5], [["x"]], [["nobody", "knows"]], ["nobody knows"], [["a", "b", "c"]]),
        "model.unk_token": (5, "nobody", []),
        "model.dropout": (0.5, "x", 10**30),
        "model.fuse_unk": ("x", 5),
        "model.byte_fallback": ("x",),
        "model.continuing_subword_prefix": (5, "x" * 10_000),
        "model.end_of_word_suffix": (5, "x" * 10_000),
        "version": ("9.9", 5, None),
        "unheard_of": (1,),
    }
    for path, several in pipeline.items():
        for value in several:
            yield _tokenizer(f"{path}={value!r:.60}", lambda d, p=path, v=value: _set(d["source"]["pipeline"], p, v))
    others: dict[str, tuple[Any, ...]] = {
        "source": (None, 5, []),
        "source.kind": ("unheard of", 5, None, "foreign"),
        "source.pipeline": (None, 5, [], {}),
        "source.special_tokens": ({}, 5, {"<pad>": 0}, {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 10**12}),
        "source.special_tokens.<unk>": (-1, True, "3", 10**9, None),
        "config": (5, {"kind": "unheard of"}, {"kind": "foreign"}),
        "config.vocab_size": ("x", -1, True),
        "config.kind": ([], 5),
        "format": (2, "1", None),
        "target": (5, {}),
    }
    for path, several in others.items():
        for value in several:
            yield _tokenizer(f"{path}={value!r:.60}", lambda d, p=path, v=value: _set(d, p, v))
    yield _tokenizer("two entries of one id", lambda d: d["source"]["pipeline"]["model"]["vocab"].update({"zzz": 5}))
    yield _tokenizer("a gap", lambda d: d["source"]["pipeline"]["model"]["vocab"].update({"zzz": 999}))
    yield _replaced("tokenizer.json: deep", "tokenizer.json", b'{"source":' + b"[" * 200_000)
    yield _replaced("tokenizer.json: many values", "tokenizer.json", b"[" + b"[]," * 5_000_000 + b"0]")
    yield _replaced("tokenizer.json: too large", "tokenizer.json", b" " * 70_000_000)


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and tensors of a safetensors file."""
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header: dict[str, Any] | bytes, tensors: bytes, length: int | None = None) -> bytes:
    """Safetensors file from header and tensors; ``length`` overrides the header's length."""
    written = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(written) if length is None else length) + written + tensors


def _header(name: str, edit: Callable[[dict[str, Any], str], None]) -> Bundle:
    """Bundle with an edited header; ``edit`` receives the header and the name of a tensor."""

    def write(folder: Path) -> None:
        pristine(folder)
        header, tensors = split((folder / "model.safetensors").read_bytes())
        edit(header, sorted(key for key in header if key != "__metadata__")[0])
        (folder / "model.safetensors").write_bytes(joined(header, tensors))
        seal(folder)

    return Bundle(f"model.safetensors: {name}", write)


def _headers() -> Iterator[Bundle]:
    fields: dict[str, tuple[Any, ...]] = {
        "dtype": ("F64", "F16", "BF16", "I32", "BOOL", "F4", "U8", 5, None, []),
        "shape": ([10**12], [-1], [2**63, 2], [0], [], [1.0], [True], ["1"], 5, None, [1] * 100, [2**40, 2**40]),
        "data_offsets": ([0, 0], [0, 10**12], [-4, 0], [4, 0], [0], [0, 4, 8], ["0", "4"], [0.0, 4.0], None, [True, 5]),
    }
    for field, several in fields.items():
        for value in several:
            yield _header(f"{field}={value!r:.40}", lambda h, n, f=field, v=value: h[n].__setitem__(f, v))
    yield _header("a tensor less", lambda h, n: h.pop(n) and None)
    yield _header("a tensor more", lambda h, n: h.update(more={"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}))
    yield _header("no tensors", lambda h, n: h.clear())
    yield _header("a tensor that is a number", lambda h, n: h.update({n: 5}))
    header, tensors = split((BASE / "model.safetensors").read_bytes())
    text = json.dumps(header).encode()
    whole = {
        "empty": b"",
        "seven bytes": b"\0" * 7,
        "no header": struct.pack("<Q", 0),
        "a header of 2^63 bytes": joined(text, tensors, 2**63),
        "a header of 10^12 bytes": joined(text, tensors, 10**12),
        "a header longer than the file": joined(text, tensors, len(text) + len(tensors) + 1),
        "a header that is too short": joined(text, tensors, len(text) - 5),
        "a header of 20 MB": joined(text + b" " * 20_000_000, tensors),
        "a name twice": joined(text[:-1] + b"," + text[1:], tensors),
        "deep": joined(b'{"a":' + b"[" * 100_000, tensors),
        "a list": joined(b"[]", tensors),
        "a million tensors": joined(b"{" + b'"a":{},' * 1_000_000 + b'"b":{}}', tensors),
        "cut off": joined(text, tensors[:-4]),
        "longer": joined(text, tensors + bytes(4)),
        "no UTF-8": joined(b'{"\xff": 1}', tensors),
    }
    for name, data in whole.items():
        yield _replaced(f"model.safetensors: {name}", "model.safetensors", data)
    yield Bundle("model.safetensors: 10 GB that are not there", _sparse)


def _sparse(folder: Path) -> None:
    pristine(folder)
    size = 10 * 10**9
    header = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(joined(header, b""))
        file.truncate(8 + len(header) + size)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["model.safetensors"] = {"bytes": 8 + len(header) + size, "sha256": "0" * 64}
    _write_manifest(folder, manifest)


def _weights() -> Iterator[Bundle]:
    """NaN, inf and -inf at the beginning, middle and end of the weights."""
    for name, value in (("nan", float("nan")), ("inf", float("inf")), ("-inf", float("-inf"))):
        for place in (0, 0.5, 1):
            yield Bundle(f"model.safetensors: {name} at {place}", lambda folder, v=value, p=place: _value(folder, v, p))


def _value(folder: Path, value: float, place: float) -> None:
    pristine(folder)
    data = bytearray((folder / "model.safetensors").read_bytes())
    _, tensors = split(bytes(data))
    first, count = len(data) - len(tensors), len(tensors) // 4
    struct.pack_into("<f", data, first + 4 * int(place * (count - 1)), value)
    (folder / "model.safetensors").write_bytes(data)
    seal(folder)


def _write_manifest(folder: Path, content: dict[str, Any]) -> None:
    def text(values: dict[str, Any]) -> bytes:
        return (json.dumps(values, indent=2, sort_keys=True) + "\n").encode()

    content.pop("digest", None)
    content["digest"] = hashlib.sha256(text(content)).hexdigest()
    (folder / "manifest.json").write_bytes(text(content))


def _manifests() -> Iterator[Bundle]:
    values: dict[str, tuple[Any, ...]] = {
        "version": (2, 10**30, True, 1.0, "1", None),
        "format": ("another", None, 5),
        "files": (None, 5, [], {}),
        "files.config.json": (None, 5, [], {}, {"bytes": 10**12, "sha256": ""}, {"bytes": True}),
        "files.../../../etc/passwd": ({"bytes": 1, "sha256": ""},),
        "files./etc/passwd": ({"bytes": 1, "sha256": ""},),
    }
    for path, several in values.items():
        section, _, file = path.partition(".")
        for value in several:

            def write(folder: Path, section: str = section, file: str = file, value: Any = value) -> None:
                pristine(folder)
                content = json.loads((folder / "manifest.json").read_text())
                if file:
                    content[section][file] = value
                else:
                    content[section] = value
                _write_manifest(folder, content)

            yield Bundle(f"manifest.json: {path}={value!r:.40}", write)
    for name, data in {
        "empty": b"",
        "deep": b'{"files":' * 100_000,
        "large": b" " * 2_000_000,
        "no UTF-8": b"\xff",
        "null bytes": bytes(100),
    }.items():

        def replace(folder: Path, data: bytes = data) -> None:
            pristine(folder)
            (folder / "manifest.json").write_bytes(data)

        yield Bundle(f"manifest.json: {name}", replace)


def _special_files() -> Iterator[Bundle]:
    def link(target: str) -> Callable[[Path], None]:
        return lambda path: path.symlink_to(target)

    def out(path: Path) -> None:
        elsewhere = path.parent.parent / f"elsewhere-{path.name}"
        shutil.copy(BASE / path.name, elsewhere)
        path.symlink_to(elsewhere)

    def listen(path: Path) -> None:
        before = os.getcwd()
        os.chdir(path.parent)  # socket paths are limited in length
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
        os.chdir(before)

    kinds: dict[str, Callable[[Path], None]] = {
        "a pipe": os.mkfifo,
        "a folder": Path.mkdir,
        "a socket": listen,
        "a link to a device": link("/dev/zero"),
        "a link to a file elsewhere": out,
        "a link to nothing": link("nothing"),
        "a link to itself": link("model.safetensors"),
    }
    for file in (*FILES, "manifest.json"):
        for kind, make in kinds.items():

            def write(folder: Path, file: str = file, make: Callable[[Path], None] = make) -> None:
                pristine(folder)
                (folder / file).unlink()
                make(folder / file)

            yield Bundle(f"{file} is {kind}", write)

    def more(folder: Path) -> None:
        pristine(folder)
        os.mkfifo(folder / "more")

    yield Bundle("a pipe more", more)


def _random(generator: random.Random) -> Iterator[Bundle]:
    """Random values of ``config.json`` or ``tokenizer.json`` replaced with values of another type."""
    odd: tuple[Any, ...] = (-(10**18), {"a": {}}, [[]], True, "\0", 1e300)
    config = json.loads((BASE / "config.json").read_text(encoding="utf-8"))
    for number in range(24):
        key = generator.choice(sorted(config["model"]))
        value = generator.choice([one for one in odd if type(one) is not type(config["model"][key])])
        path = f"model.{key}"
        yield _edited(f"{number}: {path}={value!r}", "config.json", lambda d, p=path, v=value: _set(d, p, v))
    document = json.loads((BASE / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = document["source"]["pipeline"]["model"]["vocab"]
    for number in range(12):
        entry, value = generator.choice(sorted(vocabulary)), generator.choice(odd)
        value = 10**6 if value is True else copy.deepcopy(value)

        def edit(d: Any, entry: str = entry, value: Any = value) -> None:
            d["source"]["pipeline"]["model"]["vocab"][entry] = value

        yield _tokenizer(f"{number}: id of {entry!r} is {value!r}", edit)
