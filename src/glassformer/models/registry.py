"""The one table of model kinds, the names under which their weights are stored, and their sizes."""

import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from glassformer.config import Config
from glassformer.errors import CheckpointError, ConfigError, nearest
from glassformer.models.bert import BERT, BERTConfig
from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from glassformer.models.gpt import GPT, GPTConfig
from glassformer.models.recurrent import Recurrent, RecurrentConfig
from glassformer.models.series import SeriesConfig, SeriesModel
from glassformer.models.vit import ViT, ViTConfig
from glassformer.storage.tensor_header import TensorInfo

MODELS: dict[str, tuple[type[Config], type[nn.Module]]] = {
    "encoder_decoder": (EncoderDecoderConfig, EncoderDecoder),
    "gpt": (GPTConfig, GPT),
    "bert": (BERTConfig, BERT),
    "vit": (ViTConfig, ViT),
    "series": (SeriesConfig, SeriesModel),
    "recurrent": (RecurrentConfig, Recurrent),
}

LAYERS = ("n_layers", "n_encoder_layers", "n_decoder_layers")
STORED_DTYPE = "F32"
LARGEST_TABLES = 16 << 20
"""Maximum bytes of computed tables, such as sinusoids, in a model with smaller weights."""
INITIALIZERS = {Tensor.uniform_, Tensor.normal_, nn.init.uniform_, nn.init.normal_, nn.init.kaiming_uniform_}
"""Functions that initialize the weights of models and of PyTorch's modules, as a function mode sees them."""


def build_model(values: dict[str, Any], origin: str) -> Any:
    """A freshly initialized model from its stored configuration; of which class, its ``kind`` says."""
    config, model = _kind(values, origin)
    return model(config.parse(values, origin))


def _kind(values: dict[str, Any], origin: str) -> tuple[type[Config], type[nn.Module]]:
    kind = values.get("kind", "")
    if not isinstance(kind, str) or kind not in MODELS:
        raise ConfigError(f"{origin}: model.kind={kind!r} is not a model; {nearest(str(kind), list(MODELS))}")
    return MODELS[kind]


