"""What is the encoder's own among steps 1 to 6 of the translation: the source, and the memory."""

from glassformer.explain.example import Example
from glassformer.explain.layer_steps import stream_sizes
from glassformer.explain.reading_steps import Reading
from glassformer.explain.story import Fact, Step, checked, tokens_axis, vectors
from glassformer.explain.wiring import leaving


def source(example: Example) -> Reading:
    """As the encoder reads it."""
    tokenizer = example.translator.tokenizers.source
    return Reading("source_embedding", "encoder", "source", tokenizer, example.source, example.source_ids)


def encoder_stack(example: Example) -> Step:
    """Section 3.1, the left half of figure 1."""
    t, model = example.trace, example.model
    layers = len(model.encoder.layers)
    rows = tokens_axis("position", "token", example.source_tokens)
    table = vectors(t, "memory", "the memory", rows)
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
        stream_sizes(example, "encoder", rows),
        side="source",
        headings=True,
    )
