"""Record of the operations of a training step: arithmetic, memory traffic, and the memory alive at each moment.

``Recorder`` is a dispatch mode, so it sees what PyTorch really executes, on tensors with or without memory.
"""

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count, shape_wrapper

aten = torch.ops.aten


Shape = tuple[int, ...]


def _attention(q: Shape, k: Shape, v: Shape, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(q, k, v))


def _attention_backward(d: Shape, q: Shape, k: Shape, v: Shape, *_: Any, **__: Any) -> int:
    return int(sdpa_backward_flop_count(d, q, k, v))


def _recurrent(x: Shape, w_input: Shape, w_hidden: Shape, *_: Any, **__: Any) -> int:
    return 2 * x[0] * x[1] * (math.prod(w_input) + math.prod(w_hidden))


def _recurrent_backward(x: Shape, w_input: Shape, w_hidden: Shape, *_: Any, **__: Any) -> int:
    return 2 * _recurrent(x, w_input, w_hidden)


CPU_FLOPS: dict[Any, Callable[..., int]] = {
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    aten.mkldnn_rnn_layer: _recurrent,
    aten.mkldnn_rnn_layer_backward: _recurrent_backward,
}
"""Products of CPU operations that ``torch.utils.flop_counter`` does not know, from the shapes of their arguments."""

ALLOCATIONS = {aten.empty, aten.new_empty, aten.empty_like, aten.empty_strided, aten.new_empty_strided, aten.detach}
FAULT_CHECKS: dict[Any, Callable[[Tensor], Any]] = {
    aten._local_scalar_dense.default: lambda x: False if x.dtype == torch.bool else 0,
    aten.nonzero.default: lambda x: x.new_empty(0, x.dim(), dtype=torch.long),
}
"""Results for tensors without memory: checks such as ``(target < 0).any()`` find no fault in a batch."""

GATHERS = {aten.embedding, aten.index_select, aten.index, aten.gather}
"""Operations that read as much of their first input as they write."""


@dataclass(frozen=True)
class Operation:
    """One kind of operation: its name, arithmetic and memory traffic of a call, and the type it computes in."""

    name: str
    flops: int
    n_bytes: int
    dtype: torch.dtype
    shapes: tuple[tuple[int, ...], ...] = ()
    """Shapes of the inputs, for matrix products."""


@dataclass
class StepRecord:
    """Operations of one step with the number of their calls, and its peaks of memory in bytes."""

    operations: dict[Operation, int] = field(default_factory=dict)
    activations: int = 0
    """Bytes beside weights, optimizer and gradients at the moment with the most bytes in use."""
    peak_gradients: int = 0
    """Bytes of gradients at that moment."""

    @property
    def flops(self) -> int:
        """Matrix products, a multiplication and an addition counted as two."""
        return sum(operation.flops * calls for operation, calls in self.operations.items())

    @property
    def n_operations(self) -> int:
        return sum(self.operations.values())


class Recorder(TorchDispatchMode):
    """Records what is executed in its block; memory that existed before does not count.

    The complete gradients of ``models`` are counted apart.
    """

    def __init__(self, *models: nn.Module):
        super().__init__()
        self.record = StepRecord()
        self._parameters = list({id(p): p for model in models for p in model.parameters()}.values())
        buffers = [buffer for model in models for buffer in model.buffers()]
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        self._outside = {tensor.untyped_storage()._cdata for tensor in [*self._parameters, *buffers, *gradients]}
        self._now = self._peak = self._gradients()
        self._storages: dict[int, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default:
            return func(*args, **kwargs)
        if func in FAULT_CHECKS and not _has_memory(args[0]):
            return FAULT_CHECKS[func](args[0])
        result = func(*args, **kwargs)
        outputs = _tensors(result)
        self._allocate(outputs)
        packet = func.overloadpacket
        if not func.is_view and packet not in ALLOCATIONS:
            inputs = _tensors((args, kwargs))
            self._count(packet, args, kwargs, result, inputs, outputs)
        return result

    def _count(
        self, packet: Any, args: Any, kwargs: Any, result: Any, inputs: list[Tensor], outputs: list[Tensor]
    ) -> None:
        flops, shapes = 0, tuple[tuple[int, ...], ...]()
        if packet in CPU_FLOPS:
            flops = int(shape_wrapper(CPU_FLOPS[packet])(*args))
        elif packet in flop_registry:
            flops = int(flop_registry[packet](*args, **kwargs, out_val=result))
            shapes = tuple(tuple(tensor.shape) for tensor in inputs)
        written = sum(map(_traffic, outputs))
        if packet in GATHERS:
            read = written + sum(map(_traffic, inputs[1:]))
        else:
            read = sum(map(_traffic, inputs))
        dtype = inputs[0].dtype if inputs else outputs[0].dtype if outputs else torch.float32
        operation = Operation(packet.__name__, flops, read + written, dtype, shapes)
        self.record.operations[operation] = self.record.operations.get(operation, 0) + 1

    def _allocate(self, tensors: list[Tensor]) -> None:
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key in self._outside or key in self._storages:
                continue
            size = storage.nbytes()
            self._now += size
            self._storages[key] = weakref.ref(storage, partial(self._free, key, size))
        if self._now > self._peak:
            self._peak = self._now
            self.record.peak_gradients = self._gradients()
            self.record.activations = self._now - self.record.peak_gradients

    def _free(self, key: int, size: int, _: Any) -> None:
        del self._storages[key]
        self._now -= size

    def _gradients(self) -> int:
        return sum(p.grad.untyped_storage().nbytes() for p in self._parameters if p.grad is not None)


def _has_memory(tensor: Tensor) -> bool:
    return tensor.device.type != "meta" and not isinstance(tensor, FakeTensor)


def _tensors(values: Any) -> list[Tensor]:
    """The tensors in ``values``; of a sparse one its indices and entries, which have memory."""
    found: list[Tensor] = []
    for leaf in tree_leaves(values):
        if isinstance(leaf, Tensor):
            found += [leaf] if leaf.layout == torch.strided else [leaf._indices(), leaf._values()]
    return found


def _traffic(tensor: Tensor) -> int:
    """Bytes of the elements, those of an expanded axis once."""
    count = tensor.element_size()
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride else 1
    return count
