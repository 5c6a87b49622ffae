"""The one table of model kinds, and the names under which their weights are stored."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from glassformer.config import CheckpointError, Config, ConfigError, nearest
from glassformer.models.bert import BERT, BERTConfig
from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from glassformer.models.gpt import GPT, GPTConfig
from glassformer.models.recurrent import Recurrent, RecurrentConfig
from glassformer.models.series import Series, SeriesConfig
from glassformer.models.vit import ViT, ViTConfig

MODELS: dict[str, tuple[type[Config], type[nn.Module]]] = {
    "encoder_decoder": (EncoderDecoderConfig, EncoderDecoder),
    "gpt": (GPTConfig, GPT),
    "bert": (BERTConfig, BERT),
    "vit": (ViTConfig, ViT),
    "series": (SeriesConfig, Series),
    "recurrent": (RecurrentConfig, Recurrent),
}

DRAWING = {Tensor.uniform_, Tensor.normal_, nn.init.uniform_, nn.init.normal_, nn.init.kaiming_uniform_}
"""What initialising a model or a module of torch's calls, as far as a mode can see it."""


def build_model(values: dict[str, Any], origin: str) -> Any:
    """A freshly initialised model from its stored configuration; of which class, its ``kind`` says."""
    kind = values.get("kind", "")
    if kind not in MODELS:
        raise ConfigError(f"{origin}: model.kind={kind!r} is not a model; {nearest(str(kind), list(MODELS))}")
    config, model = MODELS[kind]
    return model(config.parse(values, origin))


def build_undrawn(values: dict[str, Any], origin: str) -> Any:
    """Likewise, its weights not initialised but for ``load_weights`` to fill; no random number is drawn."""
    with _Undrawn():
        return build_model(values, origin)


class _Undrawn(TorchFunctionMode):
    """What would draw random numbers into a tensor leaves it as it is."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, given: tuple[Any, ...] = (), named: dict[str, Any] | None = None
    ) -> Any:
        if function in DRAWING:
            return given[0] if given else (named or {})["tensor"]
        return function(*given, **(named or {}))


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once, by the name of its first use; a shared matrix has one name."""
    return dict(model.named_parameters())


@torch.no_grad()
def load_weights(model: nn.Module, weights: dict[str, Tensor], origin: str) -> None:
    """Copy ``weights`` into ``model``; a ``CheckpointError`` lists what is missing, left over or of another shape."""
    own = weights_of(model)
    faults = [f"{name} is missing" for name in own if name not in weights]
    faults += [f"{name} is not in the model" for name in weights if name not in own]
    faults += [
        f"{name} is {list(weights[name].shape)}, not {list(tensor.shape)}"
        for name, tensor in own.items()
        if name in weights and weights[name].shape != tensor.shape
    ]
    if faults:
        shown = "; ".join(faults[:5]) + (f"; and {len(faults) - 5} more" if len(faults) > 5 else "")
        raise CheckpointError(f"{origin}: the weights do not fit the configuration: {shown}")
    for name, tensor in own.items():
        tensor.copy_(weights[name])
