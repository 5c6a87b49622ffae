"""The model's mathematics in C++ for CPUs (``csrc``), applied to a model from outside.

``accelerate(model)`` returns a model of the same interface; ``route(model)`` names the code that computes each part.
"""

from glassformer.native.accelerated import Accelerated
from glassformer.native.routes import (
    Engine,
    Precision,
    Route,
    accelerate,
    check_decoding,
    describe,
    grouped,
    route,
)

__all__ = [
    "Accelerated",
    "Engine",
    "Precision",
    "Route",
    "accelerate",
    "check_decoding",
    "describe",
    "grouped",
    "route",
]
