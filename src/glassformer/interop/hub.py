"""A model of the hub by its name: what is fetched, and in one line why it is not."""

from pathlib import Path

from glassformer.errors import CheckpointError
from glassformer.interop.optional import required

FETCHED = ["*.json", "*.safetensors", "*.spm", "vocab.txt", "merges.txt"]
"""Weights in safetensors, JSON and vocabularies: nothing that could run."""

huggingface_hub = required("huggingface_hub", "huggingface")
constants = required("huggingface_hub.constants", "huggingface")
errors = required("huggingface_hub.errors", "huggingface")


def fetched(name: str) -> Path:
    """The folder that holds the model ``name`` (owner/name), fetched before or now."""
    if name.count("/") > 1 or name.startswith((".", "/", "~")):
        raise _no_name(name)
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=FETCHED))
    except errors.HFValidationError:
        raise _no_name(name) from None
    except Exception as error:  # of many kinds: no network, no such name, not allowed
        answer = error.__cause__ if isinstance(error.__cause__, errors.HfHubHTTPError) else error
        raise CheckpointError(f"{name}: there is no such folder, and {_why(name, answer)}") from None


def _no_name(source: str) -> CheckpointError:
    return CheckpointError(f"{source}: there is no such folder; name one, or a model of the hub (owner/name)")


def _why(name: str, error: Exception) -> str:
    """What was asked where, and the way out."""
    hub, cache = constants.ENDPOINT, constants.HF_HUB_CACHE
    if isinstance(error, errors.GatedRepoError):
        return f"{hub}/{name} is only for who accepts its terms; accept them there, then: hf auth login"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"{hub} has no accessible model of that name; correct the name, or for a private model: hf auth login"
    if isinstance(error, errors.HfHubHTTPError) and error.response is not None:
        return f"{hub} refuses it (HTTP {error.response.status_code}); try again later, or name a local folder"
    if isinstance(error, OSError) and error.errno is not None:
        return f"{cache} cannot hold the model ({error.strerror}); free some space, or name another in HF_HOME"
    asked = "may not be asked (HF_HUB_OFFLINE is set)" if constants.HF_HUB_OFFLINE else "cannot be reached"
    return f"{hub} {asked}, nor is it in {cache}; name a local folder that save_pretrained has written, or go online"
