"""Import models of ``transformers`` as checkpoints, and export checkpoints to it."""

import json
import reprlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from glassformer.config import Config
from glassformer.errors import CheckpointError, ConfigError
from glassformer.interop.decoding import suppressed_ids, unsupported_generation
from glassformer.interop.families import family_for, family_of
from glassformer.interop.folder import (
    SETTINGS_FILE,
    generation_file,
    read_json,
    read_optional,
    write_json,
)
from glassformer.interop.parity import Conversion, Parity, largest_difference
from glassformer.interop.pretrained import WEIGHTS_FILE, fetch, read_weights
from glassformer.interop.sentence_vectors import read_settings, transformer_folder
from glassformer.interop.table import (
    Family,
    canonical_weights,
    export_config,
    export_weights,
    expresses,
    import_config,
    import_weights,
)
from glassformer.interop.tasks.conversion import TaskConversion, conversion_of
from glassformer.interop.tasks.encoder import EncoderConversion
from glassformer.interop.transformers_api import load_model, transformers
from glassformer.models.device import choose_device
from glassformer.models.registry import MODELS, build_uninitialized, load_weights, weights_of
from glassformer.predict.loading import LoadedRun, load_run
from glassformer.storage.atomic import new_folder, refuse_existing
from glassformer.text import TokenizerPair


def compare(
    run: LoadedRun,
    conversion: TaskConversion,
    family: Family,
    folder: Path,
    texts: Sequence[str] | None = None,
    device: str = "cpu",
) -> Parity:
    """Compare both models in float32, then in float64, on ``device``; with ``texts`` in float64 on the CPU."""
    on = choose_device(device)
    their_model, model = load_model(conversion.loader, folder), run.model

    def difference() -> float:
        inputs = conversion.inputs(run).to(on)
        model.to(on), their_model.to(on)
        try:
            return largest_difference(conversion.logits(model), conversion.their_logits(their_model), inputs)
        finally:
            model.cpu(), their_model.cpu()

    differences = {"float32": difference()}
    model.double()  # and back, which changes no bit; a copy would take as much memory again
    try:
        family.make_exact(their_model.double(), model.config)
        differences["float64"] = difference()
        return Parity(differences, conversion.samples(run, their_model, folder, texts))
    finally:
        model.float()


def import_folder(
    source: str, destination: str | Path, texts: Sequence[str] | None = None, device: str = "cpu"
) -> Conversion:
    """Import a folder that ``save_pretrained`` wrote, or a model of the hub, as a checkpoint.

    Logits of both models are compared on ``device``, and their outputs for ``texts`` (random ones by default). Nothing
    is written if they differ (``CheckpointError``) or if a setting has no counterpart (``ConfigError``).
    """
    choose_device(device)  # refused before anything is read
    destination, root = Path(destination), Path(source) if Path(source).is_dir() else fetch(source)
    refuse_existing(destination)
    folder = transformer_folder(root)
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder}: has no config.json; name a folder that save_pretrained has written")
    their_config = read_json(folder / "config.json")
    family = family_of(their_config, str(folder))
    weights, notes = canonical_weights(family, read_weights(folder))
    stored = read_optional(folder / SETTINGS_FILE)
    their_config = _with_defaults(their_config, str(folder))
    config = _configuration(family, their_config, weights, stored, str(folder))
    model = build_uninitialized(config.model_dump(), str(folder)).eval()
    load_weights(model, import_weights(family, config, weights, weights_of(model), str(folder)), str(folder))
    run = _imported_run(family, model, folder, their_config, stored)
    if isinstance(conversion_of(family.task), EncoderConversion):
        run, pooling_notes = _with_pooling(run, root, folder)
        notes += pooling_notes
    parity = compare(run, conversion_of(family.task), family, folder, texts, device)
    parity.check(source)
    notes += unsupported_settings(family, their_config, folder, run)
    run.save(destination)
    return Conversion(destination, family.model_type, parity, notes)


