"""docs/tensor-names.md and reality agree, for each module of each model."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from explain.small_models import inputs, recorded, small_model
from glassformer import trace
from glassformer.generate import DecodingConfig, LanguageDecodingConfig, SpecialTokens, continue_texts, generate
from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig

PAGE = Path(__file__).parents[2] / "docs" / "tensor-names.md"
SYMBOLS = SpecialTokens(pad=0, start=1, end=2)
MODELS = "encoder–decoder", "GPT", "BERT", "ViT", "series", "recurrent"
SMALL = {"vocab_size": 12, "d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 1, "n_decoder_layers": 1}
FORMS: list[dict[str, str]] = [
    {},
    {"norm_order": "pre"},
    {"positions": "rotary"},
    {"scale_embeddings": False, "norm_embeddings": True},
]


class Tap(NamedTuple):
    model: str
    module: str
    name: str


def taps(model: str, names: Iterable[str]) -> Iterator[Tap]:
    """Recorded names, with N for numbers of layers."""
    for name in names:
        module, _, tap = name.rpartition(".")
        yield Tap(model, re.sub(r"\.\d+", ".N", module), re.sub(r"_\d+$", "_N", tap))


@cache
def documented() -> list[Tap]:
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        models, modules, names = ([cell.strip() for cell in line.strip("|").split("|")] + ["", "", ""])[:3]
        if not set(models.split(", ")) <= set(MODELS):
            continue
        places = [""] if modules.startswith("(the model") else re.findall(r"`([\w.]+)`", modules)
        assert places
        for model in models.split(", "):
            found += [Tap(model, place, name) for place in places for name in re.findall(r"`(\w+)`", names)]
    return found


@cache
def found_in_models() -> set[Tap]:
    """Every tap of every model, in each of its forms, with padding, and in a search."""
    found: set[Tap] = set()
    for form in FORMS:
        model = EncoderDecoder(EncoderDecoderConfig.parse({**SMALL, **form})).eval()
        with trace(model) as t, torch.no_grad():
            model(torch.tensor([[4, 5, 2], [4, 2, 0]]), torch.tensor([[1, 4], [1, 5]]))
            generate(model, [[4, 5, 2]], SYMBOLS, DecodingConfig(beam_size=2, max_length=3))
        found |= set(taps("encoder–decoder", t))
    for variant, model in (("gpt", "GPT"), ("llama", "GPT"), ("bert", "BERT"), ("vit", "ViT"), ("series", "series")):
        found |= set(taps(model, recorded(variant)))
    found |= set(taps("recurrent", recorded("recurrent")))
    bert, gpt, recurrent = (small_model(kind) for kind in ("bert", "gpt", "recurrent"))
    tokens, *others = inputs("bert")
    with trace(bert) as t, torch.no_grad():
        bert.embed(tokens, *others)
        bert(tokens[:1], torch.tensor([[True] * (tokens.size(1) - 1) + [False]]))
    found |= set(taps("BERT", t))
    with trace(gpt) as t:
        continue_texts(gpt, [[4, 5]], SYMBOLS, LanguageDecodingConfig(beam_size=2, max_length=3, sample=False))
    found |= set(taps("GPT", t))
    with trace(recurrent) as t:
        generate(recurrent, [[4, 5, 2]], SYMBOLS, DecodingConfig(beam_size=2, max_length=3))
    return found | set(taps("recurrent", t))


def test_the_page_names_every_model() -> None:
    assert {tap.model for tap in documented()} == set(MODELS)


@pytest.mark.parametrize("model", MODELS)
def test_every_recorded_tap_is_documented(model: str) -> None:
    assert {tap for tap in found_in_models() if tap.model == model} - set(documented()) == set()


@pytest.mark.parametrize("model", MODELS)
def test_every_documented_tap_is_recorded_in_each_module_that_the_model_has(model: str) -> None:
    modules = {tap.module for tap in found_in_models() if tap.model == model}
    promised = {tap for tap in documented() if tap.model == model and tap.module in modules}
    assert promised - found_in_models() == set()


def test_every_documented_module_is_in_a_model_of_its_row() -> None:
    modules = defaultdict(set)
    for tap in found_in_models():
        modules[tap.module].add(tap.model)
    for tap in documented():
        rows = {other.model for other in documented() if other.module == tap.module and other.name == tap.name}
        assert rows & modules[tap.module], tap
