"""Random calls of models with packed weights: GPT (GPT-2 and Llama forms), encoders (BERT, ViT and series), and texts.

In int8 the expected numbers are those of a model whose linear transformations round their inputs and weights to the
same 127 steps. A number at the border of two steps may be rounded otherwise, so the tolerance is that of int8.
"""

import copy
import functools
import random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.random_arguments import Call, Draw, Kernel, Results, invalid, laid_out, near, size, tensor
from benchmarks.random_decoding import quantized
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.block import AddNorm, Block, Stack
from glassformer.layers.dropout import Dropout
from glassformer.layers.embedding import OutputProjection
from glassformer.layers.feed_forward import ACTIVATIONS, FeedForward, GatedFeedForward
from glassformer.layers.mask import Mask
from glassformer.layers.norm import LayerNorm, RMSNorm
from glassformer.layers.position import Rotary
from glassformer.models.bert import BERT, BERTConfig
from glassformer.models.gpt import GPT, GPTConfig
from glassformer.native.decoding import NativeGPT
from glassformer.native.inference import inference_form
from glassformer.native.library import loaded
from glassformer.native.packed import PackedEncoder, pack_encoder, pads_behind, unsupported_stack

VOCABULARY, MAX_LENGTH = 50, 48
FORMS = 200
"""Models of each kind, small ones of random settings. As many as are in memory at once."""
FLOAT32, INT8 = 2e-4, 0.2
LEAST_WIDTH, LEAST_INT8_WIDTH = 4, 16
"""LayerNorm of fewer numbers multiplies rounding by thousands; in int8 one step becomes half of the largest logit."""


class QuantizedLinear(nn.Linear):
    """A linear transformation with the rounding of int8."""

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.double()
        rows = quantized(x.flatten(0, -2)).view(x.shape)
        return F.linear(rows, quantized(self.weight), bias).to(x.dtype)


class QuantizedProjection(OutputProjection):
    """An output projection with the rounding of int8."""

    forward = QuantizedLinear.forward  # type: ignore[assignment]


def reference(model: Any, int8: bool) -> Any:
    """``model``, or with ``int8`` a copy with its rounding."""
    if not int8:
        return model
    twin = copy.deepcopy(model)
    for module in twin.modules():
        if isinstance(module, nn.Linear):
            module.__class__ = QuantizedLinear
        elif isinstance(module, OutputProjection):
            module.__class__ = QuantizedProjection
    return twin


