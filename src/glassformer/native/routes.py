"""Routes: which code computes each part of a model, decided here once, with the reason in words.

``accelerate`` returns a model of the same interface and the same parameters that computes faster. The model itself
knows no engine. A trace or an edit runs it in PyTorch; with a hook other than an ``InputRecorder``, a stack trains
block by block.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import torch
from torch import nn

from glassformer.errors import ConfigError
from glassformer.layers.block import AddNorm, Block, Stack
from glassformer.layers.dropout import Dropout
from glassformer.layers.embedding import OutputProjection, PatchEmbedding, SegmentEmbedding, TokenEmbedding
from glassformer.layers.position import Learned, Sinusoidal
from glassformer.models.bert import BERT
from glassformer.models.device import cast_stacks, fast_in_bfloat16, for_decoding
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.vit import ViT
from glassformer.native.blocks import blocks_of, heads_of, unsupported_blocks, unsupported_class, unsupported_norm
from glassformer.native.embedding import NativeEmbedding, NativeOutputProjection
from glassformer.native.execution import Execution, SearchKernels
from glassformer.native.forms import compiled, native_form, settings_of, shallow_copy, swap
from glassformer.native.inference import inference_form, native_parts, unsupported_model
from glassformer.native.library import loaded, missing_reason
from glassformer.native.ops import PANEL_WIDTH
from glassformer.native.projections import PROJECTIONS
from glassformer.native.shared_matrix import share_matrices

Engine = Literal["auto", "torch", "native", "compile"]
Precision = Literal["float32", "bfloat16", "int8"]

OPERATIONS = "native operations"
"""Engine of a part that PyTorch computes with single operations in the kernels."""

SMALL = "little work beside the encoder"
"""Reason for the parts of a model that PyTorch computes in use, but for linear transformations."""

UPDATE = "update"
"""Route of the weight update in training."""


@dataclass(frozen=True)
class Route:
    """The code that computes one part of a model."""

    part: str
    """Name of a module, ``update`` (of the weights) or ``search`` (of the next tokens)."""
    engine: str
    """``native``, ``native operations``, ``compile`` or ``torch``."""
    reason: str = ""
    """Reason why the part is not ``native``; empty if it is."""

    def __str__(self) -> str:
        return f"{self.engine}: {self.part}" + (f" ({self.reason})" if self.reason else "")


def arithmetic_of(model: nn.Module, routes: Sequence[Route]) -> str:
    """Version of the sums and random numbers of the kernels that train ``model``; empty if none do."""
    if not any(route.engine.startswith("native") for route in routes):
        return ""
    whole = {route.part for route in routes if route.engine == "native"}
    # Former versions computed the last layer for all tokens, with other dropout, and the last norm by PyTorch.
    selects = "encoder" in whole and isinstance(model, (BERT, ViT))
    ends_in_norm = any(getattr(model.get_submodule(part), "final_norm", None) for part in whole - {UPDATE})
    # Former versions also computed the padding of translations, whose sentences have numbers.
    numbered = isinstance(model, EncoderDecoder) and not whole.isdisjoint(("encoder", "decoder"))
    suffixes = ", selected tokens" * selects, ", final norm" * ends_in_norm, ", no padding" * numbered
    return loaded().arithmetic + "".join(suffixes)


def describe(routes: Sequence[Route]) -> str:
    """The parts that each engine computes, in one line."""
    return "; ".join(map(str, grouped(routes)))


def grouped(routes: Sequence[Route]) -> list[Route]:
    """Routes of several parts each: those with the same engine and reason as one."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in routes:
        groups.setdefault((one.engine, one.reason), []).append(one.part)
    return [Route(", ".join(parts), engine, reason) for (engine, reason), parts in groups.items()]


