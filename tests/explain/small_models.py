"""A small model of each kind, float64 and in evaluation mode, and one example for it: what a trace is made of."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from glassformer import Trace, trace
from glassformer.models.bert import BERT
from glassformer.models.registry import build_model
from glassformer.taps import Edit

STACK = {"d_model": 16, "n_heads": 4, "d_ff": 24, "n_layers": 2}
LLAMA = {
    "norm": "rms",
    "norm_eps": 1e-6,
    "positions": "rotary",
    "activation": "silu",
    "gated": True,
    "bias": False,
    "tie_embeddings": False,
    "attention": {"n_kv_heads": 2, "rope_theta": 50.0},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "gpt": {"kind": "gpt", "vocab_size": 12, **STACK},
    "llama": {"kind": "gpt", "vocab_size": 12, **STACK, **LLAMA},
    "bert": {"kind": "bert", "vocab_size": 12, **STACK, "n_classes": 3, "n_tags": 4},
    "vit": {"kind": "vit", "n_classes": 5, "image_size": (4, 6), "patch_size": 2, "n_channels": 3, **STACK},
    "series": {"kind": "series", "context": 12, "horizon": 5, "patch_length": 4, "patch_stride": 3, **STACK},
    "recurrent": {"kind": "recurrent", "vocab_size": 12, "d_model": 10, "d_hidden": 8, "n_heads": 2},
}
TOKENS, SEGMENTS, TARGET = [5, 3, 11, 7, 4, 2], [0, 0, 0, 1, 1, 1], [1, 9, 4, 10]


def small_model(variant: str, **values: Any) -> Any:
    """No vector of it is left at 0 or 1, where a fresh one has biases and gains; attention is nowhere even."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build_model({"dropout": 0.0, **VARIANTS[variant], **values}, "test")
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                torch.nn.init.normal_(parameter, mean=parameter.detach().mean().item(), std=0.2)
            elif "lstm" not in name and VARIANTS[variant]["kind"] != "recurrent":
                parameter.data.mul_(10)
    return model.double().eval()


def inputs(variant: str, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    if variant == "vit":
        return (torch.randn(1, 3, 4, 6, generator=generator, dtype=torch.float64).to(dtype),)
    if variant == "series":
        return (torch.randn(1, 12, 2, generator=generator, dtype=torch.float64).to(dtype),)
    if variant == "recurrent":
        return torch.tensor([TOKENS]), torch.tensor([TARGET])
    return (torch.tensor([TOKENS]),)


def recorded(variant: str, model: Any = None, edits: Mapping[str, Edit] | None = None) -> Trace:
    """Everything that the model and its heads compute for ``inputs``, under ``edits``."""
    model = small_model(variant) if model is None else model
    run: Callable[..., Any] = model
    given: tuple[Any, ...] = inputs(variant, next(model.parameters()).dtype)
    if isinstance(model, BERT):
        given = (*given, None, torch.tensor([SEGMENTS]))
        run = bert_with_heads(model)
    with trace(model, edits=edits) as t, torch.no_grad():
        run(*given)
    return t


def bert_with_heads(model: BERT) -> Callable[..., None]:
    """One pass through the encoder, and every head that the model has on what comes out."""

    def run(*given: Any) -> None:
        hidden = model.hidden(*given)
        if model.transform is not None and model.output_projection is not None:
            model.output_projection(model.transform(hidden))
        for head in (model.classes, model.tags):
            if head is not None:
                head(hidden)

    return run
