"""What is the encoder's own among steps 1 to 6 of the translation: the source, and the memory."""

from glassformer.explain.example import Example
from glassformer.explain.walkthrough.layer_steps import ending, final_norm, is_what_leaves, stream_sizes, whole_law
from glassformer.explain.walkthrough.reading_steps import TextInput
from glassformer.explain.walkthrough.step import Step, checked, tokens_axis, vectors


def source(example: Example) -> TextInput:
    """As the encoder reads it."""
    tokenizer = example.translator.tokenizers.source
    return TextInput("source_embedding", "encoder", "source", tokenizer, example.source, example.source_ids)


def encoder_stack(example: Example) -> Step:
    """Section 3.1, the left half of figure 1."""
    t, model = example.trace, example.model
    layers, norm = len(model.encoder.layers), final_norm(example, "encoder")
    rows = tokens_axis("position", "token", example.source_tokens)
    table = vectors(t, "memory", "the memory", rows)
    return Step(
        6,
        "The stack of encoder layers",
        f"Attention and feed-forward are applied {layers} times, each layer with its own weights, to what the layer "
        f"below gives{ending(norm)}; the result is the memory. Below: the root mean square of each token's vector, "
        "layer by layer.",
        "Each layer can build on relations that the one below it has found.",
        f"memory = {whole_law(norm, f'Layer_{layers}(… Layer_1(x))')}",
        "section 3.1",
        (table,),
        (checked(table), is_what_leaves(example, "encoder", "the memory")),
        table.formula(0),
        stream_sizes(example, "encoder", rows),
        side="source",
        headings=True,
    )
