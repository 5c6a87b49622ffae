"""Section 5.3: Adam (Kingma & Ba 2015), or AdamW (Loshchilov & Hutter 2019)."""

import torch
from torch import Tensor, nn

from glassformer.config import ConfigError
from glassformer.layers.embedding import TokenEmbedding
from glassformer.train.config import OptimizerConfig


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Weight decay reaches matrices only: biases, gains and one-dimensional parameters are left alone.

    ``ConfigError``: ``embedding_rate`` for a model without a vocabulary.
    """
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, TokenEmbedding)}
    if not embeddings and config.embedding_rate != 1:
        raise ConfigError(
            "optimizer.embedding_rate is for models with a vocabulary, and this one has none; leave it out"
        )
    tables = [p for p in model.parameters() if id(p) in embeddings]
    matrices = [p for p in model.parameters() if p.dim() > 1 and id(p) not in embeddings]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [
        {"params": tables, "weight_decay": config.weight_decay, "rate": config.embedding_rate},
        {"params": matrices, "weight_decay": config.weight_decay, "rate": 1.0},
        {"params": others, "weight_decay": 0.0, "rate": 1.0},
    ]
    kind = torch.optim.AdamW if config.kind == "adamw" else torch.optim.Adam
    made = kind(groups, lr=config.learning_rate, betas=config.betas, eps=config.epsilon, fused=True)
    set_rate(made, config.learning_rate)
    return made


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """``rate`` for all but those that have a multiple of it."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate"]


def clip_norm_(parameters: list[nn.Parameter], limit: float) -> Tensor:
    """Scale all gradients together so that their norm is at most ``limit`` (0: no limit); the norm before."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    if limit:
        torch._foreach_mul_(gradients, torch.clamp(limit / (norm + 1e-6), max=1.0))
    return norm
