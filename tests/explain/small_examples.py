"""An example of each kind of model, with random weights: what walkthrough, report and figures are made of."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from explain.small_models import small_model
from glassformer.data.images import ImageFormat
from glassformer.data.time_series import SeriesFormat
from glassformer.explain import Example
from glassformer.explain.examples.arrays import examine_pixels, examine_series
from glassformer.explain.examples.text import (
    examine,
    examine_class,
    examine_continuation,
    examine_masked,
    examine_tags,
)
from glassformer.generate import DecodingConfig
from glassformer.predict.translator import Translator
from glassformer.text import TextConfig, TokenizerPair, train_tokenizers

LINES = ["a small dog sees the big cat", "the cat runs"]
MARKS = ("[CLS]", "[SEP]", "[MASK]")
CLASSES, TAGS = ["good", "bad", "so-so"], ["D", "A", "N", "V"]
FORMAT = ImageFormat(height=4, width=6, classes=list("abcde"), mean=[0.5, 0.4, 0.3], deviation=[0.2, 0.3, 0.4])
SERIES = SeriesFormat(columns=["wind", "sun"], mean=[1.0, 2.0], deviation=[2.0, 3.0])


def vocabulary(lines: list[str] | None = None) -> TokenizerPair:
    values = {"kind": "word", "pre_tokenizer": "whitespace", "min_frequency": 1, "extra_special": MARKS}
    return train_tokenizers(TextConfig.parse(values), lambda: iter(lines or LINES), lambda: iter(()))


def small_bert(**values: Any) -> Any:
    return small_model("bert", vocab_size=vocabulary().source.vocab_size, **values)


def continuation(variant: str, text: str = "a small dog sees", lines: list[str] | None = None) -> Example:
    tokenizer = vocabulary(lines).source
    return examine_continuation(small_model(variant, vocab_size=tokenizer.vocab_size), tokenizer, text)


def image() -> Example:
    pixels = torch.rand(1, 3, 4, 6, generator=torch.Generator().manual_seed(0))
    return examine_pixels(small_model("vit"), FORMAT, FORMAT.normalize(pixels), "cat.png")


def series() -> Example:
    values = np.random.default_rng(0).normal(size=(20, 2))
    return examine_series(small_model("series"), SERIES, values)


def recurrent() -> Example:
    pair = vocabulary()
    model = small_model("recurrent", vocab_size=pair.source.vocab_size)
    return examine(Translator([model], pair, DecodingConfig()), "a small dog", "the cat runs")


EXAMPLES: dict[str, Callable[[], Example]] = {
    "gpt": lambda: continuation("gpt"),
    "llama": lambda: continuation("llama"),
    "masked": lambda: examine_masked(small_bert(), vocabulary().source, "a [MASK] dog sees the [MASK]"),
    "classes": lambda: examine_class(small_bert(), vocabulary().source, ["a small dog", "the cat"], CLASSES),
    "tags": lambda: examine_tags(small_bert(), vocabulary().source, "a small dog sees", TAGS),
    "vit": image,
    "series": series,
    "recurrent": recurrent,
}
