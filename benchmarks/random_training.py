"""Random calls of the kernels of a training: operations, whole parts of a model, and the update."""

import copy
import math
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.random_arguments import (
    Call,
    Draw,
    Kernel,
    Results,
    invalid,
    laid_out,
    mask_of,
    near,
    size,
    tensor,
    with_gradients,
)
from glassformer.layers.block import Stack
from glassformer.layers.dropout import Dropout
from glassformer.layers.embedding import OutputProjection, SegmentEmbedding, TokenEmbedding
from glassformer.layers.mask import Mask
from glassformer.layers.norm import LayerNorm, RMSNorm
from glassformer.layers.position import Learned, Rotary, Sinusoidal
from glassformer.models.registry import build_model
from glassformer.native import ops
from glassformer.native.forms import native_form
from glassformer.native.gradients import add_, scale_
from glassformer.native.stack import dense_mask
from glassformer.taps import InputRecorder
from glassformer.train.config import OptimizerConfig
from glassformer.train.distributed import ALONE
from glassformer.train.loss import projection_loss
from glassformer.train.optim import NativeUpdate, TorchUpdate

# Single operations of training

ops.MIN_ROWS = 1  # PyTorch would compute small products


def draw_product(rng: Draw) -> Call:
    rows, depth, columns = size(rng, 1000), size(rng, 300), size(rng, 200)
    dtypes = [torch.float32] * 3
    inner, outputs = depth, columns
    if invalid(rng):
        kind = rng.randrange(3)
        inner, outputs = near(rng, depth) if kind == 0 else depth, near(rng, columns) if kind == 1 else columns
        if kind == 2:
            dtypes[rng.randrange(3)] = rng.choice((torch.float64, torch.bfloat16, torch.int64))
    a, b = tensor(rng, rows, depth, dtype=dtypes[0]), tensor(rng, inner, columns, dtype=dtypes[1])
    bias = tensor(rng, outputs, dtype=dtypes[2]) if rng.random() < 0.5 else None

    multiply, operands = (torch.matmul, (a, b)) if bias is None else (torch.addmm, (bias, a, b))
    what = f"{list(a.shape)} · {list(b.shape)}, bias {bias is not None}, {dtypes}"
    return Call(
        native=lambda: [ops.product(a, b, bias)],
        torch=lambda: [multiply(*operands)],
        tolerance=2e-5,
        what=what,
        precise=lambda: [multiply(*(operand.double() for operand in operands))],
    )


def draw_linear(rng: Draw) -> Call:
    inputs, outputs = size(rng), size(rng)
    module = nn.Linear(inputs, outputs, bias=rng.random() < 0.5)
    native = native_form(module)
    assert native is not None
    width = near(rng, inputs) if invalid(rng) else inputs
    x = tensor(rng, size(rng, 200), size(rng, 200), width)
    found, expected = (with_gradients(each, x) for each in (native, module))
    precise = lambda: with_gradients(copy.deepcopy(module).double(), x.double())()  # noqa: E731
    return Call(found, expected, 2e-5, f"{list(x.shape)}, {inputs} → {outputs}", precise=precise)


def draw_dropout(rng: Draw) -> Call:
    dtype = rng.choice((torch.float32, torch.bfloat16))
    x = tensor(rng, size(rng, 400), size(rng), dtype=dtype, wild=0)
    module = native_form(Dropout(rng.choice((0.0, 0.01, 0.1, 0.5, 0.98))))
    assert module is not None
    seed = rng.getrandbits(62)

    def expected(x: Tensor) -> Tensor:
        torch.manual_seed(seed)
        return x * module(torch.ones(x.shape)).to(x.dtype)

    def found(x: Tensor) -> Tensor:
        torch.manual_seed(seed)
        return module(x)

    return Call(with_gradients(found, x), with_gradients(expected, x), 1e-2, f"{list(x.shape)} {dtype} {module}")