def randomize(model: nn.Module, scale: float) -> None:
    """Weights of deviation ``scale`` / √inputs, and normalizations near 1."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            fan = weight.size(1) ** 0.5 if weight.dim() > 1 and "embedding" not in name else 5
            weight.copy_(torch.randn_like(weight) * (scale / fan) + ("norm" in name and name.endswith("weight")))


# Decoder-only models


@functools.lru_cache(maxsize=FORMS)
def gpt(number: int, int8: bool) -> tuple[GPT, GPT, NativeGPT]:
    """A model, its reference and its form in the kernels; both of the same weights."""
    rng = random.Random(number)
    n_kv_heads = rng.choice((1, 1, 2, 3))
    heads = {"n_kv_heads": n_kv_heads, "d_head": 2 * rng.choice((1, 4, 9, 16, 32, rng.randint(1, 32)))}
    sizes = {"d_model": rng.choice((21, 48, 64, rng.randint(1, 100))), "d_ff": rng.randint(1, 140)}
    sizes["d_model"] = max(sizes["d_model"], LEAST_INT8_WIDTH if int8 else LEAST_WIDTH)
    kinds = {
        "norm": rng.choice(("layer", "rms")),
        "positions": rng.choice(("learned", "sinusoidal", "rotary")),
        "activation": rng.choice(sorted(ACTIVATIONS)),
        **{name: rng.random() < 0.5 for name in ("gated", "bias", "tie_embeddings")},
    }
    if kinds["positions"] != "rotary" and rng.random() < 0.5:
        heads["d_head"] += 1
    layers = {"n_heads": n_kv_heads * rng.choice((1, 2, 3, 5)), "n_layers": rng.choice((1, 1, 1, 2))}
    values = {"vocab_size": VOCABULARY, "max_length": MAX_LENGTH, "dropout": 0.0, **sizes, **kinds, **layers}
    values["attention"] = heads
    with torch.random.fork_rng():
        torch.manual_seed(number)
        model = GPT(GPTConfig.parse(values)).eval()
        randomize(model, 1.5)
    return model, reference(model, int8), NativeGPT(model, loaded(), int8)


def draw_gpt(rng: Draw, int8: bool) -> Call:
    """Prompts of any lengths, some with a beginning that was read before, and some steps after them."""
    number = rng.randrange(FORMS)
    model, expected, native = gpt(number, int8)
    rows, shared = size(rng, 6), rng.choice((0, 0, 0, 1, rng.randint(2, 12)))
    width = shared + size(rng, rng.choice((8, 30)))
    lengths = torch.randint(shared, width + 1, (rows,))
    if rng.random() < 0.2:
        lengths = lengths.fill_(rng.choice((shared, width)))
    if bool((lengths == shared).all()):  # PyTorch refuses more padding, too, than a model has positions
        width = shared
    beginning = torch.randint(VOCABULARY, (shared + rng.choice((0, 3)),)) if shared else torch.zeros(0).long()
    source = torch.randint(VOCABULARY, (rows, width))
    source[:, :shared] = beginning[:shared]
    mask = torch.arange(width) < lengths[:, None]
    bad = None
    if invalid(rng) and rows:
        bad = rng.choice(("source", "token", "rows", "mask"))
        if bad == "source" and bool(mask[:, shared:].any()):
            row, column = rng.choice((mask & (torch.arange(width) >= shared)).nonzero().tolist())
            source[row, column] = rng.choice((-1, VOCABULARY, 2**31 - 1))
        mask = F.pad(mask, (0, rng.choice((-1, 1)))) if bad == "mask" and bool(mask.any()) else mask
    source = laid_out(rng, source.to(rng.choice((torch.int64, torch.int32))))
    mask, seed = laid_out(rng, mask), rng.getrandbits(30)
    steps = rng.choice((0, 1, 2, 3, 3, rng.choice((4, 40)))) if rng.large and rows else rng.choice((1, 1, 1, 2))

    def computed(form: GPT | NativeGPT) -> Results:
        given = {"prefix": form.read(beginning.tolist()), "shared": shared} if shared and form is native else {}
        return lambda: continued(form, source, mask, given, steps, random.Random(seed), bad)

    what = f"form {number}, prompts {list(source.shape)}, {shared} shared, {steps} steps, invalid {bad}"
    precise = lambda: computed(model if int8 else copy.deepcopy(model).double())()  # noqa: E731
    return Call(computed(native), computed(expected), INT8 if int8 else FLOAT32, what, precise=precise)


@torch.inference_mode()
def continued(
    form: Any, source: Tensor, mask: Tensor, given: dict[str, Any], steps: int, rng: random.Random, bad: str | None
) -> list[Tensor]:
    """Logits of some steps, between which hypotheses branch, end and change their order."""
    state, found = form.begin(source, mask, **given), []
    tokens = torch.randint(VOCABULARY, (len(source), 1), generator=torch.Generator().manual_seed(1))
    for _ in range(steps):
        if bad == "token" and len(tokens):
            tokens[0, 0] = VOCABULARY
        if bad == "rows" and len(tokens) > 1:
            tokens = tokens[1:]
        found.append(form.step(tokens, state).clone())
        before = len(tokens)
        rows = [rng.randrange(before) for _ in range(rng.choice((before, before, rng.randint(0, 7))) if before else 0)]
        state.select(torch.tensor(rows, dtype=torch.long))
        new = 1 if rng.random() < 0.9 else 2
        tokens = torch.tensor([rng.randrange(VOCABULARY) for _ in rows for _ in range(new)]).long().view(-1, new)
    return found


# Encoders


@functools.lru_cache(maxsize=FORMS)
def encoder(number: int, int8: bool) -> tuple[Stack, Stack, PackedEncoder]:
    """A stack, its reference and its form in the kernels: as BERT (after), ViT and series (before), and others."""
    rng = random.Random(number)
    heads, plain = rng.choice((1, 2, 3, 8)), rng.random() < 0.7
    d_k = rng.choice((1, 4, 8, 16, 32, 64, rng.randint(1, 64)))
    d_k = max(d_k, LEAST_WIDTH) if plain else d_k
    d_model = heads * d_k if plain else rng.randint(LEAST_WIDTH, 130)
    d_v, d_ff = d_k if plain else rng.randint(1, 64), rng.choice((64, rng.randint(1, 200)))
    rotary = None if plain or d_k % 2 else Rotary(d_k)
    bias, pre = plain or rng.random() < 0.5, rng.random() < 0.5
    norm = LayerNorm if plain else rng.choice((LayerNorm, RMSNorm))
    kind = FeedForward if plain else rng.choice((FeedForward, GatedFeedForward))
    activation = ACTIVATIONS[rng.choice(sorted(ACTIVATIONS))]

    def block() -> Block:
        attention = MultiHeadAttention(d_model, heads, d_k, d_v, Dropout(0.0), bias, rotary)
        wrap = lambda: AddNorm(norm(d_model), Dropout(0.0), pre)  # noqa: E731
        return Block(attention, kind(d_model, d_ff, activation, bias), wrap)

    with torch.random.fork_rng():
        torch.manual_seed(number)
        stack = Stack([block() for _ in range(rng.choice((1, 1, 1, 2)))], norm(d_model) if pre else None).eval()
        randomize(stack, 1.5)
    assert unsupported_stack(stack, False) is None
    return stack, reference(stack, int8), pack_encoder(stack, loaded(), int8)


def draw_encoder(rng: Draw, int8: bool) -> Call:
    """Sequences of any lengths; with gaps, numbered sentences or other masks, which the blocks themselves compute."""
    number = rng.randrange(FORMS)
    stack, expected, native = encoder(number, int8)
    d_model = native.structure.d_model
    batch, length = size(rng, 12), size(rng, rng.choice((20, 20, 140)))
    kind = rng.choice(("none", "padding"))
    if rng.random() < 0.1:
        kind = rng.choice(("gaps", "numbers", "causal"))
    keys = torch.arange(length) < torch.randint(length + 1, (batch, 1))
    if kind == "gaps":
        keys = torch.rand(batch, length) < 0.7
    if kind == "numbers":
        keys = torch.randint(3, (batch, length)).sort(1, descending=True)[0]
    width = d_model
    if invalid(rng):
        width = near(rng, d_model) if rng.random() < 0.6 else width
        keys = F.pad(keys, (0, 1)) if width == d_model else keys
    x, keys = tensor(rng, batch, length, width), laid_out(rng, keys)
    mask = {"none": None, "causal": Mask(causal=True)}.get(kind, Mask(keys, keys))
    tokens = keys != 0 if isinstance(mask, Mask) and mask.keys is not None else None
    if kind in ("causal", "numbers") or (kind == "gaps" and not pads_behind(keys)):
        expected = stack  # as the blocks compute, without rounding

    def computed(form: Stack, x: Tensor = x) -> Results:
        def compute() -> list[Tensor]:
            result = form(x, mask)
            return [result if tokens is None else result[tokens]]

        return torch.inference_mode()(compute)

    what = f"form {number}, {list(x.shape)}, mask {kind} {list(keys.shape)}"
    precise = lambda: (computed(stack) if int8 else computed(copy.deepcopy(stack).double(), x.double()))()  # noqa: E731
    tolerance, hides = INT8 if int8 else FLOAT32, mask is not None
    return Call(computed(native), computed(expected), tolerance, what, hides=hides, precise=precise)


# Texts


@functools.lru_cache(maxsize=FORMS)
def bert(number: int, int8: bool) -> tuple[BERT, BERT, BERT]:
    """A model, its reference and its form in the kernels."""
    rng = random.Random(number)
    heads = rng.choice((1, 2, 3, 8))
    d_model = heads * rng.choice((4, 8, 16, 32, rng.randint(LEAST_WIDTH, 40)))
    sizes = {"d_model": d_model, "n_heads": heads, "d_ff": rng.randint(1, 140), "n_layers": rng.choice((1, 1, 1, 2))}
    kinds = {"activation": rng.choice(sorted(ACTIVATIONS)), "n_segments": rng.choice((1, 2, 3))}
    values = {"vocab_size": VOCABULARY, "max_length": MAX_LENGTH, "dropout": 0.0, **sizes, **kinds}
    with torch.random.fork_rng():
        torch.manual_seed(number)
        model = BERT(BERTConfig.parse(values)).eval()
        randomize(model, 1.5)
    return model, reference(model, int8), inference_form(model, int8, loaded())


def draw_texts(rng: Draw, int8: bool) -> Call:
    """Vectors of texts or of their tokens; with gaps or numbered sentences, which the blocks themselves compute."""
    number = rng.randrange(FORMS)
    model, expected, native = bert(number, int8)
    batch, length, n_segments = size(rng, 12), size(rng, MAX_LENGTH), model.config.n_segments
    kind = rng.choice(("none", "padding", "padding", "padding"))
    if rng.random() < 0.1:
        kind = rng.choice(("gaps", "numbers"))
    mask = torch.arange(length) < torch.randint(length + 1, (batch, 1))
    if kind == "gaps":
        mask = torch.rand(batch, length) < 0.7
    if kind == "numbers":
        mask = torch.randint(3, (batch, length)).sort(1, descending=True)[0]
    tokens, segments = torch.randint(VOCABULARY, (batch, length)), torch.randint(n_segments, (batch, length))
    bad = None
    if invalid(rng):
        bad = rng.choice(("token", "segment", "shape", "type"))
        if bad in ("token", "segment") and bool((mask != 0).any()):
            row, column = rng.choice((mask != 0).nonzero().tolist())
            wrong = tokens if bad == "token" else segments
            wrong[row, column] = rng.choice((-1, VOCABULARY, 2**31 - 1))
        if bad == "shape":
            segments = F.pad(segments, (0, 1))
    whole = rng.choice((torch.int64, torch.int32))
    tokens, segments = tokens.to(whole), segments.to(torch.float32 if bad == "type" else whole)
    tokens, segments, mask = (laid_out(rng, one) for one in (tokens, segments, mask))
    given = None if kind == "none" else mask, None if rng.random() < 0.3 and bad is None else segments
    pooling = rng.choice((None, "mean", "mean", "max", "cls"))
    if kind == "numbers" or (kind == "gaps" and not pads_behind(mask)):
        expected = model  # as the blocks compute, without rounding

    def computed(form: BERT) -> Results:
        def compute() -> list[Tensor]:
            if pooling is not None:
                found = form.embed(tokens, *given, pooling=pooling)
                return [found[mask[:, 0] != 0] if pooling == "cls" and given[0] is not None else found]
            hidden = form.hidden(tokens, *given)
            return [hidden if given[0] is None else hidden[mask != 0]]

        return torch.inference_mode()(compute)

    what = f"form {number}, {[batch, length]}, mask {kind}, pooling {pooling}, invalid {bad}"
    precise = lambda: computed(model if int8 else copy.deepcopy(model).double())()  # noqa: E731
    return Call(computed(native), computed(expected), INT8 if int8 else FLOAT32, what, precise=precise)


MODELS = {
    "gpt_float32": Kernel(lambda rng: draw_gpt(rng, int8=False), FLOAT32),
    "gpt_int8": Kernel(lambda rng: draw_gpt(rng, int8=True), INT8),
    "encoder_float32": Kernel(lambda rng: draw_encoder(rng, int8=False), FLOAT32),
    "encoder_int8": Kernel(lambda rng: draw_encoder(rng, int8=True), INT8),
    "texts_float32": Kernel(lambda rng: draw_texts(rng, int8=False), FLOAT32),
    "texts_int8": Kernel(lambda rng: draw_texts(rng, int8=True), INT8),
}
