"""Steps that every stack shares: attention, Add & Norm, feed-forward, and the layers one upon the other."""

import math

import torch

from glassformer.explain.examined import Examined
from glassformer.explain.formula.dataflow import is_pre, output_of, residual_stream
from glassformer.explain.formula.formula import Formula, explain
from glassformer.explain.trace import Trace
from glassformer.explain.walkthrough.step import (
    SIDES,
    Axis,
    Step,
    StepCheck,
    TensorTable,
    checked,
    tokens_axis,
    vectors,
)

BITS = {"float64": 1e-9, "float32": 1e-5, "bfloat16": 2e-2, "float16": 5e-3}
ACTIVATION_EQUATIONS = {"relu": "max(0, {})", "gelu": "GELU({})", "gelu_tanh": "GELU({})", "silu": "SiLU({})"}
HEAD = (("head", 0),)


def attention(example: Examined, path: str, number: int) -> Step:
    """Section 3.2, where every position sees every other."""
    t = example.trace
    queries, keys = _sides(example, path)
    heads, d_k = t[f"{path}.weights"].size(1), t[f"{path}.q"].size(-1)
    tables = (
        *_projected(t, path, queries, keys),
        TensorTable(t, f"{path}.scores", "q · k, head 0", queries, keys, HEAD, "signed"),
        TensorTable(t, f"{path}.scaled_scores", "÷ √d_k", queries, keys, HEAD, "signed"),
        *_weights(t, path, queries, keys),
        *_gathered(t, path, queries),
    )
    return Step(
        number,
        "Queries, keys, values: attention",
        f"Each token is projected to a query, a key and a value in each of {heads} heads of {d_k} dimensions; the "
        "products of a query with all keys become weights, and the output is the values by these weights.",
        "So every token gathers what it needs from all the others at once, and each head may look for something else.",
        "Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V",
        "equation 1, section 3.2.2",
        tables,
        (checked(*tables), sums_to_one(example, path)),
        strongest(t, path, min(1, len(queries.labels) - 1)),
    )


def masked_attention(example: Examined, path: str, number: int) -> Step:
    """Section 3.2.3, third application, in a stack that has no encoder below it: with its projections."""
    t = example.trace
    queries, keys = _sides(example, path)
    heads, kv_heads = t[f"{path}.q"].size(1), t[f"{path}.k"].size(1)
    sparse = bool((~t[f"{path}.mask"]).tril().any())
    seen, others = (
        ("some of those before it (a sparse pattern)", "others") if sparse else ("those before it", "later ones")
    )
    outside = (" or outside the pattern", " and outside the pattern") if sparse else ("", "")
    tables = (
        *_projected(t, path, queries, keys),
        TensorTable(t, f"{path}.scaled_scores", "q · k / √d_k, head 0", queries, keys, HEAD, "signed"),
        TensorTable(
            t,
            f"{path}.masked_scores",
            f"masked: −∞ where a later token stands{outside[0]}",
            queries,
            keys,
            HEAD,
            "signed",
        ),
        *_weights(t, path, queries, keys),
        *_gathered(t, path, queries),
    )
    grouped = "" if heads == kv_heads else f" Groups of {heads // kv_heads} heads share keys and values."
    return Step(
        number,
        "Masked self-attention",
        f"In each of {heads} heads the query of a token is compared with its own key and those of {seen}; the scores "
        f"of all {others} are −∞ before the softmax, and so their weights are exactly 0.{grouped}",
        "A token must not be predicted from itself or from what follows it: when the model writes, that does not "
        "exist yet.",
        f"softmax(Q Kᵀ / √d_k + mask) V, mask = −∞ above the diagonal{outside[1]}",
        "equation 1, section 3.2.3",
        tables,
        (checked(*tables), no_later_word(t, path), sums_to_one(example, path)),
        strongest(t, path, len(queries.labels) - 1),
    )


