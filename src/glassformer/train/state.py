"""Everything that a training run is at one moment, so that it can be stopped and go on bit for bit."""

import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.checkpoint import TrainingState, check_finite
from glassformer.config import CheckpointError, GlassformerError
from glassformer.layers.dropout import Dropout
from glassformer.models.registry import load_weights, weights_of
from glassformer.native.library import kernels
from glassformer.train.ahead import Ahead
from glassformer.train.config import RunConfig
from glassformer.train.task import Task


@dataclass
class Counters:
    """Numbers that a resumed run goes on with."""

    step: int = 0
    target_tokens: int = 0
    seconds: float = 0.0
    """Of training, validation not counted; the only number here that the clock decides."""
    bad_steps: int = 0
    best: float | None = None
    best_step: int = 0
    best_loss: float | None = None
    """Validation loss at ``best``, which decides between equal values; None if the task has none."""
    zero_scores: int = 0
    """Number of validations in which the metric was BLEU and 0."""
    without_improvement: int = 0


@dataclass(frozen=True)
class Override:
    """Change of a setting by ``train.override_on_resume`` at ``step``."""

    step: int
    name: str
    before: Any
    now: Any


@dataclass
class TrainState:
    """The parts of a run that change while it trains."""

    config: RunConfig
    task: Task
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: Ahead
    working: nn.Module
    """What forward and backward run on: ``model``, or its copy in the lower precision (``train.precision``)."""
    stale: bool = True
    """Whether ``model`` has changed since ``working`` was made like it."""
    averaged: nn.Module | None = None
    """The exponential moving average of ``model``, when there is one; what is validated and saved as the model."""
    counters: Counters = field(default_factory=Counters)
    taken: list[str] = field(default_factory=list)
    """What a run that starts from another one has of its weights, in a line."""

    overrides: list[Override] = field(default_factory=list)
    """Changes of settings over the resumes of the run, oldest first."""

    @cached_property
    def weights(self) -> list[tuple[nn.Parameter, nn.Parameter, nn.Parameter | None]]:
        """Every weight, what stands for it in ``working``, often itself, and its average."""
        averages = [None] * len(list(self.model.parameters())) if self.averaged is None else self.averaged.parameters()
        return list(zip(self.model.parameters(), self.working.parameters(), averages, strict=True))

    @cached_property
    def dropouts(self) -> list[Dropout]:
        """Of ``working``; what they drop may rise in the course of training."""
        return [module for module in self.working.modules() if isinstance(module, Dropout)]

    def forget_gradients(self) -> None:
        for weight, low, _ in self.weights:
            weight.grad = low.grad = None

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def model_config(self) -> Any:
        """The model's own, with what its data decided."""
        return self.model.config

    @property
    def best_model(self) -> nn.Module:
        return self.model if self.averaged is None else self.averaged

    def start_average(self) -> None:
        self.averaged = copy.deepcopy(self.model).requires_grad_(False)
        self.__dict__.pop("weights", None)

    @torch.no_grad()
    def update_average(self) -> None:
        """One step further, if there is one."""
        if self.averaged is not None:
            weights: list[Tensor] = list(self.model.parameters())
            torch._foreach_lerp_(list(self.averaged.parameters()), weights, 1 - self.average_decay)

    @property
    def average_decay(self) -> float:
        """It grows from 0.1, so that the first steps do not stay in the average (as in TensorFlow's)."""
        step = self.counters.step
        return min(self.config.train.ema, (1 + step) / (10 + step))

    def snapshot(self) -> TrainingState:
        """What ``restore`` needs beside ``best_model``'s weights."""
        tensors = {f"optimizer.{name}": tensor for name, tensor in self._moments().items()}
        tensors["random.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        if self.averaged is not None:
            tensors |= {f"live.{name}": tensor for name, tensor in weights_of(self.model).items()}
        values = {
            "counters": vars(self.counters).copy(),
            "batches": self.batches.state(),
            "overrides": [vars(override).copy() for override in self.overrides],
            "data": self.batches.fingerprint,
            "content": self.batches.content_digest,
            "config": self.config.model_dump(mode="json"),
            "kernels": self._kernels(),
        }
        return TrainingState(values, tensors)

    def restore(self, weights: dict[str, Tensor], saved: TrainingState, origin: str) -> None:
        """Restore the run that made ``saved``; refuse other data than it was trained on."""
        try:
            self._restore(weights, saved, origin)
        except GlassformerError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise CheckpointError(
                f"{origin}: training_state does not match this run ({reason}); start a new run"
            ) from None

    def _restore(self, weights: dict[str, Tensor], saved: TrainingState, origin: str) -> None:
        if saved.values["data"] != self.batches.fingerprint:
            raise CheckpointError(f"{origin}: the training data are not those the run began with; start a new run")
        content = saved.values.get("content", self.batches.content_digest)  # absent in early versions
        if content != self.batches.content_digest:
            raise CheckpointError(
                f"{origin}: text and vocabulary are those the run began with, but the token ids made from them "
                "differ; resume with the version of glassformer that began the run, or start a new run"
            )
        now = self._kernels()
        before = saved.values.get("kernels", now) or ""  # 0, in the earliest, where PyTorch did it all
        if before != now:
            raise CheckpointError(
                f"{origin}: was trained with compiled kernels of version {before or 'none'}, here is {now or 'none'}, "
                "and it goes on exactly only with the same; resume with the glassformer that it was trained with, on a "
                "machine of the same kind, with a C++ compiler if it had one"
            )
        load_weights(self.best_model, weights, origin)
        if self.averaged is not None:
            live = {name[5:]: tensor for name, tensor in saved.tensors.items() if name.startswith("live.")}
            check_finite(live, origin)
            load_weights(self.model, live, origin)
        self._restore_moments(saved.tensors)
        self.stale = True
        self.batches.restore(saved.values["batches"])
        self.counters = Counters(**saved.values["counters"])
        self.overrides = [Override(**values) for values in saved.values.get("overrides", [])]
        torch.set_rng_state(saved.tensors["random.cpu"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(saved.tensors["random.cuda"], self.device)

    def _kernels(self) -> str:
        """On a CPU, what the random numbers of dropout and the order of sums depend on; empty without kernels."""
        made = kernels() if self.device.type == "cpu" else None
        return "" if made is None else made.arithmetic

    def _moments(self) -> dict[str, Tensor]:
        """The optimizer's tensors under the names of the parameters they belong to."""
        return {
            f"{name}.{key}": value
            for name, parameter in weights_of(self.model).items()
            for key, value in self.optimizer.state.get(parameter, {}).items()
        }

    def _restore_moments(self, tensors: dict[str, Tensor]) -> None:
        moments: dict[str, dict[str, Any]] = {}
        for full, tensor in tensors.items():
            if full.startswith("optimizer."):
                name, key = full.removeprefix("optimizer.").rsplit(".", 1)
                moments.setdefault(name, {})[key] = tensor
        for name, parameter in weights_of(self.model).items():
            for key, tensor in moments.get(name, {}).items():
                if tensor.numel() != 1 and tensor.shape != parameter.shape:
                    raise ValueError(f"{key} of {name} is {list(tensor.shape)}, not {list(parameter.shape)}")
                self.optimizer.state[parameter][key] = tensor.to(parameter.device)
