"""Training: call this module to train to the end, or iterate over the events of a training.

``glassformer.train("configs/x.toml", run="runs/x", overrides=["train.max_steps=100"])`` trains, prints nothing, and
returns a ``TrainingResult`` with the scores, the best checkpoint and ``load()``. The configuration may also be a
dictionary or a ``RunConfig``; ``resume=True`` continues a run exactly.

``glassformer.train.events(...)`` takes the same arguments and yields ``Started``, ``Progress``, ``Validated``,
``Skipped``, ``Corrupt`` and ``Finished`` while it trains. ``glassformer.train.train`` is the loop behind both.
"""

import sys

from glassformer.train.config import OptimizerConfig, RunConfig, TrainConfig, ValidationConfig
from glassformer.train.function import CallableModule, TrainingResult, events
from glassformer.train.log import Corrupt, Event, Finished, Progress, Skipped, Started, Stepped, Validated
from glassformer.train.loop import train
from glassformer.train.prepare import Advanced, prepare_shards
from glassformer.train.tasks import parse_config, read_config

__all__ = [
    "Advanced",
    "Corrupt",
    "Event",
    "Finished",
    "OptimizerConfig",
    "Progress",
    "RunConfig",
    "Skipped",
    "Started",
    "Stepped",
    "TrainConfig",
    "TrainingResult",
    "Validated",
    "ValidationConfig",
    "events",
    "parse_config",
    "prepare_shards",
    "read_config",
    "train",
]

sys.modules[__name__].__class__ = CallableModule
