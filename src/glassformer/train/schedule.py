"""Learning rate as a function of the step (from 1)."""

import math
from collections.abc import Callable

from glassformer.train.config import OptimizerConfig


def learning_rate(config: OptimizerConfig, step: int, d_model: int, max_steps: int) -> float:
    """The learning rate of ``step``; every schedule but ``noam`` rises in a line to ``learning_rate`` first.

    In the last ``cooldown_steps`` it falls in a line to zero (Hägele et al. 2024, arXiv:2405.18392).
    """
    if config.schedule != "noam" and step < config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    left = (max_steps - step) / config.cooldown_steps if config.cooldown_steps else 1.0
    return SCHEDULES[config.schedule](config, step, d_model, max_steps) * min(1.0, max(0.0, left))


def _noam(config: OptimizerConfig, step: int, d_model: int, max_steps: int) -> float:
    """Equation 3: d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5); ``learning_rate`` is a factor on it."""
    return config.learning_rate * d_model**-0.5 * min(step**-0.5, step * max(1, config.warmup_steps) ** -1.5)


def _inverse_sqrt(config: OptimizerConfig, step: int, d_model: int, max_steps: int) -> float:
    return config.learning_rate * math.sqrt(max(1, config.warmup_steps) / step)


def _cosine(config: OptimizerConfig, step: int, d_model: int, max_steps: int) -> float:
    """Half a cosine from the peak down to zero at ``max_steps`` (Loshchilov & Hutter 2017)."""
    done = (step - config.warmup_steps) / max(1, max_steps - config.warmup_steps)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def _constant(config: OptimizerConfig, step: int, d_model: int, max_steps: int) -> float:
    return config.learning_rate


SCHEDULES: dict[str, Callable[[OptimizerConfig, int, int, int], float]] = {
    "noam": _noam,
    "inverse_sqrt": _inverse_sqrt,
    "cosine": _cosine,
    "constant": _constant,
}
