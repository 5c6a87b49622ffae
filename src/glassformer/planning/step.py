"""One training step of a configuration without data or memory: the code that trains is executed on empty tensors.

For a CPU on fake tensors, which know their device but have no content; for a GPU on meta tensors, with the fused
dropout and attention that PyTorch chooses there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from glassformer.errors import ConfigError
from glassformer.layers.block import Stack
from glassformer.models.registry import MODELS, build_uninitialized
from glassformer.planning.batch import BatchShape, batch_shape
from glassformer.planning.parallel import narrow_blocks
from glassformer.planning.record import Recorder, StepRecord
from glassformer.predict.loading import load_checked
from glassformer.storage.run_folder import resolve
from glassformer.tasks import TASKS, resolve_name
from glassformer.train.build import with_sizes_of
from glassformer.train.config import RunConfig
from glassformer.train.state import collect_gradients
from glassformer.train.task import Task


@dataclass(frozen=True)
class Training:
    """A configuration with the sizes that its data would decide, and the shape of its batches."""

    config: RunConfig
    values: dict[str, Any]
    """Configuration of the model."""
    shape: BatchShape

    @property
    def task(self) -> Task:
        return task_without_data(self.config)


def planned_training(config: RunConfig, origin: str, length: int = 0) -> Training:
    """Fill in the sizes that the data decide, from the configuration; ``ConfigError`` for those that it leaves out."""
    values = config.model.model_dump()
    if config.train.start_from:
        stored = load_checked(resolve(config.train.start_from)).config.get("model") or {}
        config, _ = with_sizes_of(config, stored, f"train.start_from={config.train.start_from}")
        values = config.model.model_dump() | {"vocab_size": stored.get("vocab_size", values.get("vocab_size"))}
    for name, known in _known_sizes(config).items():
        if name in values and not values[name]:
            values[name] = known
        if name in values and not values[name]:
            raise ConfigError(f"{origin}: the data decide model.{name}; add it, as in model.{name}=10")
    parsed = MODELS[values["kind"]][0].parse(values, origin)
    return Training(config, parsed.model_dump(), batch_shape(config, parsed, length))


def _known_sizes(config: RunConfig) -> dict[str, Any]:
    """Sizes that the data decide, as far as the configuration bounds them; None where it does not."""
    text = getattr(config, "text", None)
    sizes: dict[str, Any] = {}
    if text is not None:
        pair = config.task == "translation" and not text.joint
        sizes["vocab_size"] = (text.vocab_size, text.vocab_size) if pair else text.vocab_size
    if size := TASKS[config.task].size_from_data:
        sizes[size] = len(getattr(config.data, "columns", ())) or None  # of a series, variables
    return sizes


def task_without_data(config: RunConfig) -> Task:
    """The task of ``config``, whose data are not read: only its loss can be used, which needs the configuration."""
    task: Any = object.__new__(resolve_name(TASKS[config.task].training))
    task.config = config
    return cast(Task, task)


def record_step(training: Training, rows: int, gpu: bool, low_precision: bool = False, tensor: int = 1) -> StepRecord:
    """Record forward, loss and backward of one batch of ``rows`` rows on PyTorch's route.

    ``low_precision``: stacks in bfloat16, beside float32 weights (``train.precision``). ``tensor``: devices that divide
    the layers; the record is of one of them, without communication.
    """
    device = torch.device("meta" if gpu else "cpu")
    with _empty_tensors(gpu), torch.device(device):
        model = _uninitialized(training, tensor)
        compute = _with_low_stacks(model, _uninitialized(training, tensor)) if low_precision else model
        with Recorder(model, compute) as recorder:
            run_step(training.task, model, compute, training.shape.make(rows, device))
    return recorder.record


def _uninitialized(training: Training, tensor: int) -> nn.Module:
    model: nn.Module = build_uninitialized(training.values, "model").train()
    narrow_blocks(model, tensor)
    return model


def _with_low_stacks(model: nn.Module, low: nn.Module) -> nn.Module:
    """``models.device.cast_stacks``, which copies weights, for tensors that cannot be copied; ``low`` is of the same
    shape as ``model``."""
    stacks = tuple(f"{name}." for name, module in low.named_modules() if isinstance(module, Stack))
    for name, parameter in list(low.named_parameters(remove_duplicate=False)):
        owner, leaf = low.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
        if not name.startswith(stacks):
            owner._parameters[leaf] = model.get_parameter(name)
        else:
            owner._parameters[leaf] = nn.Parameter(torch.empty_like(parameter, dtype=torch.bfloat16))
    return low


def run_step(task: Task, model: nn.Module, compute: nn.Module, batch: Any) -> None:
    """Forward, loss, backward; the gradients are those of ``model``."""
    loss = task.loss(compute, batch)
    (loss.loss / batch.n_targets).backward()
    collect_gradients(compute, model)


@contextmanager
def _empty_tensors(gpu: bool) -> Iterator[None]:
    if gpu:
        with _GPUFunctions():
            yield
    else:
        with FakeTensorMode():
            yield


class _GPUFunctions(TorchFunctionMode):
    """Function mode in which meta tensors take the operations that PyTorch chooses on a GPU."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is F.dropout:
            return _fused_dropout(*args, **kwargs)
        if function is F.scaled_dot_product_attention:
            return _fused_attention(*args, **kwargs)
        return function(*args, **kwargs)


def _fused_dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout that stores a byte an element."""
    result: Tensor = torch.native_dropout(x, p, training)[0]
    return result


def _fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    enable_gqa: bool = False,
) -> Tensor:
    """Flash attention in low precision without a mask, else memory-efficient attention with the mask as numbers."""
    if enable_gqa:
        group = query.size(1) // key.size(1)
        key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    if attn_mask is None and query.dtype != torch.float32 and key.size(-1) == value.size(-1):
        flash: Tensor = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal)[0]
        return flash
    bias = None
    if attn_mask is not None:
        bias = torch.where(attn_mask, 0.0, float("-inf")).to(query.dtype)
        bias = bias.expand(query.size(0), query.size(1), query.size(2), key.size(2))
    efficient: Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, bias, True, dropout_p, is_causal
    )[0]
    return efficient
