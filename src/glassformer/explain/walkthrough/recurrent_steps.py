"""Steps of the model that the Transformer replaced: LSTMs that read and write, with attention between them."""

from glassformer.explain.example import Example
from glassformer.explain.walkthrough.layer_steps import strongest, sums_to_one
from glassformer.explain.walkthrough.step import Step, StepCheck, TensorTable, checked, tokens_axis, vectors


def read_both_ways(example: Example, number: int) -> Step:
    """Bahdanau et al. 2015, section 3.2. The states have no formula; that they are the memory has."""
    t, layers = example.trace, len(example.model.encoder.rightward)
    table = vectors(t, "memory", "the memory", tokens_axis("position", "token", example.source_tokens), "d_hidden")
    same = bool((t["memory"] == t[f"encoder.states_{layers - 1}"]).all())
    return Step(
        number,
        "Read from both ends",
        f"In each of {layers} layers one LSTM reads the source from its start and one from its end, word after word; "
        "the states of both, side by side, are the memory.",
        "A state carries what was read so far, so each word can be seen with what stands before and behind it. (What "
        "happens inside an LSTM is not recorded, and so is not told number by number.)",
        "memory = [LSTM→(x); LSTM←(x)]",
        "Bahdanau et al. 2015, section 3.2",
        (table,),
        (
            checked(table),
            StepCheck("the memory is the last layer's states, bit for bit", same),
        ),
        table.formula(0),
    )


def ask_the_source(example: Example, number: int) -> Step:
    """Equation 1, asked by the states of the decoder's first layer."""
    t, path = example.trace, "decoder.cross_attention"
    asks = tokens_axis("query", "query: the decoder's states ask", example.target_tokens)
    asked = tokens_axis("key", "key: source", example.source_tokens)
    head = (("head", 0),)
    heads = range(min(t[f"{path}.weights"].size(1), 16))
    tables = (
        vectors(t, f"{path}.q", "queries of head 0", asks, "d_k", head),
        vectors(t, f"{path}.k", "keys of head 0", asked, "d_k", head),
        TensorTable(t, f"{path}.scaled_scores", "q · k / √d_k, head 0", asks, asked, head, "signed"),
        *(
            TensorTable(t, f"{path}.weights", f"weights of head {h}", asks, asked, (("head", h),), "weights")
            for h in heads
        ),
        vectors(t, f"{path}.context", "context: weights · values, head 0", asks, "d_v", head),
    )
    return Step(
        number,
        "Attention to the source",
        "An LSTM reads the target behind a start token; each of its states asks the memory, and gets the values of the "
        "words that it looks at.",
        "Without attention one last state would have to hold the whole sentence; this is the part that the Transformer "
        "kept and built everything from.",
        "Attention(h W^Q, memory W^K, memory W^V)",
        "Bahdanau et al. 2015, equation 5; here by equation 1",
        tables,
        (checked(*tables), sums_to_one(example, path)),
        strongest(t, path, min(1, len(asks.labels) - 1)),
    )


def combined(example: Example, number: int) -> Step:
    """Luong et al. 2015, equation 5."""
    rows = tokens_axis("position", "token read", example.target_tokens)
    table = vectors(example.trace, "decoder.combined", "what the softmax reads", rows)
    return Step(
        number,
        "Context and state together",
        "What was gathered from the source and the last layer's state, side by side, go through a linear "
        "transformation and a tanh.",
        "The next word follows from what was written so far and from what the source holds here.",
        "x = tanh(W [context; h] + b)",
        "Luong et al. 2015, equation 5",
        (table,),
        (checked(table),),
        table.formula(0),
    )
