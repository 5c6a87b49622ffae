"""State of a training run, complete enough to resume bit for bit."""

import copy
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.errors import CheckpointError, GlassformerError
from glassformer.layers.block import Stack
from glassformer.layers.dropout import Dropout
from glassformer.models.registry import load_weights, weights_of
from glassformer.native import Route, describe
from glassformer.native.library import loaded
from glassformer.storage.checkpoint import TrainingState, check_finite
from glassformer.tasks import resolve_name
from glassformer.train.config import RunConfig
from glassformer.train.distributed import StepLoss, World, like, replicate, whole
from glassformer.train.loss import Loss
from glassformer.train.task import BatchSource, Task


class Ahead:
    """Batch source that prefetches one batch while a GPU computes; ``epoch`` and ``state`` do not count it."""

    def __init__(self, source: BatchSource):
        self._source = source
        self._prefetched: list[Future[Any]] = []
        self._before: tuple[int, dict[str, Any]] = 0, {}

    def prepare(self) -> None:
        """Make the next batch if there is none. ``next`` raises the exception of a failed attempt."""
        if self._prefetched:
            return
        self._before = self._source.epoch, self._source.state()
        batch: Future[Any] = Future()
        try:
            batch.set_result(self._source.next())
        except Exception as fault:
            batch.set_exception(fault)
        self._prefetched.append(batch)

    def next(self) -> Any:
        self.prepare()
        return self._prefetched.pop().result()

    def state(self) -> dict[str, Any]:
        return self._before[1] if self._prefetched else self._source.state()

    def restore(self, state: dict[str, Any]) -> None:
        self._prefetched.clear()
        self._source.restore(state)

    @property
    def epoch(self) -> int:
        return self._before[0] if self._prefetched else self._source.epoch

    @property
    def fingerprint(self) -> str:
        return self._source.fingerprint

    @property
    def content_digest(self) -> str:
        return self._source.content_digest

    @property
    def padding_share(self) -> float:
        return self._source.padding_share

    def __len__(self) -> int:
        return len(self._source)

    def largest(self) -> Any:
        return self._source.largest()


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
    plain: nn.Module | None = None
    """Copy with whole weights, for validation by rank 0, while the weights of ``model`` are divided; else None."""
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
        if self.world.size > 1 and self.config.train.accumulate == 1 and self.replica is None:
            trained = [weight for weight in self.compute_model.parameters() if weight.requires_grad]
            has_unused = any(self.world.gather(any(weight.grad is None for weight in trained)))
            self.replica = replicate(self.compute_model, self.task.loss, has_unused)

    def shard(self, low_precision: bool) -> None:
        """Divide weights, gradients and average among the processes. Before the optimizer is built."""
        if self.world.leads:
            self.plain = copy.deepcopy(self.model)
        self.replica = StepLoss(self.model, self.task.loss)
        shard = resolve_name("glassformer.train.sharded:shard")
        shard(self.replica, self.world.size, self.device, low_precision)
        if self.ema_model is not None:
            shard(self.ema_model, self.world.size, self.device, low_precision=False)

    @torch.no_grad()
    def whole_eval_model(self) -> nn.Module:
        """``eval_model`` for use by rank 0. Every process has to call it."""
        if self.config.train.parallel == "ddp" or self.world.size == 1:
            return self.eval_model
        weights = whole(weights_of(self.eval_model))
        if self.plain is not None:
            load_weights(self.plain, weights, "this training")
        return self.plain or self.eval_model

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
            weights: list[Tensor] = list(self.model.parameters())
            torch._foreach_lerp_(list(self.ema_model.parameters()), weights, 1 - self.average_decay)

    @property
    def average_decay(self) -> float:
        """Decay of the average; it grows from 0.1 so that the first steps fade (as in TensorFlow)."""
        step = self.counters.step
        return min(self.config.train.ema, (1 + step) / (10 + step))

    def snapshot(self) -> TrainingState:
        """State that ``restore`` needs besides the weights of ``eval_model``. Every process has to call it."""
        tensors = {f"optimizer.{name}": tensor for name, tensor in whole(self._moments()).items()}
        tensors["random.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        if self.ema_model is not None:
            tensors |= {f"live.{name}": tensor for name, tensor in whole(weights_of(self.model)).items()}
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
            raise CheckpointError(
                f"{origin}: the training data have changed since the run began; restore them, or start a new run"
            )
        content = saved.values.get("content", self.batches.content_digest)  # absent in early versions
        if content != self.batches.content_digest:
            raise CheckpointError(
                f"{origin}: text and vocabulary are those of the beginning of the run, but their token ids differ; "
                "resume with the version of glassformer that began the run, or start a new run"
            )
        self._check_engine(saved.values, origin)
        self._load(self.eval_model, weights, origin)
        if self.ema_model is not None:
            live = {name[5:]: tensor for name, tensor in saved.tensors.items() if name.startswith("live.")}
            check_finite(live, origin)
            self._load(self.model, live, origin)
        self._restore_moments(saved.tensors)
        self.dirty = True
        self.batches.restore(saved.values["batches"])
        self.counters = Counters(**saved.values["counters"])
        self.overrides = [Override(**values) for values in saved.values.get("overrides", [])]
        torch.set_rng_state(saved.tensors["random.cpu"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(saved.tensors["random.cuda"], self.device)

    def _load(self, model: nn.Module, weights: dict[str, Tensor], origin: str) -> None:
        own = weights_of(model)
        load_weights(model, {name: like(w, own[name]) if name in own else w for name, w in weights.items()}, origin)

    def _kernels(self) -> str:
        """Version of the kernels' sums and random numbers; empty if no part of the model is computed by them."""
        native = any(route.engine.startswith("native") for route in self.routes)
        return loaded().arithmetic if native else ""

    def _check_engine(self, saved: dict[str, Any], origin: str) -> None:
        """Raise ``CheckpointError`` if another engine, or other kernels, trained the run: bits would differ."""
        before = saved.get("kernels", self._kernels()) or ""  # 0 in the earliest versions, without kernels
        routes = [[route.part, route.engine] for route in self.routes]
        stored = [one[:2] for one in saved.get("routes", self._early_routes(before))]
        if stored != routes:
            parts = ", ".join(f"{part} by {engine}" for part, engine in stored if [part, engine] not in routes)
            engines = {engine for _, engine in stored}
            native = any(engine.startswith("native") for engine in engines)
            choice = "auto with the kernels" if native else "compile" if "compile" in engines else "torch"
            way_out = "" if "an earlier version" in engines else f"set train.engine={choice}, or "
            raise CheckpointError(
                f"{origin}: trained with {parts or 'other parts'}, but this process has {describe(self.routes)}; a run "
                f"continues exactly only on the same engine; {way_out}start a new run"
            )
        if before != (now := self._kernels()):
            raise CheckpointError(
                f"{origin}: trained with kernels of version {before or 'none'}, but this process has {now or 'none'}; "
                "a run continues exactly only with the same kernels; resume with the glassformer version and the kind "
                "of processor that began the run, or start a new run"
            )

    def _early_routes(self, kernels: str) -> list[list[str]]:
        """Routes assumed for a checkpoint that stores none: the present ones if the results are equal to the bit.

        Earlier versions trained whole stacks only with biases and without SiLU. Other parts had other random numbers.
        """
        layers = [module for stack in self.model.modules() if isinstance(stack, Stack) for module in stack.modules()]
        biased = all(layer.bias is not None for layer in layers if hasattr(layer, "bias"))
        known = all(getattr(layer, "activation", None) is not F.silu for layer in layers)
        guided = bool(getattr(self.config.data, "alignments", None))
        if kernels and biased and known and not guided and all(route.engine == "native" for route in self.routes):
            return [[route.part, route.engine] for route in self.routes]
        return [["the model", "an earlier version"]]

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
                divided = like(tensor, parameter) if tensor.shape == parameter.shape else tensor.to(parameter.device)
                self.optimizer.state[parameter][key] = divided


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