def add_and_norm(example: Examined, path: str, number: int) -> Step:
    """Section 3.1, around the sub-layer at ``path``."""
    t, stack = example.trace, path.split(".")[0]
    rows = tokens_axis("position", "token", example.tokens(stack))
    pre, norm = is_pre(example.model, stack), f"{path}_norm.norm"
    rms = f"{norm}.root_mean_square" in t
    sizes = (
        [("root_mean_square", "√(mean(x²) + ε)")] if rms else [("mean", "mean μ"), ("deviation", "deviation √(σ² + ε)")]
    )
    added = vectors(t, f"{path}_norm.sum", "x + Sublayer(x)", rows)
    normed = vectors(t, f"{path}_norm.normed", "normalized, times the gain" + ("" if rms else ", plus the shift"), rows)
    tables = (added, *(TensorTable(t, f"{norm}.{tap}", title, rows, None) for tap, title in sizes), normed)
    kind = "RMSNorm" if rms else "LayerNorm"
    brought = "a root mean square of 1" if rms else "mean 0 and deviation 1"
    return Step(
        number,
        "Add & Norm",
        f"What went into the sub-layer is added to what came out of it, and each token's vector is brought to {brought}"
        + (" before it enters (this model is pre-norm)." if pre else "."),
        "The sum lets a signal, and its gradient, pass through many layers; the norm keeps its size the same in all "
        "of them.",
        f"x + Sublayer({kind}(x))" if pre else f"{kind}(x + Sublayer(x))",
        "Zhang & Sennrich 2019" if rms else "section 3.1",
        tables,
        (checked(*tables),),
        normed.formula(0),
    )


def feed_forward(example: Examined, path: str, number: int) -> Step:
    """Section 3.3; with a gate, Shazeer 2020."""
    t = example.trace
    gated = f"{path}.gate" in t
    rows = tokens_axis("position", "token", example.tokens(path.split(".")[0]))
    plain = [("inner", "d_ff", "before the activation"), ("activated", "d_ff", "after it")]
    gate = [("gate", "d_ff", "the gate"), ("activated", "d_ff", "the gate, activated")]
    gate += [("inner", "d_ff", "what it lets through"), ("product", "d_ff", "the product of both")]
    taps = [*(gate if gated else plain), ("result", "d_model", "and back to d_model")]
    tables = tuple(vectors(t, f"{path}.{tap}", title, rows, axis) for tap, axis, title in taps)
    activated = t[f"{path}.activated"]
    asleep = float((activated == 0).double().mean())
    activated_by = ACTIVATION_EQUATIONS[example.model.config.activation]
    between = "with a gate" if gated else "with an activation"
    return Step(
        number,
        "Feed-forward",
        f"Two linear transformations {between} between them, {activated.size(-1):,} wide inside, the same at "
        f"every position; {asleep:.0%} of the inner values are 0 here.",
        "Attention moves information between tokens; this is where it is worked on, token by token.",
        f"FFN(x) = ({activated_by.format('x W_g')} ⊙ x W₁) W₂"
        if gated
        else f"FFN(x) = {activated_by.format('x W₁ + b₁')} W₂ + b₂",
        "Shazeer 2020, equation 6" if gated else "equation 2",
        tables,
        (checked(*tables),),
        tables[-1].formula(0),
    )


def stack(example: Examined, name: str, number: int) -> Step:
    """Section 3.1: the layers of the only stack of a model, and what leaves it."""
    t, layers = example.trace, len(getattr(example.model, name).layers)
    rows = tokens_axis("position", "token", example.tokens(name))
    out = "memory" if "memory" in t else output_of(example.model, name)
    table = vectors(t, out, "what leaves the stack", rows)
    words = stream_sizes(example, name, rows)
    kept = is_what_leaves(example, name, "this") if out == "memory" else gives_the_logits(example, out)
    norm = final_norm(example, name)
    return Step(
        number,
        f"The stack of {layers} layers",
        f"Attention and feed-forward are applied {layers} times, each layer with its own weights, to what the layer "
        f"below gives{ending(norm)}. Below: the root mean square of each token's vector, layer by layer.",
        "Each layer can build on relations that the one below it has found.",
        f"x = {whole_law(norm, f'Layer_{layers}(… Layer_1(x))')}",
        "section 3.1",
        (table,),
        (checked(table), kept),
        table.formula(0),
        words,
        side=SIDES[example.trace.kind],
        headings=True,
    )


def final_norm(example: Examined, name: str) -> str:
    """What pre-norm stacks have behind their last layer; "" for the others."""
    norm = getattr(example.model, name).final_norm
    return "" if norm is None else type(norm).__name__


