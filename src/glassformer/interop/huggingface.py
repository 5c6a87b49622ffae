"""Import models of Hugging Face's ``transformers`` as checkpoints, and export checkpoints to it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from glassformer.config import Config
from glassformer.errors import CheckpointError, ConfigError
from glassformer.interop.families import family_for, family_of
from glassformer.interop.folder import refuse_existing, written_aside
from glassformer.interop.parity import Conversion, Parity, largest_difference
from glassformer.interop.pretrained import WHOLE, fetched, read_weights
from glassformer.interop.sentence_vectors import read_settings, transformer_folder
from glassformer.interop.table import (
    Family,
    current,
    expresses,
    settings_to_ours,
    settings_to_theirs,
    to_ours,
    to_theirs,
)
from glassformer.interop.tasks.conversion import TaskConversion, conversion_of
from glassformer.interop.tasks.encoder import EncoderConversion
from glassformer.interop.tokenizer_json import read_json
from glassformer.interop.transformers_api import loaded, transformers
from glassformer.interop.unsupported_settings import unsupported_settings
from glassformer.models.registry import MODELS, build_undrawn, load_weights, weights_of
from glassformer.predict.loading import LoadedRun, load_run
from glassformer.text import TokenizerPair


def compare(
    held: LoadedRun, use: TaskConversion, family: Family, folder: Path, texts: Sequence[str] | None = None
) -> Parity:
    """Both in float32, then both in float64, where also the ``texts`` go through both."""
    theirs, model = loaded(use.loader, folder), held.model
    inputs = use.inputs(held)
    differences = {"float32": largest_difference(use.logits(model), use.their_logits(theirs), inputs)}
    model.double()  # and back, which changes no bit; a copy would take as much memory again
    try:
        family.make_exact(theirs.double(), model.config)
        ours, other = use.logits(model), use.their_logits(theirs)
        differences["float64"] = largest_difference(ours, other, use.inputs(held))
        return Parity(differences, use.samples(held, theirs, folder, texts))
    finally:
        model.float()


OWN = "glassformer.json"
"""What an exported folder says beside: our configuration and tokenizers, so that it comes back as it was."""


def import_folder(source: str, destination: str | Path, texts: Sequence[str] | None = None) -> Conversion:
    """Make a checkpoint of a folder that ``save_pretrained`` wrote, or of a model of the hub.

    Logits of both sides are compared, and what they make of ``texts`` (random ones where none are given).
    ``CheckpointError`` where they differ, ``ConfigError`` for a setting without a counterpart; nothing is written then.
    """
    destination, root = Path(destination), Path(source) if Path(source).is_dir() else fetched(source)
    refuse_existing(destination)
    folder = transformer_folder(root)
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder}: has no config.json; name a folder that save_pretrained has written")
    theirs = read_json(folder / "config.json")
    family = family_of(theirs, str(folder))
    weights, notes = current(family, read_weights(folder))
    own = read_json(folder / OWN) if (folder / OWN).is_file() else {}
    whole = _with_defaults(theirs, str(folder))
    config = _configuration(family, whole, weights, own, str(folder))
    model = build_undrawn(config.model_dump(), str(folder)).eval()
    load_weights(model, to_ours(family, config, weights, weights_of(model), str(folder)), str(folder))
    held = _held(family, model, folder, whole, own)
    if isinstance(conversion_of(family.task), EncoderConversion):
        held, left = _pooled(held, root, folder)
        notes += left
    parity = compare(held, conversion_of(family.task), family, folder, texts)
    parity.refuse(source)
    notes += unsupported_settings(family, whole, folder, held)
    held.save(destination)
    return Conversion(destination, family.model_type, parity, notes)


def export_folder(run: str | Path, destination: str | Path, texts: Sequence[str] | None = None) -> Conversion:
    """Write what their ``AutoModelFor…`` and ``AutoTokenizer`` or ``AutoImageProcessor`` load; compared as it then is,
    as for an import."""
    destination = Path(destination)
    held = load_run(run)
    config = held.model.config
    family = family_for(config, held.task)
    use, settings = conversion_of(family.task), settings_to_theirs(family, config)
    with written_aside(destination) as folder:
        tensors = to_theirs(family, config, {name: w.detach() for name, w in weights_of(held.model).items()})
        described = transformers.AutoConfig.for_model(
            family.model_type, architectures=[family.architecture], dtype="float32", **settings, **use.settings(held)
        )
        described.save_pretrained(folder)
        save_file(tensors, folder / WHOLE, metadata={"format": "pt"})
        notes = family.notes(config) + use.write(folder, held)
        own = {"model": config.model_dump(mode="json"), "values": held.settings}
        tokenizer = {} if held.tokenizers is None else {"tokenizer": held.tokenizers.to_json()}
        _write_json(folder / OWN, {**own, **tokenizer})
        parity = compare(held, use, family, folder, texts)
        parity.refuse(str(held.path))
    return Conversion(destination, family.model_type, parity, notes)


def _with_defaults(theirs: dict[str, Any], origin: str) -> dict[str, Any]:
    try:
        return {**transformers.AutoConfig.for_model(**theirs).to_dict(), **theirs}
    except Exception as error:  # their checks raise kinds of their own
        said = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"{origin}: config.json is not usable ({said}); fix it there, or save the model again"
        ) from None


def _configuration(
    family: Family, whole: dict[str, Any], weights: dict[str, Tensor], own: dict[str, Any], origin: str
) -> Any:
    """Theirs in our words; what we exported is what it was, where the two still agree."""
    try:
        values = settings_to_ours(family, whole, weights)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    kind: type[Config] = MODELS[values["kind"]][0]
    found: Any = kind.parse(values, origin)
    if own:
        stored: Any = kind.parse(own.get("model", {}), f"{origin}/{OWN}")
        tied = [getattr(config, "tie_embeddings", None) for config in (found, stored)]  # training can part what was one
        agrees = tied[0] == tied[1] and _agree(settings_to_theirs(family, stored), whole)
        if agrees and expresses(family, stored, weights):  # else training has changed a constant
            return stored
    return found


def _held(family: Family, model: Any, folder: Path, whole: dict[str, Any], own: dict[str, Any]) -> LoadedRun:
    """What is beside the weights: as we exported it, where ``config.json`` still says so, or read from their files."""
    use = conversion_of(family.task)
    if own:
        pair = TokenizerPair.from_json(own["tokenizer"], str(folder / OWN)) if "tokenizer" in own else None
        held = LoadedRun(model, own.get("values", {}), pair, folder)
        if _agree(use.settings(held), whole):
            return held
    values, pair = use.read(folder, whole, model.config)
    return LoadedRun(model, values, pair, folder)


def _pooled(held: LoadedRun, root: Path, folder: Path) -> tuple[LoadedRun, list[str]]:
    """``held`` with the current pooling of ``root``, and notes on unsupported settings."""
    settings, left = read_settings(root, folder, held.tokenizer, held.model.config.max_length)
    values = {name: value for name, value in held.settings.items() if name not in ("pooling", "normalize")}
    return replace(held, settings={**values, **settings}), left


def _agree(settings: dict[str, Any], whole: dict[str, Any]) -> bool:
    """As JSON says them, where the numbers of classes are words."""
    said = json.loads(json.dumps(settings))
    return all(name in whole and whole[name] == value for name, value in said.items())


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
