"""State of a training run, complete enough to resume bit for bit."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any, cast

import torch
from torch import Tensor, nn

from glassformer.errors import CheckpointError, GlassformerError
from glassformer.layers.dropout import Dropout
from glassformer.models.deferred_init import RecordedInit
from glassformer.models.registry import build_uninitialized, check_shapes, load_weights, weights_of
from glassformer.native import Route
from glassformer.native.routes import arithmetic_of
from glassformer.storage.checkpoint import TrainingState, check_finite
from glassformer.storage.tensor_files import StoredTensors
from glassformer.train.config import RunConfig
from glassformer.train.distributed import (
    StepLoss,
    World,
    is_divided,
    is_lost_connection,
    local,
    replicate,
    whole_tensor,
)
from glassformer.train.division import is_sharded
from glassformer.train.loss import Loss
from glassformer.train.same_engine import Engine, check_same_engine
from glassformer.train.task import Ahead, Task


@dataclass
class Counters:
    """Counters that a resumed run restores."""

    step: int = 0
    target_tokens: int = 0
    seconds: float = 0.0
    """Training time without validation; the only counter that is not reproducible."""
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
    batches: Ahead
    compute_model: Any
    """Accelerated form of ``model`` (``native.accelerate``), on which the forward and backward pass run.

    It shares the parameters of ``model``, except for stacks in a lower precision (Micikevicius et al. 2018,
    arXiv:1710.03740, section 3.1; bfloat16 needs no loss scaling). Embeddings and the output projection stay float32:
    their gradients sum over many tokens, and bfloat16 has 8 bits of precision.
    """
    routes: list[Route]
    """The code that computes each part of ``compute_model``."""
    world: World = field(default_factory=World)
    """The processes that compute this training."""
    optimizer: torch.optim.Optimizer = field(init=False)
    replica: nn.Module | None = None
    """The loss of ``compute_model`` as a module that sums gradients over all processes; None in one process."""
    dirty: bool = True
    """True if ``model`` has changed since ``compute_model`` was made from it."""
    ema_model: nn.Module | None = None
    """Exponential moving average of ``model``, validated and saved in its place; None without ``train.ema``."""
    counters: Counters = field(default_factory=Counters)
    taken: list[str] = field(default_factory=list)
    """Lines that list the settings and weights taken from ``train.start_from``."""

    overrides: list[Override] = field(default_factory=list)
    """Changes of settings over the resumes of the run, oldest first."""

    @cached_property
    def weights(self) -> list[tuple[nn.Parameter, nn.Parameter, nn.Parameter | None]]:
        """Each parameter with its counterpart in ``compute_model`` (often itself) and its average."""
        averages = (
            [None] * len(list(self.model.parameters())) if self.ema_model is None else self.ema_model.parameters()
        )
        return list(zip(self.model.parameters(), self.compute_model.parameters(), averages, strict=True))

    @cached_property
    def dropouts(self) -> list[Dropout]:
        """Dropout modules of ``compute_model``, whose rate may rise during training."""
        return [module for module in self.compute_model.modules() if isinstance(module, Dropout)]

    def replicate(self) -> None:
        """Let several processes sum their gradients. Call it after a backward pass, which shows the unused weights."""
        world, train = self.world, self.config.train
        if world.size > 1 and world.tensor == 1 and train.accumulate == 1 and self.replica is None:
            trained = [weight for weight in self.compute_model.parameters() if weight.requires_grad]
            has_unused = any(world.gather(any(weight.grad is None for weight in trained)))
            by_torch = all(route.engine == "torch" for route in self.routes)
            self.replica = replicate(self.compute_model, self.task.loss, has_unused, by_torch)

    def divide(self, mesh: Any) -> None:
        """Divide the layers among the processes of the mesh ``mesh``, for tensor parallelism."""
        for model in filter(None, (self.model, self.ema_model)):
            import_module("glassformer.train.tensor_parallel").divide_blocks(model, mesh)

    def shard(self, mesh: Any, device: torch.device, low_precision: bool, record: RecordedInit) -> None:
        """Divide weights and gradients of a ``model`` without memory over ``mesh``, and initialize the shards.

        Before the optimizer is built. The average is divided too; ``start_average`` gives it its values.
        """
        sharded = _sharded()
        self.replica = StepLoss(self.model, self.task.loss)
        sharded.shard(self.replica, mesh, low_precision)
        self.replica.to_empty(device=device)
        sharded.initialize_shards(self.model, record)
        if self.ema_model is not None:
            sharded.shard(self.ema_model, mesh, low_precision=False)
            self.ema_model.to_empty(device=device)

    def start_average(self) -> None:
        """Begin the moving average of a divided model with its weights."""
        if self.ema_model is not None:
            _sharded().copy_shards(self.model, self.ema_model)

    @torch.no_grad()
    def whole_eval_model(self) -> nn.Module:
        """``eval_model`` for use by rank 0. Every process has to call it.

        If the weights are divided, it is a copy on rank 0, and no other process has more than one whole tensor.
        """
        weights = weights_of(self.eval_model)
        if not any(map(is_divided, weights.values())):
            return self.eval_model
        whole: nn.Module | None = None
        if self.world.leads:
            values = self.model_config.model_dump()
            whole = build_uninitialized(values, "this training").to(self.device).train(self.eval_model.training)
        targets = {} if whole is None else weights_of(whole)
        for name, w in weights.items():
            tensor = whole_tensor(w)
            if name in targets:
                targets[name].copy_(tensor)
        return self.eval_model if whole is None else whole

    def loss(self, batch: Any) -> Loss:
        """The loss of ``batch``; the gradients of a single batch are summed over all processes."""
        if self.replica is None:
            return self.task.loss(self.compute_model, batch)
        return cast(Loss, self.replica(batch))

    def forget_gradients(self) -> None:
        for weight, low, _ in self.weights:
            weight.grad = low.grad = None

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def model_config(self) -> Any:
        """Configuration of the model, with the sizes that the data decide."""
        return self.model.config

    @property
    def eval_model(self) -> nn.Module:
        return self.model if self.ema_model is None else self.ema_model

    @torch.no_grad()
    def update_average(self) -> None:
        """Update the moving average, if there is one."""
        if self.ema_model is not None:
            averages, weights = (list(map(local, one.parameters())) for one in (self.ema_model, self.model))
            if self.in_parts:
                averages, weights = self.world.parts(averages), self.world.parts(weights)
            torch._foreach_lerp_(averages, weights, 1 - self.average_decay)

    @property
    def in_parts(self) -> bool:
        """True if whole weights are updated in parts, as FSDP2 divides them, to the same bits.

        On a CPU PyTorch computes the last numbers of a tensor without vector instructions, which rounds differently.
        """
        world, weight = self.world, next(self.model.parameters())
        return world.n_replicas > 1 and weight.is_cpu and not is_sharded(weight)

    @property
    def average_decay(self) -> float:
        """Decay of the average; it grows from 0.1 so that the first steps fade (as in TensorFlow)."""
        step = self.counters.step
        return min(self.config.train.ema, (1 + step) / (10 + step))

    def snapshot(self) -> TrainingState:
        """State that ``restore`` needs besides the weights of ``eval_model``; of divided tensors, only this shard."""
        tensors = {f"optimizer.{name}": tensor for name, tensor in self._moments().items()}
        if self.ema_model is not None:
            tensors |= {f"live.{name}": tensor for name, tensor in weights_of(self.model).items()}
        divided = {name: tensor for name, tensor in tensors.items() if is_divided(tensor)}
        shards = {name: _sharded().shard_of(tensor, self.world) for name, tensor in divided.items()}
        tensors = {name: tensor for name, tensor in tensors.items() if name not in divided}
        tensors["random.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        values = {
            "counters": vars(self.counters).copy(),
            "batches": self.batches.state(),
            "overrides": [vars(override).copy() for override in self.overrides],
            "data": self.batches.fingerprint,
            "content": self.batches.content_digest,
            "config": self.config.model_dump(mode="json"),
            "kernels": self._kernels(),
            "routes": [[route.part, route.engine, route.reason] for route in self.routes],
            "threads": torch.get_num_threads(),
            "processes": self.world.size,
        }
        return TrainingState(values, tensors, {name: one for name, one in shards.items() if one is not None})

    def restore(self, weights: Mapping[str, Tensor], saved: TrainingState, origin: str) -> None:
        """Restore the run that made ``saved``; refuse other data than it was trained on."""
        try:
            self._restore(weights, saved, origin)
        except GlassformerError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            if is_lost_connection(error):
                raise
            reason = str(error).partition("\n")[0]
            raise CheckpointError(
                f"{origin}: training_state does not match this run ({reason}); start a new run"
            ) from None

    def _restore(self, weights: Mapping[str, Tensor], saved: TrainingState, origin: str) -> None:
        if saved.values["data"] != self.batches.fingerprint:
            raise CheckpointError(
                f"{origin}: the training data have changed since the run began; restore them, or start a new run"
            )
        content = saved.values.get("content", self.batches.content_digest)  # absent in early versions
        if content != self.batches.content_digest:
            raise CheckpointError(
                f"{origin}: text and vocabulary are those of the beginning of the run, but their token ids differ; "
                "resume with the version of glassformer that began the run, or start a new run"
            )
        check_same_engine(saved.values, Engine(self.routes, self._kernels()), self.model, self.config, origin)
        self._load(self.eval_model, weights, origin)
        if self.ema_model is not None:
            self._load(self.model, saved.tensors, origin, "live.")
        self._restore_moments(saved.tensors)
        self.dirty = True
        self.batches.restore(saved.values["batches"])
        self.counters = Counters(**saved.values["counters"])
        self.overrides = [Override(**values) for values in saved.values.get("overrides", [])]
        torch.set_rng_state(saved.tensors["random.cpu"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(saved.tensors["random.cuda"], self.device)

    def _load(self, model: nn.Module, tensors: Mapping[str, Tensor], origin: str, prefix: str = "") -> None:
        """Load the weights of ``model`` from ``tensors`` whose names have ``prefix``, if one is given."""
        if isinstance(tensors, StoredTensors):
            shapes = {name[len(prefix) :]: shape for name, shape in tensors.shapes.items() if name.startswith(prefix)}
            check_shapes(model, shapes, origin)
            weights = weights_of(model)
            _sharded().load_shards({prefix + name: w for name, w in weights.items()}, tensors)
            self.world.together(lambda: check_finite({name: local(w) for name, w in weights.items()}, origin))
            return
        named = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        if prefix:  # those without one were checked by ``load_checkpoint``
            check_finite(named, origin)
        load_weights(model, named, origin)

    def _kernels(self) -> str:
        """Version of the kernels' sums and random numbers; empty if no part of the model is computed by them."""
        return arithmetic_of(self.model, self.routes)

    def _moments(self) -> dict[str, Tensor]:
        """The optimizer's tensors under the names of the parameters they belong to."""
        return {
            f"{name}.{key}": value
            for name, parameter in weights_of(self.model).items()
            for key, value in self.optimizer.state.get(parameter, {}).items()
        }

    def _restore_moments(self, tensors: Mapping[str, Tensor]) -> None:
        moments: dict[str, list[str]] = {}
        for full in tensors:
            if full.startswith("optimizer."):
                name, key = full.removeprefix("optimizer.").rsplit(".", 1)
                moments.setdefault(name, []).append(key)
        for name, parameter in weights_of(self.model).items():
            for key in moments.get(name, []):
                self.optimizer.state[parameter][key] = self._moment(tensors, f"optimizer.{name}.{key}", parameter)

    def _moment(self, tensors: Mapping[str, Tensor], name: str, parameter: Tensor) -> Tensor:
        """The moment ``name`` of ``parameter``, divided as that is."""
        divided = isinstance(tensors, StoredTensors) and is_divided(parameter)
        shape = tensors.shapes[name] if isinstance(tensors, StoredTensors) else tuple(tensors[name].shape)
        if math.prod(shape) != 1 and shape != tuple(parameter.shape):
            raise ValueError(f"{name} is {list(shape)}, not {list(parameter.shape)}")
        if not divided or shape != tuple(parameter.shape):
            return tensors[name].to(parameter.device)
        moment = torch.empty_like(parameter, requires_grad=False)
        _sharded().load_shards({name: moment}, tensors)
        return moment


