"""Steps 1 to 6 of the walkthrough: from the text of the source to the memory."""

import math

from glassformer.explain.example import Example
from glassformer.explain.formula import explain
from glassformer.explain.story import Axis, Fact, Step, Table, checked, side, tokens_axis, vectors
from glassformer.explain.trace import Trace
from glassformer.explain.wiring import is_pre, leaving, residual_stream
from glassformer.layers.position import Sinusoidal

BITS = {"float64": 1e-9, "float32": 1e-5, "bfloat16": 2e-2, "float16": 5e-3}


ACTIVATION_LAWS = {"relu": "max(0, x W₁ + b₁)", "gelu": "GELU(x W₁ + b₁)", "silu": "SiLU(x W₁ + b₁)"}


def text_to_vectors(example: Example) -> Step:
    """Section 3.4."""
    tokenizer, t = example.translator.tokenizers.source, example.trace
    rows = tokens_axis("position", "token", example.source_tokens)
    tables = tuple(
        vectors(t, f"source_embedding.{tap}", title, rows)
        for tap, title in [("tokens", "the row of the matrix that each one-hot selects"), ("scaled", "× √d_model")]
    )
    words = [("token", "id", "how it was cut"), *_cuts(example)]
    back = tokenizer.decode(example.source_ids)
    unknown = sum(i == tokenizer.unknown_id for i in example.source_ids)
    ones = t["source_embedding.one_hot"].sum(-1)
    return Step(
        1,
        "Tokens, one-hot, embedding",
        f"The text is cut into {len(example.source_ids)} tokens, each with its number in a vocabulary of "
        f"{tokenizer.vocab_size:,}; a one-hot vector with a 1 at that number selects a row of the embedding matrix.",
        "A network computes with vectors, and tokens that are used alike come to lie close to each other.",
        "x = onehot(token) · E · √d_model",
        "section 3.4",
        tables,
        (
            checked(*tables),
            Fact("every one-hot vector holds a single 1", bool((ones == 1).all())),
            Fact(
                f"the tokens give the text back: {back!r}", bool(unknown) or back == tokenizer.normalize(example.source)
            ),
            *([Fact(f"{unknown} of the tokens stand for what the vocabulary does not hold", True)] if unknown else []),
        ),
        tables[1].formula(0),
        tuple(words),
    )


def positions(example: Example) -> Step:
    """Section 3.5."""
    t, model = example.trace, example.translator.models[0]
    position = model.source_embedding.position
    rows = tokens_axis("position", "token", example.source_tokens)
    if position is None:
        name, title = "encoder.layers.0.self_attention.rotated_q", "queries of head 0, turned by their position"
        table = vectors(t, name, title, Axis("query", "token", rows.labels), "d_k", (("head", 0),))
        tables: tuple[Table, ...]
        law, tables = "(q₂ᵢ, q₂ᵢ₊₁) turned by the angle position / 10000^(2i/d_k)", (table,)
    else:
        names = [("encoding", "what the position adds"), ("positioned", "token and position together")]
        tables = tuple(vectors(t, f"source_embedding.{tap}", title, rows) for tap, title in names)
        sines = isinstance(position, Sinusoidal)
        law = (
            "PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(same)"
            if sines
            else "PE = P[pos], learned"
        )
    return Step(
        2,
        "Positions",
        "Every position has a vector of its own, and it is added to the token that stands there.",
        "Attention alone would read a bag of words: it has no notion of what comes before what.",
        law,
        "section 3.5",
        tables,
        (checked(*tables),),
        tables[0].formula(min(1, len(rows.labels) - 1)),
    )


def attention(example: Example, path: str, number: int) -> Step:
    """Section 3.2, for the self-attention of the encoder's first layer."""
    t = example.trace
    tokens = side(example, path.split(".")[0])
    asks, asked = tokens_axis("query", "query: who asks", tokens), tokens_axis("key", "key: who is asked", tokens)
    head = (("head", 0),)
    projected = [
        vectors(t, f"{path}.{tap}", title, axis, d, head)
        for tap, title, axis, d in [
            ("q", "queries of head 0", asks, "d_k"),
            ("k", "keys of head 0", asked, "d_k"),
            ("v", "values of head 0", asked, "d_v"),
        ]
    ]
    matrices = [
        Table(t, f"{path}.scores", "q · k, head 0", asks, asked, head, "signed"),
        Table(t, f"{path}.scaled_scores", "÷ √d_k", asks, asked, head, "signed"),
        *(
            Table(t, f"{path}.weights", f"weights of head {h}", asks, asked, (("head", h),), "weights")
            for h in _heads(t, path)
        ),
    ]
    context = vectors(t, f"{path}.context", "context: weights · values, head 0", asks, "d_v", head)
    result = vectors(t, f"{path}.result", "all heads side by side, times W_O", Axis("position", "token", asks.labels))
    weights = t[f"{path}.weights"]
    row = min(1, len(asks.labels) - 1)
    strongest = int(weights[0, 0, row].argmax())
    heads, d_k = weights.size(1), t[f"{path}.q"].size(-1)
    tables = (*projected, *matrices, context, result)
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
        explain(t, f"{path}.weights", head=0, query=row, key=strongest),
    )