def route(
    model: nn.Module,
    engine: Engine = "auto",
    precision: Precision = "float32",
    device: torch.device | None = None,
) -> list[Route]:
    """Routes of all parts of ``model``: for training if ``model.training``, else for decoding and inference.

    ``device``: the device of the model by default; another one to ask about before moving it.
    """
    _check_names(engine, precision, model.training)
    device = next(model.parameters()).device if device is None else device
    if not model.training:
        return _decoding_routes(model, engine, precision, device)
    return _training_routes(model, engine, device, _low(precision, device))


def accelerate(model: nn.Module, engine: Engine = "auto", precision: Precision = "float32") -> Any:
    """A model of the same interface that computes faster: for training if ``model.training``, else for decoding.

    In training it shares the parameters of ``model``; stacks in a lower precision are copies (``models.device``).
    For use it may hold packed copies of the weights. A ``ConfigError`` lists what the engine cannot compute.
    """
    _check_names(engine, precision, model.training)
    if not model.training:
        return _for_decoding(model, engine, precision)
    routes = route(model, engine, precision)
    others = [f"{one.part} ({one.reason})" for one in routes if one.engine != "native"]
    if engine == "native" and others:
        raise ConfigError(f"engine=native cannot compute {'; '.join(others)}; choose engine=auto")
    if _low(precision, next(model.parameters()).device):
        model = cast(nn.Module, cast_stacks(model, torch.bfloat16))
    if engine == "compile":
        return swap(model, lambda module: compiled(module) if type(module) is Stack else None)
    if all(one.engine == "torch" for one in routes):
        return model
    fused = {id(model.get_submodule(one.part)) for one in routes if one.engine == "native" and one.part != UPDATE}
    form = swap(model, lambda module: native_form(module, id(module) in fused))
    share_matrices(form, (NativeEmbedding, NativeOutputProjection))
    return form


def _check_names(engine: str, precision: str, training: bool) -> None:
    engines = [name for name in get_args(Engine) if training or name != "compile"]
    precisions = [name for name in get_args(Precision) if not training or name != "int8"]
    for setting, name, known in (("engine", engine, engines), ("precision", precision, precisions)):
        if name not in known:
            raise ConfigError(f"{setting}={name!r} is not known; choose from {', '.join(known)}")


def _low(precision: Precision, device: torch.device) -> bool:
    """True if stacks train in bfloat16."""
    return precision == "bfloat16" and fast_in_bfloat16(device)


# Training


def _training_routes(model: nn.Module, engine: Engine, device: torch.device, low: bool) -> list[Route]:
    parts = _parts(model)
    if engine == "compile":
        stacks = {name for name in parts if type(model.get_submodule(name)) is Stack}
        others = "only stacks are compiled"
        return [Route(p, "compile") if p in stacks else Route(p, "torch", others) for p in [*parts, UPDATE]]
    if reason := _unavailable(model, engine, device):
        return [Route(part, "torch", reason) for part in [*parts, UPDATE]]
    routes = [_training_route(model, part, low) for part in parts]
    contiguous = all(parameter.is_contiguous() for parameter in model.parameters())
    return [*routes, Route(UPDATE, "native") if contiguous else Route(UPDATE, "torch", "weights with strides")]


def _parts(model: nn.Module) -> list[str]:
    """Modules of ``model`` with parameters."""
    return [name for name, child in model.named_children() if next(child.parameters(), None) is not None]


def _training_route(model: nn.Module, part: str, low: bool) -> Route:
    module = model.get_submodule(part)
    reason: str | None = "no kernel for the whole part"
    if type(module) is Stack:
        reason = _unsupported_stack(module, low)
    elif type(module) is TokenEmbedding:
        reason = _unsupported_embedding(module)
    elif type(module) is OutputProjection:
        reason = _unsupported_projection(model, module, low)
    if reason is None:
        return Route(part, "native")
    swapped = any(native_form(each) is not None for each in module.modules())
    return Route(part, OPERATIONS if swapped else "torch", reason)


