"""The story of one sentence in twelve steps, in the order of the paper's section 3."""

from glassformer.explain import decoder_steps as decoder
from glassformer.explain import encoder_steps as encoder
from glassformer.explain.example import Example
from glassformer.explain.story import Step


def walkthrough(example: Example) -> list[Step]:
    """Each step with its two sentences, its law, this example's numbers, the formula of one of them, and its checks."""
    layer = "encoder.layers.0"
    return [
        encoder.text_to_vectors(example),
        encoder.positions(example),
        encoder.attention(example, f"{layer}.self_attention", 3),
        encoder.add_and_norm(example, f"{layer}.self_attention", 4),
        encoder.feed_forward(example, f"{layer}.feed_forward", 5),
        encoder.encoder_stack(example),
        decoder.shifted_target(example),
        decoder.masked_self_attention(example),
        decoder.cross_attention(example),
        decoder.decoder_layer(example),
        decoder.decoder_stack(example),
        decoder.linear_and_softmax(example),
    ]