def ending(norm: str) -> str:
    """Of the sentence about the layers."""
    return f", and a last {norm} follows (this model is pre-norm)" if norm else ""


def whole_law(norm: str, layers: str) -> str:
    return f"{norm}({layers})" if norm else layers


def is_what_leaves(example: Examined, name: str, what: str) -> StepCheck:
    """Of the memory, which is recorded by itself."""
    t, last = example.trace, "normalization" if final_norm(example, name) else "layer"
    same = bool((t["memory"] == t[output_of(example.model, name)]).all())
    return StepCheck(f"{what} is what leaves the last {last}, bit for bit", same)


def gives_the_logits(example: Examined, out: str) -> StepCheck:
    """By the model's own output projection, once more."""
    logits = example.model.output_projection(example.trace[out])
    same = bool((logits == example.trace["output_projection.logits"]).all())
    return StepCheck("the logits are computed from exactly this", same)


def stream_sizes(example: Examined, name: str, rows: Axis) -> tuple[tuple[str, ...], ...]:
    """The root mean square of each token's vector after the embedding and after each layer, under its heading."""
    words = [("layer", *rows.labels)]
    for number, place in enumerate(residual_stream(example.model, name)):
        sizes = example.trace[place][0, : len(rows.labels)].double().pow(2).mean(-1).sqrt().tolist()
        words.append((f"layer {number - 1}" if number else "embedding", *(f"{size:.2f}" for size in sizes)))
    return tuple(words)


def sums_to_one(example: Examined, path: str) -> StepCheck:
    """Of every row of every head, also those that are not shown."""
    weights = example.trace[f"{path}.weights"]
    off = float((weights.double().sum(-1) - 1).abs().max())
    limit = BITS[str(weights.dtype).removeprefix("torch.")]
    rows = math.prod(weights.shape[:-1])
    if not off <= limit:
        return StepCheck(f"not every row of the {rows:,} sums to 1: one is off by {off:.1g}", False)
    return StepCheck(f"all {rows:,} rows of all {weights.size(1)} heads sum to 1: largest deviation {off:.1g}", True)


def no_later_word(t: Trace, path: str) -> StepCheck:
    weights = t[f"{path}.weights"]
    future = torch.ones(weights.shape[-2:], dtype=torch.bool, device=weights.device).triu(1)
    return StepCheck("every weight on a later word is exactly 0, in all heads", not weights[..., future].any())


def strongest(t: Trace, path: str, row: int) -> Formula:
    """The formula of the largest weight of a row of head 0."""
    key = int(t[f"{path}.weights"][0, 0, row].argmax())
    return explain(t, f"{path}.weights", head=0, query=row, key=key)


def _sides(example: Examined, path: str) -> tuple[Axis, Axis]:
    tokens = example.tokens(path.split(".")[0])
    return tokens_axis("query", "query", tokens), tokens_axis("key", "key", tokens)


def _projected(t: Trace, path: str, queries: Axis, keys: Axis) -> list[TensorTable]:
    taps = [("q", "queries", queries, "d_k"), ("k", "keys", keys, "d_k"), ("v", "values", keys, "d_v")]
    found = [vectors(t, f"{path}.{tap}", f"{title} of head 0", axis, d, HEAD) for tap, title, axis, d in taps]
    if f"{path}.rotated_q" not in t:
        return found
    turned = [("rotated_q", "queries", queries), ("rotated_k", "keys", keys)]
    return found + [
        vectors(t, f"{path}.{tap}", f"{title} of head 0, turned by their position", axis, "d_k", HEAD)
        for tap, title, axis in turned
    ]


def _weights(t: Trace, path: str, queries: Axis, keys: Axis) -> list[TensorTable]:
    heads = range(min(t[f"{path}.weights"].size(1), 16))
    return [
        TensorTable(t, f"{path}.weights", f"weights of head {h}", queries, keys, (("head", h),), "weights")
        for h in heads
    ]


def _gathered(t: Trace, path: str, queries: Axis) -> list[TensorTable]:
    position = Axis("position", "token", queries.labels)
    return [
        vectors(t, f"{path}.context", "context: weights · values, head 0", queries, "d_v", HEAD),
        vectors(t, f"{path}.result", "all heads side by side, times W_O", position),
    ]
