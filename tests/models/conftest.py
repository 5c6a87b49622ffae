"""Small models of every kind for equivalence tests: float64, evaluation mode, no vector left at 0 or 1."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

SMALL: dict[str, dict[str, Any]] = {
    "gpt": {"vocab_size": 12, "d_model": 16, "n_heads": 4, "d_ff": 24, "n_layers": 2, "max_length": 48},
    "bert": {"vocab_size": 12, "d_model": 16, "n_heads": 4, "d_ff": 24, "n_layers": 2, "max_length": 16},
    "vit": {"n_classes": 5, "image_size": (4, 6), "patch_size": 2, "n_channels": 1}
    | {"d_model": 16, "n_heads": 4, "d_ff": 24, "n_layers": 2},
    "series": {"context": 12, "horizon": 5, "patch_length": 4, "patch_stride": 4}
    | {"d_model": 16, "n_heads": 4, "d_ff": 24, "n_layers": 2},
}


@pytest.fixture(scope="session")
def build() -> Callable[..., Any]:
    """``build("gpt", gated=True)``."""

    from glassformer.models.registry import build_model

    def make(kind: str, **values: object) -> Any:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = build_model({"kind": kind, "dropout": 0.0, **SMALL[kind], **values}, "test")
            for name, parameter in model.named_parameters():
                if parameter.dim() == 1:
                    torch.nn.init.normal_(parameter, mean=parameter.detach().mean().item(), std=0.2)
                else:  # larger than 0.02, so that attention is not everywhere the same
                    parameter.data.mul_(10 if "norm" not in name else 1)
        return model.double().eval()

    return make
