"""Models of one stack, and the recurrent one, drawn as the paper's figure 1 is: boxes upwards, each with its step."""

from typing import Any

from glassformer.explain.example import Example
from glassformer.explain.page.architecture import (
    CAPTIONS,
    DECODER,
    ENCODER,
    GAP,
    PITCH,
    WIDTH,
    BoxColumn,
    BoxText,
    Drawing,
    one_above_the_other,
    parts_of,
    two_stacks,
)
from glassformer.layers.position import ENCODINGS

MIDDLE = (ENCODER + WIDTH + DECODER) / 2 - 4
"""Horizontal position of the memory's arrow between two columns."""
ENTRIES = {"gpt": "text, {} tokens", "bert": "[CLS] text [SEP], {} tokens", "vit": "image", "series": "series"}
HEADS = {"masked": "a hidden word", "classification": "a class", "tagging": "a tag for each word", "images": "a class"}


def drawings(example: Example) -> list[Drawing]:
    """Drawings of the model with the shapes of this example: for a wide window, then for a narrow one if it differs."""
    if not example.translated:
        return [_one_stack(example)]
    if example.trace.kind == "recurrent":
        return [_recurrent(example, narrow) for narrow in (False, True)]
    return [two_stacks(example), one_above_the_other(example)]


def _one_stack(example: Example) -> Drawing:
    model: Any = example.model
    kind, pre, length = example.trace.kind, example.trace.kind != "bert", len(example.tokens("encoder"))
    entry, head = _entry(example), _head(example)
    boxes = len(entry) + (6 if pre else 4) + pre + len(head)
    drawing = Drawing(ENCODER + WIDTH + 60, boxes * PITCH + CAPTIONS)
    drawing.label, drawing.title = "The architecture, from below", "This model, with the shapes of this example."
    column = BoxColumn(drawing, ENCODER, drawing.height - 14)
    column.say(ENTRIES[kind].format(length))
    for part in entry:
        column.put(part)
    bottom, stack = column.y + 16, model.decoder if kind == "gpt" else model.encoder
    attention, feed = _layer(example)
    column.sublayer(_wrapped(attention, pre, model.config.d_model))
    column.sublayer(_wrapped(feed, pre, model.config.d_model))
    column.frame(bottom, len(stack.layers))
    if pre:
        column.put(BoxText("Norm", f"{length} × {model.config.d_model}", 6, "norm"))
    for part in head:
        column.put(part)
    drawing.arrows.append(f"M{column.middle} {column.y + 15}V{column.y + 1}")
    column.say(_said(example))
    drawing.note = _note(model)
    drawing.parts = parts_of(model)
    return drawing


def _entry(example: Example) -> list[BoxText]:
    c: Any = example.model.config
    length, kind = len(example.tokens("encoder")), example.trace.kind
    added = BoxText("Positions", f"+ {length} × {c.d_model}, {getattr(c, 'positions', 'learned')}", 2, "embedding")
    if kind in ("vit", "series"):
        numbers = c.n_channels * c.patch_size**2 if kind == "vit" else c.patch_length
        patches = BoxText("Patches, linear", f"{c.n_patches} × {numbers} → {c.d_model}", 1, "embedding")
        token = [BoxText("Class token", f"1 × {c.d_model}, put before", 2, "embedding")] if kind == "vit" else []
        return [patches, *token, added]
    embedding = BoxText("Embedding", f"{c.vocab_size:,} × {c.d_model}", 1, "embedding", "E")
    if kind == "bert":
        segments = BoxText("Segments", f"+ {c.n_segments} × {c.d_model}", 2, "embedding")
        return [embedding, added, segments, BoxText("Norm", f"width {c.d_model}", 2, "norm")]
    return [embedding, added] if ENCODINGS[c.positions].added else [embedding]


def _layer(example: Example) -> tuple[BoxText, BoxText]:
    c: Any = example.model.config
    keys = getattr(c, "kv_heads", c.n_heads)
    heads = f"{c.n_heads} heads of {getattr(c, 'd_head', c.d_model // c.n_heads)}"
    heads += "" if keys == c.n_heads else f", {keys} of keys"
    gated = getattr(c, "gated", False)
    title = "Masked multi-head attention" if example.trace.kind == "gpt" else "Multi-head attention"
    inner = f"{c.d_model} → {c.d_ff} → {c.d_model}, {c.activation}"
    return BoxText(title, heads, 3, "attention"), BoxText(
        "Gated feed-forward" if gated else "Feed-forward", inner, 5, "feed"
    )


def _wrapped(part: BoxText, pre: bool, d_model: int) -> list[BoxText]:
    """Norm after the sum, or before the sub-layer."""
    norm = BoxText("Norm" if pre else "Add & Norm", f"width {d_model}", 4, "norm")
    return [norm, part, BoxText("Add", f"width {d_model}", 4, "norm")] if pre else [part, norm]


