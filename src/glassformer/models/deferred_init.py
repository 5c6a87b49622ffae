"""Initialization without memory: a model is built on the meta device, and the values of each part are made later.

As in torchdistx's deferred initialization, the initializers are recorded and repeated. Random tensors are drawn whole,
one at a time and in the recorded order, so the generator gives every weight the bits of an ordinary construction.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from glassformer.models.registry import weights_of
from glassformer.storage.tensor_files import Region


@dataclass(frozen=True)
class InitializerCall:
    """An operation that changed a tensor in place, with the place of that tensor in its memory."""

    function: Callable[..., Any]
    storage: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    first: int
    contiguous: bool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def random(self) -> bool:
        return torch.Tag.nondeterministic_seeded in self.function.tags  # type: ignore[attr-defined]

    def draw(self) -> Tensor:
        """The tensor as the operation leaves it, of which no other operation decides a value."""
        drawn = torch.empty(self.shape, dtype=self.dtype)
        self.function(drawn, *self.args, **self.kwargs)
        return drawn


class RecordedInit(TorchDispatchMode):
    """Record of the operations that initialize the meta tensors made in its region."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[InitializerCall] = []
        self._names: dict[int, str] = {}
        self._alive: list[Tensor] = []  # else the memory of a tensor that is gone is that of another one

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.is_mutable:
            target = args[0]
            assert not any(isinstance(argument, Tensor) for argument in args[1:]), func
            self._alive.append(target)
            self._calls.append(
                InitializerCall(
                    func,
                    target.untyped_storage()._cdata,
                    tuple(target.shape),
                    target.dtype,
                    target.storage_offset(),
                    target.is_contiguous(),
                    args[1:],
                    kwargs or {},
                )
            )
        else:
            assert torch.Tag.nondeterministic_seeded not in func.tags, func
        return result

    def name_weights(self, model: nn.Module) -> None:
        """Note which memory is that of which weight of ``model``, before they are divided."""
        self._names = {w.untyped_storage()._cdata: name for name, w in weights_of(model).items()}

    @torch.no_grad()
    def fill(self, shapes: Mapping[str, tuple[int, ...]], parts: Mapping[str, tuple[Tensor, Region]]) -> None:
        """Repeat the operations on ``parts``: for each weight, the tensor that this process stores and its region.

        At most one whole tensor is in memory at a time. Every process draws the same numbers.
        """
        for call in self._calls:
            name = self._names.get(call.storage)
            if call.random:
                drawn = call.draw()
                if name is not None:
                    tensor, region = parts[name]
                    assert call.shape == tuple(shapes[name]), name
                    if tensor.numel():
                        tensor.copy_(drawn[region.slices])
                del drawn  # before the next one
            elif name is not None:
                part = _rows(call, shapes[name], *parts[name])
                if part.numel():
                    call.function(part, *call.args, **call.kwargs)


def _rows(call: InitializerCall, shape: tuple[int, ...], tensor: Tensor, region: Region) -> Tensor:
    """The rows of ``tensor`` among those that ``call`` changed."""
    if call.shape == tuple(shape):
        return tensor
    row = math.prod(shape[1:])
    first, count = call.first // row, math.prod(call.shape) // row
    assert call.contiguous and first * row == call.first, "an initializer of columns"
    begin = max(first, region.offset[0])
    end = min(first + count, region.offset[0] + tensor.size(0))
    return tensor[begin - region.offset[0] : max(begin, end) - region.offset[0]]


@contextmanager
def recording_init() -> Iterator[RecordedInit]:
    """In this region models are built on the meta device; nothing is allocated and no random number is drawn."""
    with torch.device("meta"), RecordedInit() as record:
        yield record