def _sharded() -> Any:
    """The module of divided tensors, whose import takes seconds."""
    return import_module("glassformer.train.sharded")


@torch.no_grad()
def refresh(compute_model: nn.Module, model: nn.Module) -> None:
    """Copy the weights of ``model`` to ``compute_model``, rounded."""
    low, high = _copied(compute_model, model)
    if low:
        torch._foreach_copy_(low, high)


@torch.no_grad()
def collect_gradients(compute_model: nn.Module, model: nn.Module) -> None:
    """Add the gradients of ``compute_model`` to those of ``model``, and clear them."""
    copied: tuple[list[Tensor], list[Tensor]] = [], []
    added: tuple[list[Tensor], list[Tensor]] = [], []
    for one, other in zip(*_copied(compute_model, model), strict=True):
        if one.grad is None:
            continue
        into, gradients = copied if other.grad is None else added
        other.grad = torch.empty_like(other) if other.grad is None else other.grad
        into.append(other.grad)
        gradients.append(one.grad)
        one.grad = None
    if copied[0]:  # one launch for all: hundreds of separate launches would keep a GPU waiting
        torch._foreach_copy_(*copied)
    if added[0]:
        torch._foreach_add_(*added)


def _copied(compute_model: nn.Module, model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Parameters of both that are not shared, in the same order."""
    pairs = [
        (one, other)
        for one, other in zip(compute_model.parameters(), model.parameters(), strict=True)
        if one is not other
    ]
    return [one for one, _ in pairs], [other for _, other in pairs]