def _unavailable(model: nn.Module, engine: Engine, device: torch.device) -> str | None:
    """Reason why the kernels compute no part of ``model`` on ``device``, or None."""
    if engine == "torch":
        return "engine=torch"
    if device.type != "cpu":
        return f"the kernels are for CPUs, and the device is {device.type}"
    stacks = {id(p) for module in model.modules() if isinstance(module, Stack) for p in module.parameters()}
    for parameter in model.parameters():
        if parameter.dtype != torch.float32 and (parameter.dtype != torch.bfloat16 or id(parameter) not in stacks):
            return f"the kernels read float32 weights, not {str(parameter.dtype).removeprefix('torch.')}"
    return missing_reason()


def _unsupported_embedding(embedding: TokenEmbedding) -> str | None:
    segment, norm = embedding.segment, embedding.norm
    if segment is not None and (reason := unsupported_class(segment, (SegmentEmbedding,))):
        return reason
    if norm is not None and (reason := unsupported_norm(norm)):
        return reason
    if not isinstance(embedding.position, Sinusoidal | Learned | None):
        return f"no kernel for {type(embedding.position).__name__} positions"
    if type(embedding.dropout) is not Dropout:
        return f"no kernel for {type(embedding.dropout).__name__}"
    return _unsupported_strides(embedding) or _unsupported_width(embedding.weight.size(1))


def _unsupported_projection(model: nn.Module, projection: OutputProjection, low: bool) -> str | None:
    if not any(isinstance(child, (TokenEmbedding, PatchEmbedding)) for child in model.children()):
        return "no vocabulary"
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    low = low or any(stack.dtype == torch.bfloat16 for stack in stacks)
    reason = _unsupported_bfloat16() if low and stacks else None
    return reason or _unsupported_strides(projection) or _unsupported_width(projection.weight.size(1))


def _unsupported_strides(module: nn.Module) -> str | None:
    return None if all(parameter.is_contiguous() for parameter in module.parameters()) else "weights with strides"


def _unsupported_width(d_model: int) -> str | None:
    return f"d_model={d_model} is not a multiple of {PANEL_WIDTH}" if d_model % PANEL_WIDTH else None


def _unsupported_bfloat16() -> str | None:
    return None if loaded().has_bfloat16 else "this processor has no bfloat16"


def _unsupported_stack(stack: Stack, low: bool) -> str | None:
    """Reason why the kernels do not train ``stack`` in one kernel, or None."""
    if reason := unsupported_blocks(stack, (Dropout,)):
        return reason
    if (low or stack.dtype == torch.bfloat16) and (reason := _unsupported_bfloat16()):
        return reason
    if reason := next(filter(None, map(_unsupported_block, blocks_of(stack))), None):
        return reason
    if len({settings_of(block) for block in blocks_of(stack)}) > 1:
        return "layers that differ"
    return None if stack.final_norm is None else _unsupported_final_norm(stack.final_norm, blocks_of(stack)[0])


def _unsupported_final_norm(norm: nn.Module, block: Block) -> str | None:
    """Reason why the kernels do not compute the norm after layers like ``block``, or None."""
    if reason := unsupported_norm(norm):
        return reason
    if not block.feed_forward_norm.pre:
        return "a final normalization after post-norm layers"
    if {parameter.dtype for parameter in norm.parameters()} != {block.feed_forward.inner.weight.dtype}:
        return "weights of several types"
    return _unsupported_strides(norm)


def _unsupported_block(block: Block) -> str | None:
    """Reason why the kernels do not train ``block``, whose mathematics they know, or None."""
    norms = [module.norm for module in block.children() if isinstance(module, AddNorm)]
    if len({(type(norm), norm.eps) for norm in norms}) > 1:
        return "normalizations that differ"
    if len({parameter.dtype for parameter in block.parameters()}) > 1:
        return "weights of several types"
    return _unsupported_strides(block) or _unsupported_widths(block)


