"""Pretrained models: folders fetched from the hub, and their weights, in safetensors only."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from glassformer.errors import CheckpointError
from glassformer.interop import require
from glassformer.interop.folder import read_json
from glassformer.storage.manifest import refusing

DOWNLOADED = ["*.json", "*.safetensors", "*.spm", "vocab.txt", "merges.txt"]
"""Patterns of weights in safetensors, JSON and vocabularies; none of these files can run code."""

huggingface_hub = require("huggingface_hub", "huggingface")
constants = require("huggingface_hub.constants", "huggingface")
errors = require("huggingface_hub.errors", "huggingface")


def fetch(name: str) -> Path:
    """Download the model ``name`` (owner/name) unless it is cached, and return its folder."""
    if name.count("/") > 1 or name.startswith((".", "/", "~")):
        raise _no_name(name)
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=DOWNLOADED))
    except errors.HFValidationError:
        raise _no_name(name) from None
    except Exception as error:  # many classes: no network, no such name, not allowed
        answer = error.__cause__ if isinstance(error.__cause__, errors.HfHubHTTPError) else error
        raise CheckpointError(f"{name}: there is no such folder, and {_reason(name, answer)}") from None


def _no_name(source: str) -> CheckpointError:
    return CheckpointError(f"{source}: there is no such folder; name one, or a model of the hub (owner/name)")


def _reason(name: str, error: Exception) -> str:
    """Reason of a failed download, and the remedy."""
    hub, cache = constants.ENDPOINT, constants.HF_HUB_CACHE
    if isinstance(error, errors.GatedRepoError):
        return f"{hub}/{name} is only for who accepts its terms; accept them there, then: hf auth login"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"{hub} has no accessible model of that name; correct the name, or for a private model: hf auth login"
    if isinstance(error, errors.HfHubHTTPError) and error.response is not None:
        return f"{hub} refuses it (HTTP {error.response.status_code}); try again later, or name a local folder"
    if isinstance(error, OSError) and error.errno is not None:
        return f"{cache} cannot hold the model ({error.strerror}); free some space, or name another in HF_HOME"
    state = "may not be asked (HF_HUB_OFFLINE is set)" if constants.HF_HUB_OFFLINE else "cannot be reached"
    return f"{hub} {state}, nor is it in {cache}; name a local folder that save_pretrained has written, or go online"


WEIGHTS_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read one file, or the parts that an index lists; a pickle could run any program, so it is refused."""
    if (folder / WEIGHTS_FILE).is_file():
        names = [WEIGHTS_FILE]
    elif (folder / INDEX).is_file():
        names = sorted(set(_parts(folder)))
    else:
        raise CheckpointError(f"{folder}: {_missing_weights(folder)}")
    weights: dict[str, Tensor] = {}
    for name in names:
        with refusing(f"{folder / name}: cannot be read"):
            weights |= _read(folder / name)
    return weights


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        if "os error" in str(error):
            raise
        raise CheckpointError(f"{path}: is damaged: it is not a complete safetensors file; copy it again") from None


def _parts(folder: Path) -> list[str]:
    listed = read_json(folder / INDEX).get("weight_map", {})
    parts = list(listed.values()) if isinstance(listed, dict) else []
    for name in parts:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{folder}: {INDEX} names {name!r}, which is not a file of the folder; copy it again")
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder}: {name} is missing; copy the entire folder again")
    return parts


def _missing_weights(folder: Path) -> str:
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        return (
            f"{pickles[0]} is a pickle, which can run any program, so it is not read; where you trust it, load the "
            "model with transformers and save_pretrained(…, safe_serialization=True), and import what that wrote"
        )
    return f"has no {WEIGHTS_FILE}; name a folder that save_pretrained has written"