def export_folder(
    run: str | Path, destination: str | Path, texts: Sequence[str] | None = None, device: str = "cpu"
) -> Conversion:
    """Export ``run`` as a folder for ``AutoModelFor…`` and ``AutoTokenizer`` or ``AutoImageProcessor``.

    The written folder is loaded and compared as in an import.
    """
    choose_device(device)  # refused before anything is read
    destination = Path(destination)
    loaded = load_run(run)
    config = loaded.model.config
    family = family_for(config, loaded.task)
    conversion = conversion_of(family.task)
    settings = {**export_config(family, config), **conversion.settings(loaded)}
    with new_folder(destination) as folder:
        weights = export_weights(family, config, {name: w.detach() for name, w in weights_of(loaded.model).items()})
        transformers.AutoConfig.for_model(
            family.model_type, architectures=[family.architecture], dtype="float32", **settings
        ).save_pretrained(folder)
        save_file(weights, folder / WEIGHTS_FILE, metadata={"format": "pt"})
        notes = family.notes(config) + conversion.write(folder, loaded)
        stored = {"model": config.model_dump(mode="json"), "values": loaded.settings}
        tokenizer = {} if loaded.tokenizers is None else {"tokenizer": loaded.tokenizers.to_json()}
        write_json(folder / SETTINGS_FILE, {**stored, **tokenizer})
        parity = compare(loaded, conversion, family, folder, texts, device)
        parity.check(str(loaded.path))
    return Conversion(destination, family.model_type, parity, notes)


def unsupported_settings(family: Family, their_config: dict[str, Any], folder: Path, run: LoadedRun) -> list[str]:
    """Report settings without a counterpart, with their values and files, in at most one note."""
    unsupported: list[str] = []
    if neutral := conversion_of(family.task).generation:
        file = generation_file(folder)
        settings = unsupported_generation(read_json(file), neutral, set(suppressed_ids(run.pair.target)))
        unsupported += [f"{_shortened(name, value)} ({file.name})" for name, value in settings.items()]
    for name, neutral_value in family.training_only.items():
        value = their_config.get(name)
        expected = their_config[neutral_value] if isinstance(neutral_value, str) else neutral_value
        if value is not None and value != expected:
            unsupported.append(f"{_shortened(name, value)} (config.json)")
    return [f"left out: {', '.join(unsupported)}"] if unsupported else []


def _shortened(name: str, value: Any) -> str:
    """Setting and value, with long lists abbreviated."""
    return f"{name}={reprlib.repr(value)}"


def _with_defaults(their_config: dict[str, Any], origin: str) -> dict[str, Any]:
    """Add the defaults of their configuration class."""
    try:
        return {**transformers.AutoConfig.for_model(**their_config).to_dict(), **their_config}
    except Exception as error:  # their checks raise classes of their own
        message = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"{origin}: config.json is not usable ({message}); fix it there, or save the model again"
        ) from None


def _configuration(
    family: Family, their_config: dict[str, Any], weights: dict[str, Tensor], stored: dict[str, Any], origin: str
) -> Any:
    """Our configuration: the stored one of an export if both still agree, otherwise a conversion of theirs."""
    try:
        values = import_config(family, their_config, weights)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    kind: type[Config] = MODELS[values["kind"]][0]
    imported: Any = kind.parse(values, origin)
    if stored:
        config: Any = kind.parse(stored.get("model", {}), f"{origin}/{SETTINGS_FILE}")
        tied = [getattr(one, "tie_embeddings", None) for one in (imported, config)]  # training can untie embeddings
        agrees = tied[0] == tied[1] and _agree(export_config(family, config), their_config)
        if agrees and expresses(family, config, weights):  # else training has changed a constant
            return config
    return imported


def _imported_run(
    family: Family, model: Any, folder: Path, their_config: dict[str, Any], stored: dict[str, Any]
) -> LoadedRun:
    """The model with settings and tokenizers: the stored ones if ``config.json`` agrees, or those of the folder."""
    conversion = conversion_of(family.task)
    if stored:
        tokenizer = stored.get("tokenizer")
        pair = None if tokenizer is None else TokenizerPair.from_json(tokenizer, str(folder / SETTINGS_FILE))
        run = LoadedRun(model, stored.get("values", {}), pair, folder)
        if _agree(conversion.settings(run), their_config):
            return run
    values, pair = conversion.read(folder, their_config, model.config)
    return LoadedRun(model, values, pair, folder)


def _with_pooling(run: LoadedRun, root: Path, folder: Path) -> tuple[LoadedRun, list[str]]:
    """``run`` with the current pooling of ``root``, and notes on unsupported settings."""
    settings, notes = read_settings(root, folder, run.tokenizer, run.model.config.max_length)
    values = {name: value for name, value in run.settings.items() if name not in ("pooling", "normalize")}
    return replace(run, settings={**values, **settings}), notes


def _agree(settings: dict[str, Any], their_config: dict[str, Any]) -> bool:
    """True if ``their_config`` contains ``settings`` as JSON, in which the indices of classes are strings."""
    values = json.loads(json.dumps(settings))
    return all(name in their_config and their_config[name] == value for name, value in values.items())