def _head(example: Example) -> list[BoxText]:
    c: Any = example.model.config
    task, width = example.task, c.d_model
    if task == "forecasting":
        return [BoxText("Linear", f"{c.n_patches} · {width} → {c.horizon} steps", 7, "linear")]
    if task == "classification":
        before, size = [BoxText("Pooler", f"tanh, {width} → {width}, of [CLS]", 7, "linear")], c.n_classes
    elif task == "masked":
        before, size = [BoxText("Transform", f"{width} → {width}, {c.activation}, norm", 7, "linear")], c.vocab_size
    else:
        before, size = [], {"language": c.__dict__.get("vocab_size"), "tagging": c.__dict__.get("n_tags")}.get(task)
        size = c.n_classes if size is None else size
    tied = task == "masked" or getattr(c, "tie_embeddings", False)
    linear = BoxText("Linear", f"{width} → {size:,}", 7, "linear", "E" if tied else "")
    return [*before, linear, BoxText("Softmax", f"{size:,} probabilities", 7, "softmax")]


def _said(example: Example) -> str:
    return HEADS.get(example.task) or ("what comes next" if example.task == "language" else "the steps to come")


def _note(model: Any) -> str:
    c = model.config
    if c.kind == "bert" and c.masked_tokens:
        return f"E is one matrix of {c.vocab_size:,} × {c.d_model}, used twice: for the embedding and for hidden words."
    if c.kind != "gpt":
        return ""
    rotary = "" if ENCODINGS[c.positions].added else "Positions are not added: they turn queries and keys."
    tied = f"E is one matrix of {c.vocab_size:,} × {c.d_model}, used twice. " if c.tie_embeddings else ""
    return (tied + rotary).strip()


def _recurrent(example: Example, narrow: bool) -> Drawing:
    """Drawing with both stacks side by side or, if ``narrow``, with the decoder above the encoder."""
    c: Any = example.model.config
    below, above = 1 + c.n_encoder_layers, 5 + c.n_decoder_layers
    if narrow:
        drawing = Drawing(ENCODER + WIDTH + 60, (below + above) * PITCH + 2 * CAPTIONS)
        drawing.label = "The architecture: encoder below, decoder above"
    else:
        drawing = Drawing(ENCODER + DECODER + WIDTH + 60, max(below, above) * PITCH + CAPTIONS)
    drawing.title = "This model, with the shapes of this sentence."
    encoder = BoxColumn(drawing, ENCODER, drawing.height - 14)
    memory = _recurrent_encoder(encoder, c, len(example.source_ids))
    decoder = (
        BoxColumn(drawing, ENCODER, memory - 2 * GAP) if narrow else BoxColumn(drawing, DECODER, drawing.height - 14)
    )
    asked = _recurrent_decoder(decoder, c, len(example.target_ids))
    way, edge = (ENCODER + WIDTH + 36, ENCODER + WIDTH + 1) if narrow else (MIDDLE, DECODER - 1)
    drawing.arrows.append(f"M{encoder.middle} {memory}V{memory - 12}H{way}V{asked}H{edge}")
    drawing.parts = parts_of(example.model)
    return drawing


def _recurrent_encoder(encoder: BoxColumn, c: Any, length: int) -> float:
    """Draw the encoder; return the height at which the memory leaves."""
    encoder.say(f"source, {length} tokens")
    matrix = "E" if c.tie_embeddings else ""
    encoder.put(BoxText("Source embedding", f"{c.vocab_sizes[0]:,} × {c.d_model}", 1, "embedding", matrix))
    for _ in range(c.n_encoder_layers):
        encoder.put(BoxText("LSTM, both ways", f"{length} × {c.d_hidden}", 2, "feed"))
    return encoder.y + 15


def _recurrent_decoder(decoder: BoxColumn, c: Any, target: int) -> float:
    """Draw the decoder; return the height at which the memory enters."""
    matrix, sizes = "E" if c.tie_embeddings else "", c.vocab_sizes
    decoder.say(f"target, {target} tokens, shifted right")
    decoder.put(BoxText("Target embedding", f"{sizes[1]:,} × {c.d_model}", 3, "embedding", matrix))
    decoder.put(BoxText("LSTM", f"{target} × {c.d_hidden}", 3, "feed"))
    asked = decoder.put(BoxText("Attention", f"{c.n_heads} heads, to the memory", 3, "attention"))
    for _ in range(c.n_decoder_layers - 1):
        decoder.put(BoxText("LSTM", f"{target} × {c.d_hidden}, of both", 4, "feed"))
    decoder.put(BoxText("tanh of context and state", f"{target} × {c.d_model}", 4, "norm"))
    decoder.put(BoxText("Linear", f"{target} × {sizes[1]:,}", 5, "linear", matrix))
    decoder.put(BoxText("Softmax", f"{target} × {sizes[1]:,}", 5, "softmax"))
    decoder.say("what comes next: probabilities")
    return asked
