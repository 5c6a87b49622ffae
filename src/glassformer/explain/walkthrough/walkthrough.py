"""The walkthrough of one example: the steps of each module, in the order in which the data flows through the tree."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from glassformer.explain.example import Example
from glassformer.explain.formula.dataflow import embeddings, positions_of
from glassformer.explain.walkthrough import input_steps as inputs
from glassformer.explain.walkthrough import layer_steps as layers
from glassformer.explain.walkthrough import output_steps as outputs
from glassformer.explain.walkthrough.step import Step
from glassformer.layers.block import Stack
from glassformer.layers.embedding import OutputProjection, PatchEmbedding
from glassformer.models.recurrent import RecurrentEncoder


def walkthrough(example: Example) -> list[Step]:
    """The steps, each with two sentences, a formula, numbers of the example, the evaluation of one, and checks."""
    return [replace(step, number=number) for number, step in enumerate(_steps(example), 1)]


def _steps(example: Example) -> Iterator[Step]:
    model: nn.Module = example.model
    for stack, embedding in embeddings(model).items():
        yield from _input_steps(example, embedding, stack)
        yield from _stack_steps(example, stack)
    yield from _output_steps(example)


def _input_steps(example: Example, path: str, stack: str) -> Iterator[Step]:
    embedding, module = example.model.get_submodule(path), example.model.get_submodule(stack)
    if isinstance(embedding, PatchEmbedding):
        step = inputs.image_to_patches if example.task == "images" else inputs.series_to_patches
        yield step(example, path)
        yield inputs.patch_positions(example, path)
        return
    if example.translated and stack == "decoder":
        if isinstance(module, Stack):
            yield inputs.shifted_target(example, path)
        return
    yield inputs.text_to_vectors(example, path, stack)
    if embedding.segment is not None:
        yield inputs.segments_and_positions(example, path)
    elif isinstance(module, Stack) and positions_of(example.model, stack) != "none":
        yield inputs.positions(example, path, stack)


def _stack_steps(example: Example, stack: str) -> Iterator[Step]:
    module = example.model.get_submodule(stack)
    if isinstance(module, RecurrentEncoder):
        yield layers.recurrent_encoder(example, stack)
    elif not isinstance(module, Stack):
        yield layers.cross_attention(example, f"{stack}.cross_attention")
        yield layers.combined(example, stack)
    else:
        yield from _block_steps(example, f"{stack}.layers.0", module.layers[0])
        yield layers.stack(example, stack)


def _block_steps(example: Example, path: str, block: Any) -> Iterator[Step]:
    """The first layer stands for all; of attention to the memory the last is shown, which says most of the output."""
    if block.cross_attention is None:
        yield layers.self_attention(example, f"{path}.self_attention")
        yield layers.add_and_norm(example, f"{path}.self_attention_norm")
        yield layers.feed_forward(example, f"{path}.feed_forward")
        return
    stack = path.split(".")[0]
    last = len(example.model.get_submodule(stack).layers) - 1
    yield layers.masked_self_attention(example, f"{path}.self_attention")
    yield layers.cross_attention(example, f"{stack}.layers.{last}.cross_attention")
    yield layers.decoder_layer(example, path)


def _output_steps(example: Example) -> Iterator[Step]:
    """The heads that were applied."""
    for path, module in example.model.named_modules():
        if isinstance(module, OutputProjection) and f"{path}.logits" in example.trace:
            yield outputs.head(example, path)
    if "forecast" in example.trace:
        yield outputs.forecast(example, "forecast")