def definition(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Equation 1 in float64; a query that sees nothing yields 0."""
    groups = q.size(1) // max(1, k.size(1))
    if len({x.dtype for x in (q, k, v)}) > 1 or v.shape[:3] != k.shape[:3] or groups * k.size(1) != q.size(1):
        raise ValueError("types or sizes differ")
    dtype, (q, k, v) = q.dtype, (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    scores = q @ k.mT / max(1, q.size(-1)) ** 0.5
    if mask is None:
        return (scores.softmax(-1) @ v).to(dtype)
    return (scores.masked_fill(~mask, -1e30).softmax(-1).masked_fill(~mask, 0) @ v).to(dtype)


def draw_attention(rng: Draw) -> Call:
    batch, heads, queries, keys = rng.randint(0, 9), rng.randint(0, 3), size(rng), size(rng)
    d_k, d_v = (rng.choice((1, 7, 32, 32, 64, rng.randint(2, 90))) for _ in range(2))
    low = rng.random() < 0.3
    dtypes = [torch.bfloat16 if low else torch.float32] * 3
    groups = rng.choice((1, 1, 2, 3))
    shapes = [[batch, heads * groups, queries, d_k], [batch, heads, keys, d_k], [batch, heads, keys, d_v]]
    mask = mask_of(rng, batch, heads * groups, queries, keys)
    if invalid(rng):
        kind, which = rng.randrange(3), rng.randrange(3)
        if kind == 0:
            axis = rng.randrange(3) if which else rng.choice((0, 1, 3))
            shapes[which][axis] = near(rng, shapes[which][axis])
        elif kind == 1:
            dtypes[which] = rng.choice((torch.float64, torch.float32 if low else torch.bfloat16))
        else:
            mask = torch.ones(near(rng, queries) + 2, near(rng, keys) + 2, dtype=torch.bool)
    leaves = [tensor(rng, *shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    found = with_gradients(lambda q, k, v: ops.attention(q, k, v, mask), *leaves)
    expected = with_gradients(lambda q, k, v: definition(q, k, v, mask), *leaves)
    what = f"{shapes} {dtypes}, mask {None if mask is None else list(mask.shape)}"
    # Gradients compute the weights again from scores and their log-sum, whose rounding grows with them: in one call the
    # error was 1.4e-4 with scores up to 268, and 9e-6 with those up to 27.
    return Call(found, expected, 0.05 if low else 1e-3, what, hides=mask is not None)


def draw_rotary(rng: Draw) -> Call:
    width, dtype = 2 * rng.randint(1, 40), rng.choice((torch.float32, torch.bfloat16))
    module = Rotary(width)
    native = native_form(module)
    assert native is not None
    batch, length, offset = rng.randint(0, 4), size(rng), rng.choice((0, 0, 1, 1000))
    widths, lengths = [width, width], [length, length]
    if invalid(rng):
        widths[rng.randrange(2)], lengths[1] = (near(rng, width), length) if rng.random() < 0.5 else (width, length + 3)
    q, k = (
        tensor(rng, batch, rng.randint(0, 4), n, d, dtype=dtype, wild=0) for n, d in zip(lengths, widths, strict=True)
    )

    def rotated(form: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda q, k: torch.cat([x.flatten() for x in form(q, k, offset)])

    what = f"{list(q.shape)} {list(k.shape)} {dtype}, pairs of {width}, offset {offset}"
    found, expected = (with_gradients(rotated(form), q, k) for form in (native, module))
    return Call(found, expected, 2e-2 if dtype == torch.bfloat16 else 1e-5, what)


# Whole parts in training


def draw_embedding(rng: Draw) -> Call:
    d_model, vocabulary = 64 * rng.randint(1, 3), rng.choice((1, 7, 300))
    position = rng.choice((lambda: None, lambda: Sinusoidal(16, d_model), lambda: Learned(16, d_model)))()
    n_segments = rng.choice((0, 0, 1, 3))
    segment = SegmentEmbedding(n_segments, d_model) if n_segments else None
    norm = rng.choice((None, LayerNorm(d_model), RMSNorm(d_model)))
    module = TokenEmbedding(vocabulary, d_model, position, Dropout(0.0), None, segment, norm)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    native: Any = native_form(module, fused=True)
    rows, length = size(rng, 20), rng.choice((size(rng, 16), size(rng, 40)))
    ids = torch.randint(vocabulary, (rows, length), dtype=rng.choice((torch.int64, torch.int32)))
    sentences = rng.choice((None, torch.rand(rows, length) < 0.7, torch.randint(3, (rows, length)).sort(1)[0]))
    segments = torch.randint(max(1, n_segments), (rows, length)) if rng.random() < 0.7 else None
    if invalid(rng):
        if rng.random() < 0.5 and sentences is not None:
            sentences = sentences.new_ones(rows + 2, near(rng, length))
        elif rng.random() < 0.3 and segments is not None and segments.numel() and n_segments:
            segments.view(-1)[rng.randrange(ids.numel())] = rng.choice((-1, n_segments, 2**40))
        elif ids.numel():
            ids.view(-1)[rng.randrange(ids.numel())] = rng.choice((-1, vocabulary, 2**31 - 1, -(2**31)))
    ids, segments = laid_out(rng, ids), None if segments is None else laid_out(rng, segments)
    results = [lambda form=form: embedded(form, ids, sentences, segments) for form in (native, module)]
    what = f"{list(ids.shape)} of {vocabulary}, {None if sentences is None else sentences.dtype}, {module}"
    # One row of the matrix, or one position, may receive thousands of gradients of either sign. PyTorch adds those of a
    # position in groups.
    precise = lambda: embedded(copy.deepcopy(module).double(), ids, sentences, segments)  # noqa: E731
    return Call(*results, 1e-4, what, precise=precise, longest_sum=ids.numel())


def embedded(form: nn.Module, ids: Tensor, sentences: Tensor | None, segments: Tensor | None) -> list[Tensor]:
    x = form(ids, sentences, segments=segments)
    parameters = list(form.parameters())
    given = torch.linspace(-1, 1, x.numel()).view(x.shape).to(x.dtype)
    gradients = torch.autograd.grad(x, parameters, given, allow_unused=True)
    return [x.detach(), *(torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients, strict=True))]


def draw_loss(rng: Draw) -> Call:
    d_model, vocabulary, tokens = 64 * rng.randint(1, 2), rng.choice((1, 2, 63, 64, 65, 400)), size(rng, 200)
    dtype = rng.choice((torch.float32, torch.float32, torch.bfloat16))
    vocabulary = max(vocabulary, 63) if dtype == torch.bfloat16 else vocabulary
    module = OutputProjection(vocabulary, d_model, bias=rng.random() < 0.5)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    target = torch.randint(vocabulary, (tokens,), dtype=rng.choice((torch.int64, torch.int32))).long()
    width, smoothing = d_model, rng.choice((0.0, 0.1, 0.9))
    if invalid(rng):
        kind = rng.randrange(3)
        if kind == 0:
            width = near(rng, d_model)
        elif kind == 1:
            target = torch.zeros(near(rng, tokens), dtype=torch.long)
        elif tokens:
            target[rng.randrange(tokens)] = rng.choice((-1, -100, vocabulary, 2**40))
    hidden = tensor(rng, tokens, width, dtype=dtype)
    target = laid_out(rng, target)

    def computed(form: OutputProjection, hidden: Tensor = hidden) -> Results:
        def compute(hidden: Tensor, *parameters: Tensor) -> Tensor:
            twin = copy.copy(form)
            twin._parameters = dict(zip(form._parameters, (*parameters, None), strict=False))
            return projection_loss(twin, hidden, target, smoothing).loss

        return with_gradients(compute, hidden, *form.parameters())

    native: Any = native_form(module, fused=True)
    what = f"{list(hidden.shape)} {dtype}, targets {list(target.shape)}, {vocabulary} entries, ε {smoothing}"
    # Of one entry the loss is 0, and PyTorch's is the sum of its rounding.
    precise = lambda: computed(copy.deepcopy(module).double(), hidden.double())()  # noqa: E731
    low = dtype == torch.bfloat16
    return Call(computed(native), computed(module), 0.1 if low else 2e-4, what, hides=low, precise=precise)


STACKS: dict[tuple[Any, ...], tuple[Stack, Any]] = {}


def stack_of(cross: bool, dtype: torch.dtype, **values: Any) -> tuple[Stack, Any]:
    """Encoder of a small model, or with ``cross`` its decoder, and its native form; one of each configuration."""
    key = cross, dtype, *values.items()
    if key not in STACKS:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            sizes = {"kind": "encoder_decoder", "vocab_size": 9, "d_ff": 128, "n_encoder_layers": 1}
            made: Any = build_model(sizes | {"dropout": 0.0} | values, "random calls")
        module = (made.decoder if cross else made.encoder).train().to(dtype)
        STACKS[key] = module, native_form(module, fused=True)
    return STACKS[key]


def draw_stack(rng: Draw) -> Call:
    d_model, heads = rng.choice(((64, 2), (64, 1), (128, 2)))
    kinds = {"norm_order": ("post", "pre"), "positions": ("sinusoidal", "rotary"), "activation": ("relu", "gelu")}
    drawn = {name: rng.choice(kind) for name, kind in kinds.items()}
    low = rng.random() < 0.3
    cross = rng.random() < 0.5
    dtype = torch.bfloat16 if low else torch.float32
    layers = {"n_decoder_layers": 2 if rng.large else 1}
    module, native = stack_of(cross, dtype, d_model=d_model, n_heads=heads, **layers, **drawn)
    batch, length, source = (
        rng.choice((each, each or 1)) for each in (rng.randint(0, 5), size(rng, 40), size(rng, 40))
    )
    shapes = [[batch, length, d_model], [batch, source, d_model]][: 1 + cross]
    masks = [mask_of(rng, batch, heads, length, other) for other in (length, source)]
    if invalid(rng):
        which = rng.randrange(len(shapes))
        shapes[which][2 if which == 0 else 0] = near(rng, shapes[which][2 if which == 0 else 0])
    leaves = [tensor(rng, *shape, wild=0.02) for shape in shapes]

    tokens = range(batch * length)
    selected = None
    if tokens and rng.random() < 0.5:
        selected = torch.tensor([rng.choice(tokens) for _ in range(rng.randint(0, 2 * len(tokens)))], dtype=torch.long)
        if rng.random() < 0.3:
            selected = visible(masks[0], leaves[0]).flatten().nonzero().flatten()

    cast, records, recorded = rng.random() < 0.5, cross and rng.random() < 0.4, rng.randrange(len(module.layers))

    def computed(form: nn.Module, leaves: list[Tensor] = leaves) -> Results:
        def compute(x: Tensor, *memory: Tensor) -> Tensor:
            x = x.to(form.dtype) if cast else x
            memory = [each.to(form.dtype) for each in memory]  # as cast_stacks does
            conditions = [None if mask is None else Mask(allowed=mask) for mask in masks]
            given = x, conditions[0], *memory, *(conditions[1:] if memory else ())
            attention, recorder = form.layers[recorded].cross_attention, InputRecorder()
            with attention.register_forward_pre_hook(recorder) if records else nullcontext():
                result, seen = form(*given, selected=selected), visible(masks[0], x)
            chosen = seen if selected is None else seen.flatten()[selected]
            parts = [(result, chosen), *((each[0], seen) for each in recorder.calls)]
            return torch.cat([y.to(leaves[0].dtype).masked_fill(~known[..., None], 0).flatten() for y, known in parts])

        return with_gradients(compute, *leaves)

    sizes = [None if mask is None else list(mask.shape) for mask in masks]
    what = f"{shapes} {drawn}, heads {heads}, bfloat16 {low}, masks {sizes}, selected {selected}, {records} {recorded}"
    hides = low or any(mask is not None for mask in masks)
    finer = torch.float32 if low else torch.float64
    precise = lambda: computed(copy.deepcopy(module).to(finer), [leaf.to(finer) for leaf in leaves])()  # noqa: E731
    step = 2**-9 if low else 2**-21  # a gradient jumps where the input of a ReLU is almost 0

    def nearby() -> list[Tensor]:
        return computed(module, [leaf * (1 + step * torch.randn_like(leaf)) for leaf in leaves])()

    return Call(computed(native), computed(module), 0.25 if low else 1e-2, what, False, hides, precise, [nearby] * 24)


def visible(mask: Tensor | None, x: Tensor) -> Tensor:
    """True at positions up to the last one that a query of the row may see: the kernels do not compute others."""
    if mask is None:
        return torch.ones(x.shape[:2], dtype=torch.bool)
    seen = mask.expand(x.size(0), -1, -1, x.size(1)).any(2).any(1)
    return seen.flip(1).cumsum(1).flip(1) > 0


def draw_mask(rng: Draw) -> Call:
    batch, *lengths = rng.randint(0, 5), size(rng, 100), size(rng, 100)
    numbers = []
    for length in lengths:
        rows = torch.tensor([rng.choice((0, 1, 1, 2, 2**32 + 1)) for _ in range(batch * length)], dtype=torch.long)
        rows = rows.view(batch, length).sort(1).values if rng.random() < 0.5 else rows.view(batch, length)
        padding = torch.tensor([rng.randint(0, length) for _ in range(batch)], dtype=torch.long)
        numbers.append(rows.masked_fill(torch.arange(length) >= length - padding[:, None], 0))
    queries, keys = numbers
    if invalid(rng):
        queries = queries[:, : near(rng, lengths[0])]
    mask = Mask(keys, queries, causal=rng.random() < 0.5)

    def expected() -> list[Tensor]:
        dense, tokens = mask.dense(*lengths), keys.flip(1).ne(0).cumsum(1).flip(1) > 0
        return [(dense & tokens[:, None, None] if queries.size(1) == lengths[0] else dense).float()]

    inputs = [torch.empty(batch, length, 64) for length in lengths]
    what = f"sentences {queries.tolist()} {keys.tolist()}, causal {mask.causal}"
    return Call(lambda: [dense_mask(mask, *inputs).float()], expected, 0.0, what)


# Gradients, and the update


def draw_scale(rng: Draw) -> Call:
    x = tensor(rng, size(rng, 400), size(rng), dtype=rng.choice((torch.float32, torch.bfloat16)))
    factor = torch.tensor(rng.choice((0.0, 1.0, 1 / 1873, -3.5, math.inf)))
    what = f"{list(x.shape)} {x.dtype} · {factor.item()}"
    return Call(lambda: [scale_(x.clone(), factor)], lambda: [x * factor], 0.0, what)


def draw_add_rows(rng: Draw) -> Call:
    n_rows, width = rng.choice((1, 7, 300)), size(rng, 200)
    total = tensor(rng, n_rows, width).contiguous()  # PyTorch adds to others, and does not check the rows
    rows = torch.randperm(n_rows)[: rng.randint(0, n_rows)].sort().values
    if invalid(rng) and len(rows):
        rows[rng.randrange(len(rows))] = rng.choice((-n_rows - 1, n_rows, 2**40))
    values = tensor(rng, len(rows), width)
    gradient = torch.sparse_coo_tensor(rows[None], values, (n_rows, width), check_invariants=False, is_coalesced=True)

    def expected() -> list[Tensor]:
        result = total.clone()
        result[rows] += values
        return [result]

    what = f"{len(rows)} rows of {[n_rows, width]}"
    return Call(lambda: [add_(total.clone(), gradient)], expected, 0.0, what)


def draw_update(rng: Draw) -> Call:
    shapes = [[size(rng, 300) for _ in range(rng.randint(0, 2))] for _ in range(rng.randint(1, 4))]
    shapes.append(rng.choice(([16384], [16385], [5], [0]) if rng.large else ([5], [0])))
    weights = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    low = rng.random() < 0.4
    dtype = torch.bfloat16 if low else torch.float32
    gradients = [tensor(rng, *shape, dtype=dtype, wild=0.02) for shape in shapes]
    if rng.random() < 0.3:
        gradients[0] = None
    average, steps = rng.random() < 0.5, rng.randint(1, 3)
    config = OptimizerConfig(clip_norm=rng.choice((0.0, 1.0)), betas=rng.choice(((0.9, 0.98), (0.0, 0.0))))
    decay = rng.choice((0.0, 0.1))

    def computed(form: type) -> Results:
        return lambda: updated(form, weights, gradients, low, average, config, decay, steps)

    what = f"{shapes}, bfloat16 {low}, average {average}, {config.betas}, clip {config.clip_norm}, {steps} steps"
    return Call(computed(NativeUpdate), computed(TorchUpdate), 1e-2 if low else 2e-5, what)


def updated(  # type: ignore[no-untyped-def]
    form: type, weights, gradients, low: bool, average: bool, config: OptimizerConfig, decay: float, steps: int
) -> list[Tensor]:
    model = nn.ParameterList([nn.Parameter(p.detach().clone()) for p in weights])
    compute = nn.ParameterList([nn.Parameter(p.detach().bfloat16()) for p in weights]) if low else model
    averages = [p.detach().clone() for p in model] if average else [None] * len(weights)
    state: Any = SimpleNamespace(
        model=model,
        compute_model=compute,
        optimizer=torch.optim.AdamW(model, lr=0.01, betas=config.betas, eps=1e-8, weight_decay=decay),
        config=SimpleNamespace(optimizer=config.model_copy(update={"epsilon": 1e-8})),
        average_decay=0.9,
        in_parts=False,
        world=ALONE,
        weights=list(zip(model, compute, averages, strict=True)),
        update_average=lambda: [a.lerp_(p.detach(), 0.1) for a, p in zip(averages, model) if a is not None],
    )
    norms = []
    for _ in range(steps):
        for p, low_p, gradient in zip(model, compute, gradients, strict=True):
            p.grad, low_p.grad = None, None if gradient is None else gradient.clone()
        update = form(state)
        norms.append(update.norm)
        if math.isfinite(update.norm):  # a training ends otherwise
            update.apply()
    return [torch.tensor(norms)] + [p.detach().float() for each in state.weights for p in each if p is not None]


TRAINING = {
    "product": Kernel(draw_product, 2e-5),
    "linear": Kernel(draw_linear, 2e-5),
    "dropout": Kernel(draw_dropout, 1e-2),
    "attention": Kernel(draw_attention, 5e-2),
    "rotary": Kernel(draw_rotary, 2e-2),
    "embedding": Kernel(draw_embedding, 1e-4),
    "loss": Kernel(draw_loss, 0.1),
    "stack": Kernel(draw_stack, 0.25),
    "mask": Kernel(draw_mask, 0.0),
    "scale": Kernel(draw_scale, 0.0),
    "add_rows": Kernel(draw_add_rows, 0.0),
    "update": Kernel(draw_update, 1e-2),
}
