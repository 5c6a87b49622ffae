"""The drawing of a model follows the tree of its modules, whatever class assembles them."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from explain.page_reader import Reader
from explain.small_examples import EXAMPLES, vocabulary
from glassformer import examine, trace
from glassformer.explain.example import Example, Side
from glassformer.explain.page.architecture import ModelPart, columns
from glassformer.explain.page.drawing import drawings, step_numbers
from glassformer.explain.page.model_line import model_line, title
from glassformer.explain.report import report
from glassformer.explain.walkthrough.walkthrough import walkthrough
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.block import AddNorm, Block, Stack
from glassformer.layers.dropout import Dropout
from glassformer.layers.embedding import OutputProjection, TokenEmbedding
from glassformer.layers.feed_forward import ACTIVATIONS, GatedFeedForward
from glassformer.layers.mask import causal_mask
from glassformer.layers.norm import LayerNorm, RMSNorm
from glassformer.layers.position import Sinusoidal
from glassformer.taps import tap
from random_translator import random_translator

LINES = ["a small dog sees the big cat", "der kleine Hund sieht die große Katze"]


class Bottleneck(nn.Module):
    """A module that the package does not know."""

    def __init__(self, d_model: int):
        super().__init__()
        self.squeeze = nn.Parameter(torch.randn(d_model, d_model))

    def forward(self, x: Tensor) -> Tensor:
        return tap(self, "squeezed", x @ self.squeeze)


class Unknown(nn.Module):
    """A class that the package does not know: a gated post-norm decoder, below its output another module or none."""

    def __init__(self, vocab_size: int, inserted: nn.Module):
        super().__init__()
        self.config = SimpleNamespace(activation="silu")
        self.embedding = TokenEmbedding(vocab_size, 12, Sinusoidal(20, 12), Dropout(0.0), norm=LayerNorm(12))
        self.decoder = Stack([self._block() for _ in range(3)], final_norm=None)
        self.bottleneck = inserted
        self.output_projection = OutputProjection(vocab_size, 12, bias=False)
        self.output_projection.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.decoder(self.embedding(tokens), causal_mask())
        return self.output_projection(self.bottleneck(x))

    def _block(self) -> Block:
        attention = MultiHeadAttention(12, (3, 1), 4, 4, Dropout(0.0))
        feed_forward = GatedFeedForward(12, 20, ACTIVATIONS["silu"])
        return Block(attention, feed_forward, lambda: AddNorm(RMSNorm(12), Dropout(0.0), pre=False))


def example_of(inserted: nn.Module) -> Example:
    """A text through an unknown model."""
    tokenizer = vocabulary().source
    text = "a small dog sees"
    ids = tokenizer.encode(text)
    model = Unknown(tokenizer.vocab_size, inserted).double().eval()
    with trace(model) as t, torch.no_grad():
        model(torch.tensor([ids]))
    side = Side("text", tokenizer.tokens(ids), text, tokenizer, ids)
    return Example(model, t, "language", "goes on with", "?", (side,), [0] * 4, positions=(3,))


@pytest.fixture(scope="module")
def unknown() -> Example:
    return example_of(Bottleneck(12))


def shapes(parts: list[ModelPart]) -> list[tuple[str, str, str]]:
    return [(part.title, part.shape, part.matrix) for part in parts]


def test_unknown_model_draws_itself(unknown: Example) -> None:
    [column] = columns(unknown)
    size = unknown.sides[0].vocabulary.vocab_size
    assert column.caption == "text, 4 tokens"
    assert shapes(column.entry) == [
        ("Embedding", f"{size} × 12, × √12", "E"),
        ("Positions", "+ 4 × 12, sinusoidal", ""),
        ("Norm", "width 12", ""),
    ]
    assert [shapes(sublayer) for sublayer in column.sublayers] == [
        [("Masked multi-head attention", "3 heads of 4, 1 for k and v", ""), ("Add & Norm", "width 12", "")],
        [("Gated feed-forward", "12 → 20 → 12, silu", ""), ("Add & Norm", "width 12", "")],
    ]
    assert column.n_layers == 3
    assert shapes(column.exit) == [
        ("Bottleneck", "144 parameters", ""),
        ("Linear", f"12 → {size}", "E"),
        ("Softmax", f"4 × {size} probabilities", ""),
    ]
    assert column.output == "next-token distribution"


def test_unknown_model_has_a_title_and_sizes(unknown: Example) -> None:
    assert title(unknown.model) == "Unknown"
    assert model_line(unknown.model).startswith(
        "3 layers · d_model 12 · 3 heads of 4, 1 for k and v · d_ff 20 · RMSNorm, post-norm · sinusoidal positions · "
        f"gated silu · vocabulary {unknown.sides[0].vocabulary.vocab_size} · tied embeddings"
    )


def test_boxes_without_a_walkthrough_have_no_step(unknown: Example) -> None:
    [drawing] = drawings(unknown, [])
    assert len(drawing.boxes) == 10
    assert {box.step for box in drawing.boxes} == {None}


STEPS: dict[str, list[int]] = {
    "gpt": [1, 2, 4, 3, 4, 4, 5, 4, 6, 7, 7],
    "llama": [1, 4, 3, 4, 4, 5, 4, 6, 7, 7],
    "masked": [1, 2, 2, 2, 3, 4, 5, 4, 7, 7, 7],
    "classes": [1, 2, 2, 2, 3, 4, 5, 4, 7, 7, 7],
    "tags": [1, 2, 2, 2, 3, 4, 5, 4, 7, 7],
    "vit": [1, 2, 2, 4, 3, 4, 4, 5, 4, 6, 7, 7],
    "series": [1, 2, 4, 3, 4, 4, 5, 4, 6, 7],
    "recurrent": [1, 2, 2, 3, 3, 3, 4, 4, 5, 5],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_box_leads_to_the_step_of_its_module(name: str) -> None:
    example = EXAMPLES[name]()
    assert [box.step for box in drawings(example, walkthrough(example))[0].boxes] == STEPS[name]


@pytest.mark.parametrize(
    ("order", "encoder", "decoder"),
    [
        ("post", [1, 2, 3, 4, 5, 4], [7, 7, 8, 10, 9, 10, 10, 10, 12, 12]),
        ("pre", [1, 2, 4, 3, 4, 4, 5, 4, 6], [7, 7, 10, 8, 10, 10, 9, 10, 10, 10, 10, 11, 12, 12]),
    ],
)
def test_boxes_of_two_stacks_lead_to_their_steps(order: str, encoder: list[int], decoder: list[int]) -> None:
    example = examine(random_translator(LINES, norm_order=order), *LINES)
    steps, model = walkthrough(example), example.model
    found = [step_numbers(model, column.parts, steps) for column in columns(example)]
    assert found == [encoder, decoder]


def ends(arrow: str) -> tuple[float, float]:
    """Last height and last horizontal position of an arrow that ends horizontally."""
    words = arrow.replace("H", " H").replace("V", " V").split()
    return float(words[-2][1:]), float(words[-1][1:])


@pytest.mark.parametrize("width", ["wide", "narrow"])
@pytest.mark.parametrize("make", [EXAMPLES["recurrent"], lambda: examine(random_translator(LINES), *LINES)])
def test_memory_arrow_ends_at_the_attention_to_the_memory(make: Any, width: str) -> None:
    example = make()
    drawing = drawings(example, walkthrough(example))[width == "narrow"]
    [box] = [box for box in drawing.boxes if box.part.reads_memory]
    [memory] = [text for text in drawing.words if text.text.startswith("memory: ")]
    arrow = drawing.arrows[-1]
    height, end = ends(arrow)
    assert box.y < height < box.y + 44
    assert end in (box.x - 1, box.x + 273)
    assert memory.y < drawing.height


@pytest.mark.parametrize("name", EXAMPLES)
def test_boxes_are_inside_the_drawing_and_do_not_overlap(name: str) -> None:
    example = EXAMPLES[name]()
    for drawing in drawings(example, []):
        assert all(box.x >= 0 and box.x + 272 <= drawing.width for box in drawing.boxes)
        assert all(box.y >= 0 and box.y + 44 <= drawing.height for box in drawing.boxes)
        tops = sorted((box.x, box.y) for box in drawing.boxes)
        assert all(x != at or y + 44 < top for (x, y), (at, top) in pairwise(tops))
        for frame in drawing.frames:
            inside = [box for box in drawing.boxes if frame.x < box.x < frame.x + frame.width]
            edges = frame.y, frame.y + frame.height
            assert not [box for box in inside if any(box.y < edge < box.y + 44 for edge in edges)]


def test_report_of_a_new_class_of_known_modules_passes_its_checks() -> None:
    page = report(example_of(nn.Identity()))
    read = Reader(page)
    assert "One text through Unknown, in seven steps" in read.text
    assert len(read.having("class", "box")) == 9
    assert "checks passed" in read.text
    assert "✗" not in read.text


def test_report_of_an_unknown_module_fails_where_no_formula_gives_its_output(unknown: Example) -> None:
    read = Reader(report(unknown))
    assert len(read.having("class", "box")) == 10
    assert "checks failed" in read.text
