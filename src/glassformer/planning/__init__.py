"""Planning of a training without running it: arithmetic, memory, time, cost and failures for many devices."""

from glassformer.planning.devices import Device, find_device, known_devices
from glassformer.planning.failures import Failures
from glassformer.planning.plan import Estimate, MeasuredStep, Options, TrainingPlan, make_plan, worlds_to
from glassformer.planning.step import Training, planned_training

__all__ = [
    "Device",
    "Estimate",
    "Failures",
    "MeasuredStep",
    "Options",
    "Training",
    "TrainingPlan",
    "find_device",
    "known_devices",
    "make_plan",
    "planned_training",
    "worlds_to",
]
