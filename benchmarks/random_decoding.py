"""Random calls of the kernels of a search, of packed products, and of translators."""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.random_arguments import Call, Draw, Kernel, Results, invalid, laid_out, near, size, tensor
from glassformer.generate.candidates import NativeSearch, TorchSearch
from glassformer.models.registry import build_model
from glassformer.native.beam_steps import BeamRules, Beams
from glassformer.native.decoding import NativeDecoder, steps_within
from glassformer.native.execution import SearchKernels
from glassformer.native.library import loaded
from glassformer.native.packed import Packed

# Search and decoding


def draw_log_sums(rng: Draw) -> Call:
    logits = tensor(rng, size(rng, 20), rng.choice((size(rng), size(rng, 1000))), wild=0.2)
    native = NativeSearch(SearchKernels(loaded()))
    return Call(
        lambda: [native.log_sum(logits)], lambda: [TorchSearch().log_sum(logits)], 1e-6, f"logits {list(logits.shape)}"
    )


def draw_best_of(rng: Draw) -> Call:
    logits = tensor(rng, size(rng, 20), rng.choice((size(rng), size(rng, 1000))), wild=0.2)
    k, native = rng.choice((0, 1, 2, 5, 64, 5000)), NativeSearch(SearchKernels(loaded()))
    numbers = logits.nan_to_num(-torch.inf, torch.inf, -torch.inf)

    def found() -> list[Tensor]:
        values, ids = native.best(logits, k)
        return [values, numbers.gather(1, ids), ids.sort(1)[0].diff() > 0]

    def expected() -> list[Tensor]:
        values = numbers.topk(min(k, logits.size(1)))[0]
        return [values, values, torch.ones_like(values[:, 1:])]

    return Call(found, expected, 1e-12, f"{k} of {list(logits.shape)}")


def draw_extensions(rng: Draw) -> Call:
    sentences, live, vocabulary = rng.randint(0, 4), rng.randint(1, 5), rng.choice((1, 2, 9, 200, 1000))
    rows = near(rng, sentences * live) if invalid(rng) else sentences * live
    logits = laid_out(rng, torch.randn(rows, vocabulary) * rng.choice((1.0, 7.0)))  # without ties
    logits = logits.masked_fill(torch.rand(logits.shape) < rng.choice((0, 0.5, 0.99)), -torch.inf)
    normalizers = laid_out(rng, torch.logsumexp(logits, 1).clamp(min=-30))
    totals = laid_out(rng, torch.randn(sentences, live))
    totals = totals.masked_fill(torch.rand(totals.shape) < 0.1, -torch.inf)
    end, beam = rng.randrange(-1, vocabulary), rng.choice((1, 1, 2, 4, 7))

    def computed(search: TorchSearch) -> Results:
        def compute() -> list[Tensor]:
            step = search.extensions(logits, normalizers, totals, end, beam)
            ends = (step.candidates.tokens == end) & (step.candidates.totals > -torch.inf)
            return [step.candidates.totals, step.continuing.totals, torch.tensor(step.some_end == bool(ends.any()))]

        return compute

    what = f"{sentences} × {live}, logits {list(logits.shape)}, beam {beam}, end {end}"
    return Call(computed(NativeSearch(SearchKernels(loaded()))), computed(TorchSearch()), 1e-5, what)


def draw_packed(rng: Draw, int8: bool) -> Call:
    """A packed linear layer as decoding applies it."""
    inputs, outputs, rows = (
        rng.choice((1, 3, 64, size(rng, 500) + 1, size(rng, 1500) + 1)),
        size(rng, 300) + 1,
        size(rng, 200),
    )
    module = nn.Linear(inputs, outputs, bias=rng.random() < 0.5)
    with torch.no_grad():
        module.weight.copy_(tensor(rng, outputs, inputs))
    x = tensor(rng, rows, inputs).contiguous()

    def expected() -> list[Tensor]:
        a, b = (quantized(each) if int8 else each.double() for each in (x, module.weight.detach()))
        return [F.linear(a, b, None if module.bias is None else module.bias.detach().double())]

    parts = loaded().multiplies_parts and not int8 and rng.random() < 0.5
    what = f"{list(x.shape)}, {inputs} → {outputs}{', in parts' if parts else ''}"
    return Call(lambda: [applied(module, x, int8, parts)], expected, 1e-2 if int8 else 2e-5, what)


def applied(module: nn.Linear, x: Tensor, int8: bool, parts: bool = False) -> Tensor:
    packed = Packed(loaded(), int8, parts)
    return packed.apply(packed.linear(module), x)