def migrate_model(values: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration, of a kind in ``MODELS``, with the present keys of this version."""
    config, _ = MODELS[values["kind"]]
    return config.migrate(values)


def build_uninitialized(values: dict[str, Any], origin: str) -> Any:
    """Likewise, its weights not initialized but for ``load_weights`` to fill; no random number is drawn."""
    with _SkipInit():
        return build_model(values, origin)


def check_stored(values: Any, stored: Mapping[str, TensorInfo], origin: str) -> Config:
    """Compare a stored configuration with the names and shapes of the ``stored`` tensors; return it, parsed strictly.

    The model is built on the meta device, so nothing is allocated, whatever sizes the configuration has.
    """
    if not isinstance(values, dict):
        raise CheckpointError(f"{origin}: model={shortened(values)} is not a section; restore the original")
    kind, build = _kind(values, origin)
    config = kind.parse_stored(values, origin)
    for key in LAYERS:
        if (n_layers := getattr(config, key, 0)) > len(stored):
            raise _unlike(origin, f"model.{key}={n_layers:,}, but there are only {len(stored):,} tensors")
    try:
        with torch.device("meta"), _SkipInit():
            model = build(config)
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        raise _unlike(origin, str(error).partition("\n")[0]) from None
    _compare({name: tuple(w.shape) for name, w in weights_of(model).items()}, _shapes(stored), origin)
    tables = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    if tables > max(LARGEST_TABLES, sum(info.n_bytes for info in stored.values())):
        raise _unlike(origin, f"its position tables would take {tables:,} bytes")
    for name, info in stored.items():
        if info.dtype != STORED_DTYPE:
            raise CheckpointError(f"{origin}: {name} is stored as {info.dtype}, not {STORED_DTYPE}; save it as float32")
    return config


def shortened(value: Any) -> str:
    """``repr`` of ``value``, abbreviated if it is long."""
    return reprlib.repr(value)


def _unlike(origin: str, reason: str) -> CheckpointError:
    return CheckpointError(f"{origin}: the configuration does not match the weights: {reason}; restore the original")


def _shapes(stored: Mapping[str, TensorInfo]) -> dict[str, tuple[int, ...]]:
    return {name: info.shape for name, info in stored.items()}


class _SkipInit(TorchFunctionMode):
    """Function mode in which initializers leave tensors as they are."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        arguments: tuple[Any, ...] = (),
        keywords: dict[str, Any] | None = None,
    ) -> Any:
        if function in INITIALIZERS:
            return arguments[0] if arguments else (keywords or {})["tensor"]
        return function(*arguments, **(keywords or {}))


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once, by the name of its first use; a shared matrix has one name."""
    return dict(model.named_parameters())


@torch.no_grad()
def load_weights(model: nn.Module, weights: Mapping[str, Tensor], origin: str) -> None:
    """Copy ``weights`` into ``model``; a ``CheckpointError`` lists what is missing, left over or of another shape."""
    check_shapes(model, {name: tuple(w.shape) for name, w in weights.items()}, origin)
    for name, tensor in weights_of(model).items():
        tensor.copy_(weights[name])


def check_shapes(model: nn.Module, stored: Mapping[str, tuple[int, ...]], origin: str) -> None:
    """Raise ``CheckpointError`` unless the ``stored`` weights have the names and shapes of those of ``model``."""
    _compare({name: tuple(w.shape) for name, w in weights_of(model).items()}, stored, origin)


def _compare(own: Mapping[str, tuple[int, ...]], stored_shapes: Mapping[str, tuple[int, ...]], origin: str) -> None:
    differences = [f"{name} is missing" for name in own if name not in stored_shapes]
    differences += [f"{name} is not in the model" for name in stored_shapes if name not in own]
    differences += [
        f"{name} is {list(stored_shapes[name])}, not {list(shape)}"
        for name, shape in own.items()
        if name in stored_shapes and stored_shapes[name] != shape
    ]
    if differences:
        listed = "; ".join(differences[:5]) + (f"; and {len(differences) - 5} more" if len(differences) > 5 else "")
        raise CheckpointError(f"{origin}: the weights do not fit the configuration: {listed}; restore the original")


def parameters_by_part(model: nn.Module) -> dict[str, int]:
    """Each parameter counted once, where it is first used; ``total`` is their sum."""
    counted: set[int] = set()
    parts: dict[str, int] = {}
    for name, part in model.named_children():
        if held := {id(p): p.numel() for p in part.parameters()}:
            parts[name] = sum(size for p, size in held.items() if p not in counted)
            counted.update(held)
    return {**parts, "total": sum(parts.values())}


def summary(name: str, model: nn.Module, *details: object) -> str:
    """One-line representation of an object: ``<Generator: gpt, 1,234 parameters, …>``."""
    kind = getattr(getattr(model, "config", None), "kind", type(model).__name__)
    total = parameters_by_part(model)["total"]
    parts = [str(kind), f"{total:,} parameters", *(str(detail) for detail in details if detail)]
    return f"<{name}: {', '.join(parts)}>"


def flops_per_token(model: nn.Module) -> dict[str, int]:
    """Matrix products of a forward pass, a multiplication and an addition counted as two; nothing for models that
    neither read nor write one token at a time.

    Products with weights only: those of attention itself grow with the length, and are a few percent at 30 tokens.
    The keys and values of the encoder–decoder attention are computed from the source, so they count there.
    """
    if isinstance(model, GPT):
        return {"target_token": _products(model.decoder, ("",)) + 2 * model.output_projection.weight.numel()}
    if isinstance(model, BERT):
        return {"source_token": _products(model.encoder, ("",))}
    if not isinstance(model, EncoderDecoder):
        return {}
    of_memory = _products(model.decoder, ("cross_attention.key", "cross_attention.value"))
    of_target = _products(model.decoder, ("",)) - of_memory + 2 * model.output_projection.weight.numel()
    return {"source_token": _products(model.encoder, ("",)) + of_memory, "target_token": of_target}


def _products(module: nn.Module, endings: tuple[str, ...]) -> int:
    return sum(
        2 * part.weight.numel()
        for name, part in module.named_modules()
        if isinstance(part, nn.Linear) and name.endswith(endings)
    )
