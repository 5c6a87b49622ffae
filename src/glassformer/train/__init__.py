"""Training: a configuration, a visible loop, and everything that resuming needs."""

from glassformer.train.config import OptimizerConfig, RunConfig, TrainConfig, ValidationConfig
from glassformer.train.log import Event, Finished, Progress, Skipped, Started, Stepped, Validated
from glassformer.train.loop import train
from glassformer.train.tasks import parse_config, read_config

__all__ = [
    "Event",
    "Finished",
    "OptimizerConfig",
    "Progress",
    "RunConfig",
    "Skipped",
    "Started",
    "Stepped",
    "TrainConfig",
    "Validated",
    "ValidationConfig",
    "parse_config",
    "read_config",
    "train",
]
