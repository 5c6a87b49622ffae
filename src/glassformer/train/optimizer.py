"""Section 5.3: Adam (Kingma & Ba 2015), or AdamW (Loshchilov & Hutter 2019)."""

import torch
from torch import Tensor, nn

from glassformer.train.config import OptimizerConfig


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Weight decay reaches matrices only: biases, gains and one-dimensional parameters are left alone."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    kind = torch.optim.AdamW if config.kind == "adamw" else torch.optim.Adam
    return kind(groups, lr=config.learning_rate, betas=config.betas, eps=config.epsilon, fused=True)


def clip_norm_(parameters: list[nn.Parameter], limit: float) -> Tensor:
    """Scale all gradients together so that their norm is at most ``limit`` (0: no limit); the norm before."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    if limit:
        torch._foreach_mul_(gradients, torch.clamp(limit / (norm + 1e-6), max=1.0))
    return norm