def quantized(x: Tensor) -> Tensor:
    """Rows rounded to 127 steps on either side of 0; a row that is not finite is NaN."""
    limit = x.abs().amax(1, keepdim=True)
    rounded = (x / limit.clamp(min=1e-36) * 127).round().double() * limit / 127
    return torch.where(x.isfinite().all(1, keepdim=True), rounded, torch.nan)


DECODERS: dict[tuple[Any, ...], tuple[Any, NativeDecoder]] = {}


def decoders(int8: bool = False, **values: Any) -> tuple[Any, NativeDecoder]:
    key = int8, *values.items()
    if key not in DECODERS:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            sizes = {"kind": "encoder_decoder", "vocab_size": 50, "n_encoder_layers": 1}
            model: Any = build_model(sizes | values, "random calls").eval()
        DECODERS[key] = model, NativeDecoder(model, loaded(), int8)
    return DECODERS[key]


def form_of_decoder(rng: Draw) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sizes and kinds of a decoder."""
    widths = rng.choice(({"d_model": 64, "n_heads": 2, "d_ff": 96}, {"d_model": 22, "n_heads": 1, "d_ff": 27}))
    kinds = {
        "norm_order": ("post", "pre"),
        "positions": ("sinusoidal", "rotary", "learned"),
        "activation": ("relu", "silu"),
    }
    return widths, {name: rng.choice(kind) for name, kind in kinds.items()}


def draw_decode(rng: Draw) -> Call:
    widths, drawn = form_of_decoder(rng)
    model, native = decoders(**widths, **drawn, n_decoder_layers=2 if rng.large else 1, max_length=48)
    source = torch.randint(50, (size(rng, 5), size(rng, 30)))
    mask = torch.arange(source.size(1)) < torch.randint(source.size(1) + 1, (len(source), 1))
    # Gaps, which PyTorch computes. Rotary positions count from the first token that is not padding.
    if drawn["positions"] != "rotary" and rng.random() < 0.1:
        mask = torch.rand(source.shape) < rng.choice((0.2, 0.9))
    steps, seed = rng.choice((0, 1, 2, 3, 50)) if rng.large else rng.choice((1, 1, 1, 2)), rng.getrandbits(30)
    bad = None
    if invalid(rng) and source.numel():
        bad = rng.choice(("source", "token", "rows", "mask"))
        if bad == "source":
            source.view(-1)[0], mask.view(-1)[0] = rng.choice((-1, 50)), True
        mask = mask[:, :-1] if bad == "mask" else mask

    def computed(form: Any) -> Results:
        return lambda: decoded(form, source, mask, steps, random.Random(seed), bad)

    what = f"source {list(source.shape)}, {steps} steps, {drawn}, d_model {widths['d_model']}, invalid {bad}"
    return Call(computed(native), computed(model), 2e-4, what)


@torch.inference_mode()
def decoded(form: Any, source: Tensor, mask: Tensor, steps: int, rng: random.Random, bad: str | None) -> list[Tensor]:
    """Logits of some steps, in which hypotheses branch and sentences end."""
    state, sentences, found = form.begin(source, mask), len(source), []
    tokens = torch.ones(sentences, 1, dtype=torch.long)
    for _ in range(steps):
        if bad == "token":
            tokens[0, 0] = 50
        found.append(form.step(tokens, state).clone())
        beams = len(tokens) // max(1, sentences)
        kept = [one for one in range(sentences) if rng.random() < 0.9]
        sentences, width = len(kept), rng.choice((beams, 3))
        rows = [one * beams + rng.randrange(beams) for one in kept for _ in range(width)]
        state.select_sentences(torch.tensor(kept, dtype=torch.long))
        kept = rows[1:] if len(rows) != 2 else []  # one hypothesis for two tokens would be valid
        state.select(torch.tensor(kept if bad == "rows" else rows, dtype=torch.long))
        tokens = torch.tensor([[rng.randrange(50)] for _ in rows], dtype=torch.long).view(-1, 1)
    return found


def draw_search_beams(rng: Draw) -> Call:
    """Several steps of a beam search in one call, beside the same steps one by one."""
    (widths, drawn), int8 = form_of_decoder(rng), rng.random() < 0.4
    _, native = decoders(int8, **widths, **drawn, n_decoder_layers=2 if rng.large else 1, max_length=48)
    sentences, length = size(rng, 5) if rng.large else rng.choice((0, 1, 1, 1, 2)), size(rng, 12) + 1
    source = torch.randint(50, (sentences, length))
    mask = torch.arange(length) < torch.randint(1, length + 1, (sentences, 1))
    beam, before, most = rng.randint(1, 8), rng.choice((1, 1, 2, 45)) if rng.large else 1, rng.choice((0, 1, 2, 5, 8))
    tokens = torch.randint(50, (sentences, beam, before + 1))
    total = torch.randn(sentences, beam).masked_fill(torch.rand(sentences, beam) < 0.1, -torch.inf)
    beams = Beams(tokens, torch.randn(tokens.shape), total)
    end, forbidden = rng.choice((2, 2, 49, -1)), rng.sample(range(50), rng.choice((0, 1, 2, 40, 50)))
    bad = rng.choice(("token", "forbidden", "log_probs")) if invalid(rng) and beams.total.numel() else None
    if bad == "token":
        tokens[0, 0, -1] = rng.choice((-1, 50))
    elif bad == "forbidden":
        forbidden.append(rng.choice((-51, 50)))
    elif bad == "log_probs":
        beams = beams._replace(log_probs=beams.log_probs[..., :-1])
    rules = BeamRules(end, torch.tensor(forbidden, dtype=torch.long))

    def computed(steps: Callable[..., list[Tensor]]) -> Results:
        return lambda: searched(native, source, mask, beams, lambda state: steps(native, state, beams, rules, most))

    what = f"source {[sentences, length]}, beam {beam}, {before} + {most} steps, end {end}, {len(forbidden)} forbidden"
    what += f", {drawn}, d_model {widths['d_model']}, int8 {int8}, invalid {bad}"
    return Call(computed(at_once), computed(one_by_one), 1e-6, what)


@torch.inference_mode()
def searched(
    native: NativeDecoder, source: Tensor, mask: Tensor, beams: Beams, steps: Callable[[Any], list[Tensor]]
) -> list[Tensor]:
    """Results of ``steps`` after all tokens of ``beams`` but the last, and logits of one more step."""
    state = native.begin(source, mask)
    state.select(torch.arange(len(source)).repeat_interleave(beams.total.size(1)))
    for tokens in beams.tokens[..., :-1].flatten(0, 1).unbind(1):
        native.step(tokens[:, None], state)
    found = steps(state)
    if found and steps_within(native.model.target_embedding.position, len(state.keys_values), 1):
        found.append(native.step(found[0][..., -1].reshape(-1, 1), state).clone())
    return found


def at_once(native: NativeDecoder, state: Any, beams: Beams, rules: BeamRules, most: int) -> list[Tensor]:
    """Tokens, their log-probabilities and totals, then those before, the candidates, and what a search decides by."""
    result = native.search_beams(state, beams, rules, most)
    if result is None:
        return []
    numbers = [torch.tensor(each) for each in (result.some_end, result.best, result.normalizers)]
    return [*result.beams, *result.before, *result.candidates, *numbers]


def one_by_one(native: NativeDecoder, state: Any, beams: Beams, rules: BeamRules, most: int) -> list[Tensor]:
    search, (tokens, log_probs, total), found = NativeSearch(SearchKernels(loaded())), beams, list[Tensor]()
    sentences, beam = total.shape
    for _ in range(steps_within(native.model.target_embedding.position, len(state.keys_values), most)):
        if tokens.shape != log_probs.shape:
            raise ValueError("tokens and log_probs have different shapes")
        logits = native.step(tokens[..., -1].reshape(-1, 1), state)
        normalizers = search.log_sum(logits)
        logits[:, rules.forbidden] = -torch.inf
        step = search.extensions(logits, normalizers, total, rules.end, beam)
        rows = step.continuing.parents + torch.arange(0, sentences * beam, beam)[:, None]
        state.select(rows.flatten())
        before, total = (tokens, log_probs), step.continuing.totals
        tokens = torch.cat([tokens.flatten(0, 1)[rows], step.continuing.tokens[..., None]], -1)
        log_probs = torch.cat([log_probs.flatten(0, 1)[rows], step.continuing.log_probs[..., None]], -1)
        best, sums, some_end = total.amax(1), normalizers.view(sentences, beam).sum(1), torch.tensor(step.some_end)
        found = [tokens, log_probs, total, *before, total, *step.candidates, some_end, best, sums]
        if step.some_end or not (sums.isfinite() & (best > -torch.inf)).all():
            break
    return found


DECODING = {
    "log_sums": Kernel(draw_log_sums, 1e-6),
    "best_of": Kernel(draw_best_of, 1e-12),
    "extensions": Kernel(draw_extensions, 1e-5),
    "packed_float32": Kernel(lambda rng: draw_packed(rng, int8=False), 2e-5),
    "packed_int8": Kernel(lambda rng: draw_packed(rng, int8=True), 1e-2),
    "decode": Kernel(draw_decode, 2e-4),
    "search_beams": Kernel(draw_search_beams, 1e-6),
}
