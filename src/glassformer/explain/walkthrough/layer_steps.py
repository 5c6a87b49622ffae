"""Steps of layers and stacks, by the class of the module at a path."""

from collections.abc import Sequence
from dataclasses import replace

from glassformer.explain.example import Example
from glassformer.explain.formula.dataflow import input_names, is_pre, output_of, residual_stream
from glassformer.explain.formula.formula import Formula, explain
from glassformer.explain.matrix import Axis, Label
from glassformer.explain.trace import Trace
from glassformer.explain.walkthrough.prose import Prose, build
from glassformer.explain.walkthrough.step import MAX_LABELS, Step, cut_axis
from glassformer.layers.feed_forward import ACTIVATION_RECORDS
from glassformer.text.decimals import aligned, share


def self_attention(example: Example, path: str) -> Step:
    """Section 3.2: in an encoder, or causal, with its projections."""
    t, tokens = example.trace, example.side(_stack(path)).labels
    heads, kv_heads, d_k = t[f"{path}.q"].size(1), t[f"{path}.k"].size(1), t[f"{path}.q"].size(-1)
    variants: list[str] = []
    if _stack(path) == "decoder":
        sparse = bool((~t[f"{path}.mask"]).tril().any())
        variants = ["masked"] + ["sparse"] * sparse + ["grouped"] * (heads != kv_heads)
    prose = Prose("attention", variants, {"heads": heads, "d_k": d_k, "group": heads // kv_heads})
    row = len(tokens) - 1 if variants else 1
    return build(example, prose, path, _attention_axes(tokens), evaluation=_strongest(t, path, row))


def masked_self_attention(example: Example, path: str) -> Step:
    """Section 3.2.3, third application: above an encoder, without the projections, which it has shown."""
    tokens = example.sides[-1].labels
    axes, row = _attention_axes(tokens), len(tokens) - 1
    prose = Prose("attention", ["target"], {})
    return build(example, prose, path, axes, evaluation=_strongest(example.trace, path, row))


def cross_attention(example: Example, path: str) -> Step:
    """Section 3.2.3, first application; in a recurrent model as in Bahdanau et al. 2015."""
    layered = ".layers." in path
    query = "query: decoder" if layered else "query: the decoder's states ask"
    axes = {
        "query": cut_axis("query", query, example.sides[-1].labels),
        "key": cut_axis("key", "key: source", example.sides[0].labels),
    }
    layer = path.split(".")[2] if layered else ""
    prose = Prose("attention", ["cross" if layered else "recurrent"], {"layer": layer})
    return build(example, prose, path, axes, evaluation=_strongest(example.trace, path, 1))


def add_and_norm(example: Example, path: str) -> Step:
    """Section 3.1, around a sub-layer."""
    rms, pre = f"{path}.norm.root_mean_square" in example.trace, is_pre(example.model, _stack(path))
    prose = Prose("add_norm", ["rms"] * rms + ["pre"] * pre, {})
    return build(example, prose, path, _positions(example, path))


def feed_forward(example: Example, path: str) -> Step:
    """Section 3.3; with a gate, Shazeer 2020."""
    activated = example.trace[f"{path}.activated"]
    activation = ACTIVATION_RECORDS[example.model.config.activation].text
    values = {
        "width": f"{activated.size(-1):,}",
        "zeros": share(float((activated == 0).double().mean())),
        "activated": activation.format("x W₁ + b₁"),
        "gate": activation.format("x W_g"),
    }
    prose = Prose("feed_forward", ["gated"] * (f"{path}.gate" in example.trace), values)
    return build(example, prose, path, _positions(example, path))


def decoder_layer(example: Example, path: str) -> Step:
    """Sections 3.1 and 3.3: what follows the attention to the memory."""
    norm, feed = add_and_norm(example, f"{path}.cross_attention_norm"), feed_forward(example, f"{path}.feed_forward")
    prose = Prose("decoder_layer", [], {"norm": norm.formula, "feed": feed.formula})
    tables, checks = (*norm.tables, *feed.tables), (*norm.checks, *feed.checks)
    return replace(feed, path=path, tables=tables, checks=checks, **prose.texts)


def stack(example: Example, path: str) -> Step:
    """Section 3.1: the layers one upon the other, and what leaves them."""
    model = example.model
    norm, layers = model.get_submodule(path).final_norm, len(model.get_submodule(path).layers)
    two = example.translated
    output = "memory" if "memory" in example.trace and path == "encoder" else output_of(model, path)
    variants = [path] if two else ["memory"] * (output == "memory")
    values = {"layers": layers, "norm": type(norm).__name__, "output": output}
    prose = Prose("stack", variants + ["final_norm"] * (norm is not None), values)
    rows = _positions(example, path, "token read" if two and path == "decoder" else "token")
    if two and path == "decoder":
        return build(example, prose, path, rows)
    words = _stream_sizes(example, path, rows["position"])
    return build(example, prose, path, rows, words=words, side=input_names(model)[0], headings=True)


def recurrent_encoder(example: Example, path: str) -> Step:
    """Bahdanau et al. 2015, section 3.2. The states have no formula; that they are the memory has."""
    prose = Prose("recurrent_encoder", [], {"layers": len(example.model.get_submodule(path).rightward)})
    return build(example, prose, path, _positions(example, path))


def combined(example: Example, path: str) -> Step:
    """Luong et al. 2015, equation 5."""
    return build(example, Prose("combined", [], {}), path, _positions(example, path, "token read"))


def _stack(path: str) -> str:
    return path.split(".")[0]


def _positions(example: Example, path: str, title: str = "token") -> dict[str, Axis]:
    return {"position": cut_axis("position", title, example.side(_stack(path)).labels)}


def _attention_axes(tokens: Sequence[Label]) -> dict[str, Axis]:
    titles = {"query": "query", "key": "key", "position": "token"}
    return {name: cut_axis(name, title, tokens) for name, title in titles.items()}


def _strongest(t: Trace, path: str, row: int) -> Formula:
    """The formula of the largest weight of a row of head 0."""
    weights = t[f"{path}.weights"][0, 0]
    row = min(row, len(weights) - 1, MAX_LABELS - 1)
    return explain(t, f"{path}.weights", head=0, query=row, key=int(weights[row].argmax()))


def _stream_sizes(example: Example, name: str, rows: Axis) -> tuple[tuple[str, ...], ...]:
    """The root mean square of each token's vector after the embedding and after each layer, under its heading."""
    words = [("layer", *rows.texts)]
    for number, place in enumerate(residual_stream(example.model, name)):
        sizes = example.trace[place][0, : len(rows)].double().pow(2).mean(-1).sqrt().tolist()
        words.append((f"layer {number - 1}" if number else "embedding", *(aligned(size, 2) for size in sizes)))
    return tuple(words)
