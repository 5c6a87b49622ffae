"""The one table of model kinds, and the names under which their weights are stored."""

from typing import Any

import torch
from torch import Tensor, nn

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


def build_model(values: dict[str, Any], origin: str) -> Any:
    """A freshly initialised model from its stored configuration; of which class, its ``kind`` says."""
    kind = values.get("kind", "")
    if kind not in MODELS:
        raise ConfigError(f"{origin}: model.kind={kind!r} is not a model; {nearest(str(kind), list(MODELS))}")
    config, model = MODELS[kind]
    return model(config.parse(values, origin))


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