def _unsupported_widths(block: Block) -> str | None:
    d_ff, attention = block.feed_forward.inner.out_features, block.self_attention
    if reason := _unsupported_width(block.feed_forward.inner.in_features):
        return reason
    if d_ff % PANEL_WIDTH:
        return f"d_ff={d_ff} is not a multiple of {PANEL_WIDTH}"
    columns = [each.out_features for each in (attention.query, attention.key, attention.value)]
    if any(width % PANEL_WIDTH for width in (*columns, attention.output.in_features)):
        n_heads, n_kv_heads, d_k, _ = heads_of(attention)
        heads = "heads" if n_heads == n_kv_heads else f"heads, {n_kv_heads} of keys and values,"
        return f"{n_heads} {heads} of {d_k} do not fill a multiple of {PANEL_WIDTH}"
    return None


# Decoding and inference


def _decoding_routes(model: nn.Module, engine: Engine, precision: Precision, device: torch.device) -> list[Route]:
    parts, native = _parts(model), native_parts(model)
    reason = _unsupported_decoder(model, engine, precision, device)
    routes = [Route(p, "native") if p in native and not reason else _small_route(model, p, reason) for p in parts]
    if not hasattr(model, "begin"):
        return routes
    search = _unavailable(model, engine, device)
    return [*routes, Route("search", "torch", search) if search else Route("search", "native")]


def _small_route(model: nn.Module, part: str, reason: str | None) -> Route:
    """Route of a part that is not computed whole: the kernels multiply for it, unless there is a ``reason``."""
    multiplied = reason is None and any(type(each) in PROJECTIONS for each in model.get_submodule(part).modules())
    return Route(part, OPERATIONS if multiplied else "torch", reason or SMALL)


def _unsupported_decoder(model: nn.Module, engine: Engine, precision: Precision, device: torch.device) -> str | None:
    """Reason why the kernels do not compute ``model`` in use, or None."""
    return _unavailable(model, engine, device) or unsupported_model(model, precision)


def _for_decoding(model: nn.Module, engine: Engine, precision: Precision) -> Any:
    """The model in the kernels; else a view of ``model``, whose search may run in the kernels."""
    device = next(model.parameters()).device
    check_decoding(model, engine, precision, device)
    if precision == "bfloat16":
        copied = for_decoding(model, torch.bfloat16)
        copied.execution = Execution(copies_weights=True)
        return copied
    if _unsupported_decoder(model, engine, precision, device) is None:
        return inference_form(model, precision == "int8", loaded())
    view: Any = shallow_copy(model)
    kernels = None if _unavailable(model, engine, device) else SearchKernels(loaded())
    view.execution = Execution(kernels, in_threads=True)
    return view


def check_decoding(model: nn.Module, engine: Engine, precision: Precision, device: torch.device) -> None:
    """Raise ``ConfigError`` if ``model`` cannot be used with these settings on ``device``."""
    _check_names(engine, precision, training=False)
    if reason := unsupported_decoding(model, engine, precision, device):
        raise ConfigError(f"{reason}; choose precision=float32 and engine=auto")


def unsupported_decoding(model: nn.Module, engine: Engine, precision: Precision, device: torch.device) -> str | None:
    """The setting with which ``model`` cannot decode on ``device``, and why; or None."""
    if precision == "bfloat16":
        if device.type == "cpu":
            return "precision=bfloat16 is slower than float32 on a CPU, and for GPUs only"
        if engine == "native":
            return "engine=native is not possible with precision=bfloat16: the kernels are for CPUs"
        if not any(isinstance(module, Stack) for module in model.modules()):
            return "precision=bfloat16 is not possible: this model has no stacks"
        return None
    setting = "precision=int8" if precision == "int8" else "engine=native" if engine == "native" else ""
    reason = _unsupported_decoder(model, engine, precision, device) if setting else None
    return f"{setting} is not possible: {reason}" if reason else None