def add_and_norm(example: Example, path: str, number: int) -> Step:
    """Section 3.1, around the sub-layer at ``path``."""
    t, model = example.trace, example.translator.models[0]
    stack = path.split(".")[0]
    rows = tokens_axis("position", "token", side(example, stack))
    tables = (
        vectors(t, f"{path}_norm.sum", "x + Sublayer(x)", rows),
        Table(t, f"{path}_norm.norm.mean", "mean μ", rows, None),
        Table(t, f"{path}_norm.norm.deviation", "deviation √(σ² + ε)", rows, None),
        vectors(t, f"{path}_norm.normed", "normalised, times the gain, plus the shift", rows),
    )
    pre = is_pre(model, stack)
    return Step(
        number,
        "Add & Norm",
        "What went into the sub-layer is added to what came out of it, and each token's vector is brought to mean 0 "
        "and "
        "deviation 1" + (" before it enters (this model is pre-norm)." if pre else "."),
        "The sum lets a signal, and its gradient, pass through many layers; the norm keeps its size the same in all "
        "of them.",
        "x + Sublayer(LayerNorm(x))" if pre else "LayerNorm(x + Sublayer(x))",
        "section 3.1",
        tables,
        (checked(*tables),),
        tables[3].formula(0),
    )


def feed_forward(example: Example, path: str, number: int) -> Step:
    """Section 3.3."""
    t = example.trace
    rows = tokens_axis("position", "token", side(example, path.split(".")[0]))
    tables = tuple(
        vectors(t, f"{path}.{tap}", title, rows, axis)
        for tap, axis, title in [
            ("inner", "d_ff", "before the activation"),
            ("activated", "d_ff", "after it"),
            ("result", "d_model", "and back to d_model"),
        ]
    )
    activated = t[f"{path}.activated"]
    activation = example.translator.models[0].config.activation
    asleep = float((activated == 0).double().mean())
    return Step(
        number,
        "Feed-forward",
        f"Two linear transformations with an activation between them, {activated.size(-1):,} wide inside, the same at "
        f"every position; {asleep:.0%} of the inner values are 0 here.",
        "Attention moves information between tokens; this is where it is worked on, token by token.",
        f"FFN(x) = {ACTIVATION_LAWS[activation]} W₂ + b₂",
        "equation 2",
        tables,
        (checked(*tables),),
        tables[2].formula(0),
    )


def encoder_stack(example: Example) -> Step:
    """Section 3.1, the left half of figure 1."""
    t, model = example.trace, example.translator.models[0]
    layers = len(model.encoder.layers)
    rows = tokens_axis("position", "token", example.source_tokens)
    table = vectors(t, "memory", "the memory", rows)
    words = [("layer", *rows.labels)]
    for number, name in enumerate(residual_stream(model, "encoder")):
        sizes = t[name][0, : len(rows.labels)].double().pow(2).mean(-1).sqrt().tolist()
        words.append((f"layer {number - 1}" if number else "embedding", *(f"{size:.2f}" for size in sizes)))
    same = bool((t["memory"] == t[leaving(model, "encoder")]).all())
    return Step(
        6,
        "The stack of encoder layers",
        f"Attention and feed-forward are applied {layers} times, each layer with its own weights, to what the layer "
        "below gives; the result is the memory. Below: the root mean square of each token's vector, layer by layer.",
        "Each layer can build on relations that the one below it has found.",
        f"memory = Layer_{layers}(… Layer_1(x))",
        "section 3.1",
        (table,),
        (checked(table), Fact("the memory is what leaves the last layer, bit for bit", same)),
        table.formula(0),
        tuple(words),
    )


def sums_to_one(example: Example, path: str) -> Fact:
    """Of every row of every head, also those that are not shown."""
    weights = example.trace[f"{path}.weights"]
    off = float((weights.double().sum(-1) - 1).abs().max())
    limit = BITS[str(weights.dtype).removeprefix("torch.")]
    rows = math.prod(weights.shape[:-1])
    if off > limit:
        return Fact(f"not every row of the {rows:,} sums to 1: one is off by {off:.1g}", False)
    return Fact(f"all {rows:,} rows of all {weights.size(1)} heads sum to 1: largest deviation {off:.1g}", True)


def _heads(t: Trace, path: str) -> range:
    return range(min(t[f"{path}.weights"].size(1), 16))


def _cuts(example: Example) -> list[tuple[str, str, str]]:
    """Each token, its id, and the merges that made the word which it ends."""
    tokenizer = example.translator.tokenizers.source
    merges = iter(_merges_by_word(example))
    found = []
    words = tokenizer.word_of(example.source_ids)
    for place, (token, i) in enumerate(zip(example.source_tokens, example.source_ids, strict=True)):
        begins = words[place] >= 0 and (place == 0 or words[place] != words[place - 1])
        found.append((token, str(i), next(merges, "") if begins else ""))
    return found


def _merges_by_word(example: Example) -> list[str]:
    """``a+b (rank 12), ab+c (rank 40)`` for each word between spaces."""
    tokenizer = example.translator.tokenizers.source
    return [
        ", ".join(f"{merge.left}+{merge.right} (rank {merge.rank:,})" for merge in tokenizer.merges_of(word))
        for word in example.source.split()
    ]
