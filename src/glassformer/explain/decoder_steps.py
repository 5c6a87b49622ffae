"""Steps 7 to 12 of the walkthrough: from the target, shifted right, to the word that is chosen."""

import torch

from glassformer.explain.encoder_steps import add_and_norm, feed_forward, sums_to_one
from glassformer.explain.example import Example
from glassformer.explain.formula import explain
from glassformer.explain.story import Axis, Fact, Step, Table, checked, tokens_axis, vectors
from glassformer.explain.wiring import leaving

RANKED = 5
"""Next words that are shown for a position."""


def shifted_target(example: Example) -> Step:
    """Section 3.1: "the output embeddings are offset by one position"."""
    t = example.trace
    name = (
        "target_embedding.scaled"
        if example.translator.models[0].target_embedding.position is None
        else "target_embedding.positioned"
    )
    rows = tokens_axis("position", "token read", example.target_tokens)
    table = vectors(t, name, "what enters the decoder", rows)
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
        (checked(table), Fact("position i reads what position i − 1 was to say", start and shifted)),
        table.formula(0),
        tuple(words),
    )


def masked_self_attention(example: Example) -> Step:
    """Section 3.2.3, third application."""
    t, path = example.trace, "decoder.layers.0.self_attention"
    asks = tokens_axis("query", "query: who asks", example.target_tokens)
    asked = tokens_axis("key", "key: who is asked", example.target_tokens)
    head = (("head", 0),)
    tables = (
        Table(t, f"{path}.masked_scores", "q · k / √d_k, head 0, masked", asks, asked, head, "signed"),
        Table(t, f"{path}.weights", "weights of head 0", asks, asked, head, "weights"),
    )
    weights = t[f"{path}.weights"]
    future = torch.ones(weights.shape[-2:], dtype=torch.bool, device=weights.device).triu(1)
    last = len(asks.labels) - 1
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
        (
            checked(*tables),
            Fact("every weight on a later word is exactly 0, in all heads", not weights[..., future].any()),
            sums_to_one(example, path),
        ),
        explain(t, f"{path}.weights", head=0, query=last, key=int(weights[0, 0, last].argmax())),
    )


def cross_attention(example: Example) -> Step:
    """Section 3.2.3, first application."""
    t, layers = example.trace, len(example.translator.models[0].decoder.layers)
    path = f"decoder.layers.{layers - 1}.cross_attention"
    asks = tokens_axis("query", "query: the decoder's words ask", example.target_tokens)
    asked = tokens_axis("key", "key: the source is asked", example.source_tokens)
    heads = min(t[f"{path}.weights"].size(1), 16)
    tables = tuple(
        Table(
            t,
            f"{path}.weights",
            f"weights of head {head}, layer {layers - 1}",
            asks,
            asked,
            (("head", head),),
            "weights",
        )
        for head in range(heads)
    )
    weights = t[f"{path}.weights"]
    row = min(1, len(asks.labels) - 1)
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
        explain(t, f"{path}.weights", head=0, query=row, key=int(weights[0, 0, row].argmax())),
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
        f"{norm.law}; {feed.law}",
        "sections 3.1, 3.3",
        (*norm.tables, *feed.tables),
        (*norm.facts, *feed.facts),
        feed.formula,
    )


def decoder_stack(example: Example) -> Step:
    """Section 3.1, the right half of figure 1; and what each layer would say already (the logit lens)."""
    t, model = example.trace, example.translator.models[0]
    name = leaving(model, "decoder")
    rows = tokens_axis("position", "token read", example.target_tokens)
    table = vectors(t, name, "what leaves the decoder", rows)
    logits = model.output_projection(t[name])
    same = bool((logits == t["output_projection.logits"]).all())
    layers = len(model.decoder.layers)
    return Step(
        11,
        "The stack of decoder layers",
        f"{layers} layers of masked self-attention, attention to the memory and feed-forward follow each other.",
        "Each position ends as one vector that says what should come next.",
        f"x = Layer_{layers}(… Layer_1(x, memory) …, memory)",
        "section 3.1",
        (table,),
        (checked(table), Fact("the logits are computed from exactly this", same)),
        table.formula(0),
    )


def linear_and_softmax(example: Example) -> Step:
    """Section 3.4, last sentence: the next word."""
    t, tokenizer = example.trace, example.translator.tokenizers.target
    probabilities = t["output_projection.probabilities"][0]
    values, ids = probabilities.topk(min(RANKED, probabilities.size(-1)), dim=-1)
    words = [("after", "is to come", "its rank", *(f"{place}." for place in range(1, values.size(1) + 1)))]
    for position, wanted in enumerate(example.predicted_ids):
        rank = int((probabilities[position] > probabilities[position, wanted]).sum()) + 1
        best = [
            f"{token} {value:.4f}"
            for token, value in zip(tokenizer.tokens(ids[position].tolist()), values[position].tolist(), strict=True)
        ]
        words.append((example.target_tokens[position], example.predicted_tokens[position], str(rank), *best))
    rows = tokens_axis("position", "token read", example.target_tokens)
    first = Axis("vocab", "of the vocabulary", tuple(tokenizer.tokens([int(ids[0, 0])])), int(ids[0, 0]))
    tables = tuple(Table(t, f"output_projection.{tap}", tap, rows, first) for tap in ("logits", "probabilities"))
    off = float((probabilities.double().sum(-1) - 1).abs().max())
    return Step(
        12,
        "Linear and softmax",
        f"A linear layer gives one number for each of the {probabilities.size(-1):,} entries of the vocabulary, and "
        f"the softmax turns them into probabilities; after {example.target_tokens[0]} the first choice is "
        f"{tokenizer.tokens([int(ids[0, 0])])[0]} with {float(values[0, 0]):.4f}.",
        "The probabilities say what the model holds likely; a search or a draw chooses from them.",
        "P(next = w) = exp(x · W_w) / Σ_v exp(x · W_v)",
        "section 3.4",
        tables,
        (
            checked(*tables),
            Fact(f"the probabilities of every position sum to 1: largest deviation {off:.1g}", off <= 1e-2),
        ),
        explain(t, "output_projection.probabilities", position=0, vocab=int(ids[0, 0])),
        tuple(words),
    )
