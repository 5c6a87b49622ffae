"""The optimizer (section 5.3), its learning rate, and the update of the weights at the end of a step."""

import inspect
import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.optim.adam import adam

from glassformer.errors import ConfigError
from glassformer.layers.embedding import TokenEmbedding
from glassformer.native.abi import ParameterState, Update
from glassformer.native.library import loaded
from glassformer.native.ops import single_on_cpu
from glassformer.train.config import OptimizerConfig
from glassformer.train.distributed import ALONE, World, local, n_shards
from glassformer.train.division import is_sharded
from glassformer.train.state import TrainState, collect_gradients, refresh


class _WithoutCompiler:
    """Adam's methods without the decorators of PyTorch that import its compiler, 800 modules in several seconds.

    ``no_grad`` replaces what they do outside compiled code.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


class _Adam(_WithoutCompiler, torch.optim.Adam):
    """Adam (Kingma & Ba 2015)."""


class _AdamW(_WithoutCompiler, torch.optim.AdamW):
    """AdamW (Loshchilov & Hutter 2019)."""


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Adam or AdamW, with weight decay of matrices only.

    ``ConfigError``: ``embedding_rate`` for a model without a vocabulary.
    """
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, TokenEmbedding)}
    if not embeddings and config.embedding_rate != 1:
        raise ConfigError(
            "optimizer.embedding_rate is for models with a vocabulary, and this one has none; leave it out"
        )
    tables = [p for p in model.parameters() if id(p) in embeddings]
    matrices = [p for p in model.parameters() if p.dim() > 1 and id(p) not in embeddings]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [
        {"params": tables, "weight_decay": config.weight_decay, "rate": config.embedding_rate},
        {"params": matrices, "weight_decay": config.weight_decay, "rate": 1.0},
        {"params": others, "weight_decay": 0.0, "rate": 1.0},
    ]
    groups = [part for group in groups for part in _of_one_division(group)]
    kind = _AdamW if config.kind == "adamw" else _Adam
    optimizer = kind(groups, lr=config.learning_rate, betas=config.betas, eps=config.epsilon, fused=True)
    set_rate(optimizer, config.learning_rate)
    return optimizer


def _of_one_division(group: dict[str, Any]) -> list[dict[str, Any]]:
    """``group`` in parts whose tensors are divided over the same processes, as PyTorch's fused update requires."""
    parts: dict[Any, list[nn.Parameter]] = {}
    for parameter in group["params"]:
        parts.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    return [group | {"params": parameters} for parameters in parts.values() or [[]]]


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all groups, each with its factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate"]


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


class WeightUpdate(Protocol):
    """The update of one step: clipping, Adam, the moving average, the copy in low precision."""

    @property
    def norm(self) -> float:
        """Norm of all gradients together, before clipping."""

    def apply(self) -> None:
        """Update the weights."""


def weight_update(state: TrainState) -> WeightUpdate:
    """The update by the gradients of ``state``."""
    native = any(route.part == "update" and route.engine == "native" for route in state.routes)
    single = native and single_on_cpu(*(weight for weight, _, _ in state.weights))
    return NativeUpdate(state) if single else TorchUpdate(state)


class TorchUpdate:
    """Update by separate PyTorch operations."""

    def __init__(self, state: TrainState):
        self.state = state
        collect_gradients(state.compute_model, state.model)
        self._norm = clip_norm_(list(state.model.parameters()), state.config.optimizer.clip_norm, state.world)

    @property
    def norm(self) -> float:
        return self._norm.item()

    def apply(self) -> None:
        if self.state.in_parts:
            _step_in_parts(self.state.optimizer, self.state.world)
        else:
            self.state.optimizer.step()
        self.state.update_average()
        refresh(self.state.compute_model, self.state.model)


