"""The story of one example, step by step: twelve for a translation in the order of section 3, fewer for the others."""

from collections.abc import Callable
from typing import Any

from glassformer.explain.examined import Examined
from glassformer.explain.example import Example
from glassformer.explain.stack_example import ImageExample, SeriesExample, TextExample
from glassformer.explain.walkthrough import decoder_steps as decoder
from glassformer.explain.walkthrough import encoder_steps as encoder
from glassformer.explain.walkthrough import layer_steps as layer
from glassformer.explain.walkthrough import one_stack_steps as own
from glassformer.explain.walkthrough import output_steps as output
from glassformer.explain.walkthrough import reading_steps as reading
from glassformer.explain.walkthrough import recurrent_steps as recurrent
from glassformer.explain.walkthrough.step import Step


def walkthrough(example: Examined) -> list[Step]:
    """The steps, each with two sentences, an equation, numbers of the example, the formula of one, and checks."""
    return WALKTHROUGHS[example.trace.kind](example)


def _translation(example: Example) -> list[Step]:
    first, source = "encoder.layers.0", encoder.source(example)
    return [
        reading.text_to_vectors(example, source, 1),
        reading.positions(example, source, 2),
        layer.attention(example, f"{first}.self_attention", 3),
        layer.add_and_norm(example, f"{first}.self_attention", 4),
        layer.feed_forward(example, f"{first}.feed_forward", 5),
        encoder.encoder_stack(example),
        decoder.shifted_target(example),
        decoder.masked_self_attention(example),
        decoder.cross_attention(example),
        decoder.decoder_layer(example),
        decoder.decoder_stack(example),
        decoder.linear_and_softmax(example),
    ]


def _continuation(example: TextExample) -> list[Step]:
    text = _text(example, "decoder")
    said = output.NextTokens(example.tokenizer, example.labels, [*example.ids[1:], None], "text")
    return [
        reading.text_to_vectors(example, text, 1),
        reading.positions(example, text, 2),
        layer.masked_attention(example, "decoder.layers.0.self_attention", 3),
        *_rest_of_a_stack(example, "decoder"),
        output.next_words(example, said, 7, chosen=len(example.ids) - 1),
    ]


def _both_directions(example: TextExample) -> list[Step]:
    ends: dict[str, Callable[[TextExample], Step]] = {
        "masked": lambda example: own.hidden_words(example, 7),
        "classification": lambda example: output.classes(example, "classes.projection", example.names, 7),
        "tagging": lambda example: own.tags(example, 7),
    }
    return [
        reading.text_to_vectors(example, _text(example, "encoder"), 1),
        own.segments_and_positions(example, 2),
        layer.attention(example, "encoder.layers.0.self_attention", 3),
        *_rest_of_a_stack(example, "encoder"),
        ends[example.task](example),
    ]


def _image(example: ImageExample) -> list[Step]:
    return [
        own.image_to_patches(example, 1),
        own.class_token_and_positions(example, 2),
        layer.attention(example, "encoder.layers.0.self_attention", 3),
        *_rest_of_a_stack(example, "encoder"),
        output.classes(example, "output_projection", example.names, 7),
    ]


def _series(example: SeriesExample) -> list[Step]:
    return [
        own.series_to_patches(example, 1),
        own.class_token_and_positions(example, 2),
        layer.attention(example, "encoder.layers.0.self_attention", 3),
        *_rest_of_a_stack(example, "encoder"),
        own.forecast(example, 7),
    ]


def _recurrent(example: Example) -> list[Step]:
    said = output.NextTokens(
        example.translator.tokenizers.target, example.target_tokens, example.predicted_ids, "target"
    )
    return [
        reading.text_to_vectors(example, encoder.source(example), 1),
        recurrent.read_both_ways(example, 2),
        recurrent.ask_the_source(example, 3),
        recurrent.combined(example, 4),
        output.next_words(example, said, 5),
    ]


def _rest_of_a_stack(example: Any, stack: str) -> list[Step]:
    """Steps 4 to 6."""
    first = f"{stack}.layers.0"
    return [
        layer.add_and_norm(example, f"{first}.self_attention", 4),
        layer.feed_forward(example, f"{first}.feed_forward", 5),
        layer.stack(example, stack, 6),
    ]


def _text(example: TextExample, stack: str) -> reading.TextInput:
    whole = example.task == "language"
    return reading.TextInput("embedding", stack, "text", example.tokenizer, example.read, example.ids, whole)


WALKTHROUGHS: dict[str, Callable[[Any], list[Step]]] = {
    "encoder_decoder": _translation,
    "gpt": _continuation,
    "bert": _both_directions,
    "vit": _image,
    "series": _series,
    "recurrent": _recurrent,
}
