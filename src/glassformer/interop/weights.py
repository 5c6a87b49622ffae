"""The tensors of a folder that Hugging Face's ``save_pretrained`` wrote. Nothing but safetensors is read."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from glassformer.errors import CheckpointError
from glassformer.interop.tokenizer_json import read_json
from glassformer.storage.manifest import refusing

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """One file, or the parts that an index lists. A pickle could run any program, so it is refused."""
    if (folder / WHOLE).is_file():
        names = [WHOLE]
    elif (folder / INDEX).is_file():
        names = sorted(set(_parts(folder)))
    else:
        raise CheckpointError(f"{folder}: {_absence(folder)}")
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


def _absence(folder: Path) -> str:
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        return (
            f"{pickles[0]} is a pickle, which can run any program, so it is not read; where you trust it, load the "
            "model with transformers and save_pretrained(…, safe_serialization=True), and import what that wrote"
        )
    return f"has no {WHOLE}; name a folder that save_pretrained has written"
