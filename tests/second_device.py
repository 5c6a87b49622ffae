"""A device other than the CPU where there is none: its tensors have numbers, and say that they lie elsewhere.

They refuse what those of a GPU refuse: to meet a tensor of the CPU (but a number, or an index), and to be read by
numpy. So what a GPU would be asked for can be run, and compared with the CPU, without one; how a GPU rounds, and how
fast it is, cannot.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map

ELSEWHERE = torch.device("meta")
"""A device that PyTorch knows without having it; nothing of it is used but the name."""

aten = torch.ops.aten
MOVES = {aten._to_copy.default, aten.copy_.default, aten.copy.default}
INDEXES = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
AT_ONCE = {aten._conj.default: aten.conj_physical.default, aten._neg_view.default: aten.neg.default}
"""What is otherwise put off, by a mark on the tensor that is not heeded here."""


@contextmanager
def second_device() -> Iterator[torch.device]:
    """Within it tensors can be made on, or moved to, the device that it gives."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)  # else parameters are filled behind our back
    try:
        with _FromNumbers(), _Made():
            yield ELSEWHERE
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


class Far(Tensor):
    """A tensor of the other device; ``near`` holds its numbers."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> "Far":
        shape = near.size(), near.stride(), near.storage_offset()
        far = Tensor._make_wrapper_subclass(cls, *shape, dtype=near.dtype, device=ELSEWHERE)  # type: ignore[attr-defined]
        far.near = near.detach()
        return far

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(function, args, kwargs or {})

    def tolist(self) -> Any:
        return self.near.tolist()

    def data_ptr(self) -> int:
        return self.near.data_ptr()

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError("numpy reads tensors of the CPU only")

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"Far({self.near})"


class _Made(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(function, args, kwargs or {})


class _FromNumbers(TorchFunctionMode):
    """What makes tensors of Python's numbers fills them where nobody can see it, and would lose them by moving them."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in (torch.tensor, torch.as_tensor) and torch.device(kwargs.get("device") or "cpu") == ELSEWHERE:
            return function(*args, **kwargs | {"device": "cpu"}).to(ELSEWHERE)
        if function in (Tensor.__getitem__, Tensor.__setitem__):
            args = args[0], tree_map(_as_index, args[1], is_leaf=lambda x: isinstance(x, list)), *args[2:]
        return function(*args, **kwargs)


@torch.inference_mode(False)
@torch.no_grad()
def _computed(function: Any, args: Any, kwargs: Any) -> Any:
    """By the CPU, and the result where it would lie."""
    given = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)]
    far = any(isinstance(tensor, Far) for tensor in given)
    asked = kwargs.get("device")
    if far and function not in MOVES:
        _refuse_company(function, args, given)
    if function is aten._fused_sdp_choice.default:
        return 0  # the definition: fused kernels are each for a device of their own
    with _disable_current_modes():
        named = tree_map(_near, kwargs) | ({} if asked is None else {"device": torch.device("cpu")})
        found = AT_ONCE.get(function, function)(*tree_map(_near, args), **named)
    if function is aten.copy_.default:
        return args[0]
    if not (far if asked is None else torch.device(asked) == ELSEWHERE):
        return found
    same = {id(tensor.near): tensor for tensor in given if isinstance(tensor, Far)}  # what is changed in place
    return tree_map(lambda x: same[id(x)] if id(x) in same else Far(x) if isinstance(x, Tensor) else x, found)


def _refuse_company(function: Any, args: Any, given: list[Tensor]) -> None:
    met = [args[0], *args[2:]] if function in INDEXES else given
    if any(isinstance(x, Tensor) and not isinstance(x, Far) and x.dim() > 0 for x in met):
        raise RuntimeError(f"{function}: expected all tensors to be on the same device")


def _as_index(x: Any) -> Any:
    return torch.tensor(x) if isinstance(x, list) else x


def _near(x: Any) -> Any:
    if isinstance(x, Tensor) and not isinstance(x, Far) and x.device == ELSEWHERE:
        raise RuntimeError("a tensor of the second device has lost its numbers")
    return x.near if isinstance(x, Far) else x
