"""Read and write pooling and normalization of text vectors in the format of sentence-transformers.

``modules.json`` lists the steps, each with its folder: a Transformer, a pooling, and optionally a normalization.
"""

import json
import string
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError, ConfigError
from glassformer.interop.folder import read_json, read_optional, write_json
from glassformer.text import Tokenizer

MODULES, LIMITS, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
POOLING, NORMALIZE = "1_Pooling", "2_Normalize"
FLAGS = {
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""Setting for each kind of pooling in older folders."""
SUPPORTED = ("mean", "cls", "max")


def transformer_folder(root: Path) -> Path:
    """The folder of the Transformer: ``root``, or ``0_Transformer`` in older folders."""
    if (root / MODULES).is_file() and not (root / "config.json").is_file():
        return _inside(root, _steps(root)[0][1])
    return root


def read_settings(root: Path, folder: Path, tokenizer: Tokenizer, positions: int) -> tuple[dict[str, Any], list[str]]:
    """``pooling``, ``normalize`` and ``max_length`` of ``root``, and notes on unsupported settings.

    Empty without ``modules.json``. ``ConfigError`` for a step or a pooling without a counterpart.
    """
    if not (root / MODULES).is_file():
        return {}, []
    (first, _), *steps = _steps(root)
    kinds = [kind for kind, _ in steps]
    if first != "Transformer" or kinds not in (["Pooling"], ["Pooling", "Normalize"]):
        listed = ", ".join([first, *kinds])
        raise ConfigError(f"{root}: {MODULES} lists {listed}; only Transformer, Pooling and Normalize are imported")
    if len(steps) == 2:
        _refuse_other_input(_inside(root, steps[1][1]))
    limits = read_optional(folder / LIMITS)
    if limits.get("do_lower_case") and not _ignores_case(tokenizer):
        raise ConfigError(
            f"{folder / LIMITS}: do_lower_case=true, but the tokenizer is case-sensitive; set it to false and "
            "lower-case the texts before embedding"
        )
    settings = {"pooling": _pooling(_inside(root, steps[0][1])), "normalize": len(steps) == 2}
    return settings | {"max_length": _max_length(limits, folder, positions)}, _prompts(root)


def write_settings(folder: Path, values: dict[str, Any], d_model: int) -> None:
    """Write the pooling of ``values`` in the files of sentence-transformers; nothing if ``values`` has no pooling."""
    if "pooling" not in values:
        return
    steps = [("Transformer", ""), ("Pooling", POOLING)] + [("Normalize", NORMALIZE)] * bool(values.get("normalize"))
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, path) in enumerate(steps)
    ]
    for _, path in steps:
        (folder / path).mkdir(exist_ok=True)
    flags = {flag: kind == values["pooling"] for kind, flag in FLAGS.items()}
    write_json(folder / MODULES, modules, indent=2)
    write_json(folder / LIMITS, {"max_seq_length": values["max_length"], "do_lower_case": False}, indent=2)
    write_json(
        folder / POOLING / "config.json",
        {"word_embedding_dimension": d_model, **flags, "include_prompt": True},
        indent=2,
    )


def _steps(root: Path) -> list[tuple[str, str]]:
    """Class and folder of each step."""
    try:
        document = json.loads((root / MODULES).read_text(encoding="utf-8"))
        steps = [(str(step["type"]).rpartition(".")[2], str(step["path"])) for step in document]
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        steps = []
    if not steps:
        raise CheckpointError(f"{root}: {MODULES} is not a list of modules with type and path; copy it again")
    return steps


def _inside(root: Path, name: str) -> Path:
    """The folder ``name`` directly in ``root``; ``CheckpointError`` for any other path."""
    if name in (".", "..") or Path(name).name != name:
        raise CheckpointError(f"{root}: {MODULES} names {name!r}, which is not a folder inside; copy it again")
    return root / name


def _pooling(folder: Path) -> str:
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder}: has no config.json, which names the pooling; copy it too")
    settings = read_json(folder / "config.json")
    pooling = settings.get("pooling_mode") or [kind for kind, flag in FLAGS.items() if settings.get(flag)] or "mean"
    modes = [pooling] if isinstance(pooling, str) else list(pooling)
    if len(modes) != 1 or modes[0] not in SUPPORTED:
        listed = " and ".join(map(str, modes))
        raise ConfigError(f"{folder}: pooling by {listed} is not imported; choose a model with {', '.join(SUPPORTED)}")
    return str(modes[0])


def _refuse_other_input(folder: Path) -> None:
    settings = read_optional(folder / "config.json")
    if (name := settings.get("module_input_name", "sentence_embedding")) != "sentence_embedding":
        raise ConfigError(f"{folder}: module_input_name={name!r}: only sentence_embedding can be normalized")


def _max_length(limits: dict[str, Any], folder: Path, positions: int) -> int:
    """Maximum tokens of a text, [CLS] and [SEP] included; at most the positions of the model."""
    tokenizer = folder / "tokenizer_config.json"
    limit = limits.get("max_seq_length") or (tokenizer.is_file() and read_json(tokenizer).get("model_max_length"))
    if not limit:
        return positions
    if not isinstance(limit, int | float) or limit < 2:
        raise CheckpointError(f"{folder}: maximum length {limit!r} is invalid; [CLS] and [SEP] alone are two tokens")
    return int(min(limit, positions))


def _ignores_case(tokenizer: Tokenizer) -> bool:
    return tokenizer.encode_batch([*string.ascii_uppercase]) == tokenizer.encode_batch([*string.ascii_lowercase])


def _prompts(root: Path) -> list[str]:
    settings = read_optional(root / PROMPTS)
    prompts = settings.get("prompts") if isinstance(settings.get("prompts"), dict) else {}
    listed = ", ".join(f"{name}: {prompt!r}" for name, prompt in (prompts or {}).items() if prompt)
    return [f"left out: prompts ({listed}); prepend them to the texts yourself"] if listed else []
