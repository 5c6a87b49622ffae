"""The end of a step: the norm of the gradients, their clipping, Adam, the moving average, the copy in low precision.

On a CPU kernels do it in one pass over the weights; anywhere else PyTorch, one thing after the other.
"""

import math
from typing import Protocol

import torch
from torch import Tensor

from glassformer.native.abi import Slot, Update
from glassformer.native.library import Kernels
from glassformer.native.ops import kernels_for
from glassformer.train.optimizer import clip_norm_
from glassformer.train.precision import collect_gradients, refresh
from glassformer.train.state import TrainState


class WeightUpdate(Protocol):
    """Of one step."""

    @property
    def norm(self) -> float:
        """Of all gradients together, before they are clipped."""

    def apply(self) -> None:
        """Take the step."""


def weight_update(state: TrainState) -> WeightUpdate:
    """What the gradients of ``state`` ask for."""
    weights = [weight for weight, _, _ in state.weights]
    made = kernels_for(*weights)
    if made is None or not all(weight.is_contiguous() for weight in weights):
        return _Torch(state)
    return _Kernel(state, made)


class _Torch:
    def __init__(self, state: TrainState):
        self.state = state
        collect_gradients(state.working, state.model)
        self._norm = clip_norm_(list(state.model.parameters()), state.config.optimizer.clip_norm)

    @property
    def norm(self) -> float:
        return self._norm.item()

    def apply(self) -> None:
        self.state.optimizer.step()
        self.state.update_average()
        refresh(self.state.working, self.state.model)


class _Kernel:
    def __init__(self, state: TrainState, made: Kernels):
        self.state, self.made = state, made
        found = [(each, each[1].grad if each[0].grad is None else each[0].grad) for each in state.weights]
        self.weights = [(each, gradient.contiguous()) for each, gradient in found if gradient is not None]
        slots = (Slot * len(self.weights))()
        for slot, ((weight, low, average), gradient) in zip(slots, self.weights, strict=True):
            slot.value, slot.gradient, slot.count = weight.data_ptr(), gradient.data_ptr(), weight.numel()
            slot.low = None if low is weight else low.data_ptr()
            slot.average = None if average is None else average.data_ptr()
            slot.bfloat16 = gradient.dtype == torch.bfloat16
        self.slots, self.call = slots, Update(slots, len(slots), threads=torch.get_num_threads())
        made.measure(self.call)
        self.norm = math.sqrt(self.call.squared_norm)

    def apply(self) -> None:
        optimizer, config, call = self.state.optimizer, self.state.config.optimizer, self.call
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        weights = [weight for (weight, _, _), _ in self.weights]
        moments = [_moments(optimizer, weight) for weight in weights]
        torch._foreach_add_([each["step"] for each in moments], 1)
        steps = torch.stack([each["step"] for each in moments]).tolist()
        call.beta1, call.beta2 = config.betas
        call.epsilon, call.averaging = config.epsilon, 1 - self.state.average_decay
        call.scale = min(1.0, config.clip_norm / (self.norm + 1e-6)) if config.clip_norm else 1.0
        for slot, weight, moment, step in zip(self.slots, weights, moments, steps, strict=True):
            group = groups[id(weight)]
            slot.mean, slot.variance = moment["exp_avg"].data_ptr(), moment["exp_avg_sq"].data_ptr()
            slot.rate = group["lr"] / (1 - call.beta1**step)
            slot.correction = 1 / math.sqrt(1 - call.beta2**step)
            slot.kept = 1 - group["lr"] * group["weight_decay"]
        self.made.update(call)


def _moments(optimizer: torch.optim.Optimizer, weight: Tensor) -> dict[str, Tensor]:
    """As PyTorch's Adam keeps them, so that either can go on with what the other began."""
    state: dict[str, Tensor] = optimizer.state[weight]
    if not state:
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
    return state
