"""Steps 7 to 12 of the walkthrough: from the target, shifted right, to the word that is chosen."""

from glassformer.explain.example import Example
from glassformer.explain.formula.dataflow import embedded, output_of
from glassformer.explain.walkthrough.layer_steps import (
    add_and_norm,
    ending,
    feed_forward,
    final_norm,
    gives_the_logits,
    no_later_word,
    strongest,
    sums_to_one,
    whole_law,
)
from glassformer.explain.walkthrough.output_steps import NextTokens, next_words
from glassformer.explain.walkthrough.step import Step, StepCheck, TensorTable, checked, tokens_axis, vectors


def shifted_target(example: Example) -> Step:
    """Section 3.1: "the output embeddings are offset by one position"."""
    t = example.trace
    rows = tokens_axis("position", "token read", example.target_tokens)
    table = vectors(t, embedded(example.model, "target_embedding"), "what enters the decoder", rows)
    words = [("position", "the decoder reads", "and is to say")]
    words += [
        (str(place), read, said)
        for place, (read, said) in enumerate(zip(example.target_tokens, example.predicted_tokens, strict=True))
    ]
    start = example.target_ids[0] == example.translator.symbols.start
    shifted = example.target_ids[1:] == example.predicted_ids[:-1]
    return Step(
        7,
        "The target, shifted right",
        "The decoder reads the target behind a start token, so that at each position it knows the words before, and "
        "is to say the next one.",
        "In training all positions learn at once from the right words (teacher forcing); in use it reads what it has "
        "said.",
        "input = ⟨s⟩ y₁ … yₙ, output = y₁ … yₙ ⟨/s⟩",
        "section 3.1",
        (table,),
        (checked(table), StepCheck("position i reads what position i − 1 was to say", start and shifted)),
        table.formula(0),
        tuple(words),
        links=((1, 0), (2, 1)),
        side="target",
    )


def masked_self_attention(example: Example) -> Step:
    """Section 3.2.3, third application."""
    t, path = example.trace, "decoder.layers.0.self_attention"
    queries = tokens_axis("query", "query", example.target_tokens)
    keys = tokens_axis("key", "key", example.target_tokens)
    head = (("head", 0),)
    tables = (
        TensorTable(t, f"{path}.masked_scores", "q · k / √d_k, head 0, masked", queries, keys, head, "signed"),
        TensorTable(t, f"{path}.weights", "weights of head 0", queries, keys, head, "weights"),
    )
    return Step(
        8,
        "Masked self-attention",
        "The decoder's words attend to each other as the encoder's do, but the scores of all later words are −∞ "
        "before the softmax, and so their weights are exactly 0.",
        "A word must not be predicted from itself or from what follows it: when the model is used, that does not "
        "exist yet.",
        "softmax(Q Kᵀ / √d_k + mask), mask = −∞ above the diagonal",
        "section 3.2.3",
        tables,
        (checked(*tables), no_later_word(t, path), sums_to_one(example, path)),
        strongest(t, path, len(queries.labels) - 1),
    )


def cross_attention(example: Example) -> Step:
    """Section 3.2.3, first application."""
    t, layers = example.trace, len(example.model.decoder.layers)
    path = f"decoder.layers.{layers - 1}.cross_attention"
    queries = tokens_axis("query", "query: decoder", example.target_tokens)
    keys = tokens_axis("key", "key: source", example.source_tokens)
    heads = min(t[f"{path}.weights"].size(1), 16)
    tables = tuple(
        TensorTable(
            t,
            f"{path}.weights",
            f"weights of head {head}, layer {layers - 1}",
            queries,
            keys,
            (("head", head),),
            "weights",
        )
        for head in range(heads)
    )
    return Step(
        9,
        "Encoder–decoder attention",
        "Queries come from the decoder, keys and values from the memory: each word to be written looks at the source. "
        "Row by row: how much the step that predicts the next word looks at each source token.",
        "This is how what was read reaches what is written, wherever it stood in the sentence.",
        "Attention(x W^Q, memory W^K, memory W^V)",
        "section 3.2.3",
        tables,
        (checked(*tables), sums_to_one(example, path)),
        strongest(t, path, min(1, len(queries.labels) - 1)),
    )


def decoder_layer(example: Example) -> Step:
    """Sections 3.1 and 3.3, in the decoder."""
    norm = add_and_norm(example, "decoder.layers.0.cross_attention", 10)
    feed = feed_forward(example, "decoder.layers.0.feed_forward", 10)
    return Step(
        10,
        "Add & Norm and feed-forward in the decoder",
        "The same two parts as in the encoder, around the attention to the memory and behind it, with weights of "
        "their own.",
        "A decoder layer is an encoder layer with the look at the source put in between.",
        f"{norm.equation}; {feed.equation}",
        "sections 3.1, 3.3",
        (*norm.tables, *feed.tables),
        (*norm.facts, *feed.facts),
        feed.formula,
    )


def decoder_stack(example: Example) -> Step:
    """Section 3.1, the right half of figure 1."""
    t, model = example.trace, example.model
    name = output_of(model, "decoder")
    rows = tokens_axis("position", "token read", example.target_tokens)
    table = vectors(t, name, "what leaves the decoder", rows)
    layers, norm = len(model.decoder.layers), final_norm(example, "decoder")
    return Step(
        11,
        "The stack of decoder layers",
        f"{layers} layers of masked self-attention, attention to the memory and feed-forward follow each other"
        f"{ending(norm)}.",
        "Each position ends as one vector that says what should come next.",
        f"x = {whole_law(norm, f'Layer_{layers}(… Layer_1(x, memory) …, memory)')}",
        "section 3.1",
        (table,),
        (checked(table), gives_the_logits(example, name)),
        table.formula(0),
    )


def linear_and_softmax(example: Example) -> Step:
    """Section 3.4, last sentence: the next word."""
    said = NextTokens(example.translator.tokenizers.target, example.target_tokens, example.predicted_ids, "target")
    return next_words(example, said, 12)