class NativeUpdate:
    """Update in the kernels, in one pass over the weights."""

    def __init__(self, state: TrainState):
        self.state, self.kernels = state, loaded()
        same = [(each, each[1].grad if each[0].grad is None else each[0].grad) for each in state.weights]
        self.weights = [(each, gradient.contiguous()) for each, gradient in same if gradient is not None]
        parameters = (ParameterState * len(self.weights))()
        for parameter, ((weight, low, average), gradient) in zip(parameters, self.weights, strict=True):
            parameter.value, parameter.gradient = weight.data_ptr(), gradient.data_ptr()
            parameter.count = weight.numel()
            parameter.bf16_copy = None if low is weight else low.data_ptr()
            parameter.average = None if average is None else average.data_ptr()
            parameter.bfloat16 = gradient.dtype == torch.bfloat16
        self.parameters, self.call = parameters, Update(parameters, len(parameters), threads=torch.get_num_threads())
        self.kernels.measure_gradients(self.call)
        self.norm = math.sqrt(self.call.squared_norm)

    def apply(self) -> None:
        optimizer, config, call = self.state.optimizer, self.state.config.optimizer, self.call
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        for parameter, ((weight, _, _), _) in zip(self.parameters, self.weights, strict=True):
            moments, group = _moments(optimizer, weight), groups[id(weight)]
            parameter.step = moments["step"].data_ptr()  # the kernel counts it too
            parameter.exp_avg, parameter.exp_avg_sq = moments["exp_avg"].data_ptr(), moments["exp_avg_sq"].data_ptr()
            parameter.learning_rate = group["lr"]
            parameter.decay = 1 - group["lr"] * group["weight_decay"]
        call.beta1, call.beta2 = config.betas
        call.epsilon, call.ema_rate = config.epsilon, 1 - self.state.average_decay
        call.scale = min(1.0, config.clip_norm / (self.norm + 1e-6)) if config.clip_norm else 1.0
        self.kernels.update_all(call)
        written = [each for same, _ in self.weights for each in same if each is not None]
        increment_version(written)  # as PyTorch's update does: a search from packed weights is then refused


def _moments(optimizer: torch.optim.Optimizer, weight: Tensor) -> dict[str, Tensor]:
    """Adam's moments of ``weight`` in the form of PyTorch's optimizer, so that either update continues the other."""
    state: dict[str, Tensor] = optimizer.state[weight]
    if not state:
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
    return state


def _step_in_parts(optimizer: torch.optim.Optimizer, world: World) -> None:
    """Update each part of the weights on its own, as FSDP2 divides them."""
    for group in optimizer.param_groups:
        weights = [weight for weight in group["params"] if weight.grad is not None]
        moments = [_moments(optimizer, weight) for weight in weights]
        steps = [moment["step"] for moment in moments]
        adam(
            world.parts(weights),
            world.parts([weight.grad for weight in weights]),
            world.parts([moment["exp_avg"] for moment in moments]),
            world.parts([moment["exp_avg_sq"] for moment in moments]),
            [],
            [step.clone() for weight, step in zip(weights, steps, strict=True) for _ in world.parts([weight])],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            eps=group["eps"],
            fused=True,
            **{name: group[name] for name in ("weight_decay", "decoupled_weight_decay", "amsgrad", "maximize")},
        )
        if steps:
            torch._foreach_add_(steps, 1)


def clip_norm_(parameters: list[nn.Parameter], limit: float, world: World = ALONE) -> Tensor:
    """Clip the norm of all gradients to ``limit`` (0: no limit); return the norm before.

    All processes call it. Each computes the norm of its part, so that DDP and FSDP2 take the same sums.
    """
    trained = [p for p in parameters if p.grad is not None]
    gradients = [local(p.grad) for p in trained]
    if world.size == 1:
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    else:
        sharded = any(map(is_sharded, parameters))
        parts = gradients if sharded else [world.own_part(gradient) for gradient in gradients]
        n_parts = 1 if sharded else world.n_replicas
        shares = [(n_parts * n_shards(p) / world.size) ** 0.5 for p in trained]  # as many processes have each part
        norm = _common_norm(parts, shares, world)
    if limit:
        torch._foreach_mul_(gradients, torch.clamp(limit / (norm + 1e-6), max=1.0))
    return norm


def _common_norm(gradients: list[Tensor], shares: list[float], world: World) -> Tensor:
    """Norm of the gradients of all processes, whose own ones are multiplied by ``shares``."""
    norms = torch.stack(torch._foreach_norm(gradients))
    squares = torch.linalg.vector_norm(norms * norms.new_tensor(shares)).square()
    return world.sum_by_rank(squares).sqrt()
