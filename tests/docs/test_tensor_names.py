"""docs/tensor-names.md is the table of taps, and lists what real traces record, module by module."""

import re
import runpy
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from explain.small_models import inputs, recorded, small_model
from glassformer import ConfigError, Trace, trace
from glassformer.explain.formula.table import TAPS, find_row
from glassformer.generate import DecodingConfig, LanguageDecodingConfig, SpecialTokens, continue_texts, generate
from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig

DOCS = Path(__file__).parents[2] / "docs"
SYMBOLS = SpecialTokens(pad=0, start=1, end=2)
SMALL = {"vocab_size": 12, "d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 1, "n_decoder_layers": 1}
FORMS: dict[str, dict[str, Any]] = {
    "post": {},
    "pre": {"norm_order": "pre"},
    "rotary": {"positions": "rotary"},
    "normed": {"scale_embeddings": False, "norm_embeddings": True},
}
OTHERS = "gpt", "llama", "bert", "vit", "series", "recurrent"


class Listed(NamedTuple):
    """A tap of the modules of a class at a path; N is the number of a layer."""

    module: str
    path: str
    tap: str


def parse_page(text: str) -> dict[Listed, bool]:
    """Every tap that the page lists, and True if an edit of it is refused."""
    listed = {}
    for section in text.split("\n## ")[1:]:
        title, places, table = section.split("\n\n", 2)
        paths = re.findall(r"`([\w.]+)` \(", places) or [""]
        for row in table.splitlines():
            if row.startswith("| `"):
                name, *_, condition = (cell.strip() for cell in row.strip("|").split(" | "))
                _, restricted, modules = condition.rpartition("in `")
                only = re.findall(r"`([\w.]+)`", f"`{modules}") if restricted else []
                for path in only or paths:
                    listed[Listed(title.strip("`"), path, name.split("`")[1])] = "°" in name
    return listed


@cache
def page() -> dict[Listed, bool]:
    return parse_page((DOCS / "tensor-names.md").read_text(encoding="utf-8"))


def listed_form(model: nn.Module, name: str) -> Listed:
    row = find_row(model, name)
    assert row is not None, f"{name} is in no row of the table of taps"
    module, tap = row
    path = re.sub(r"_\d+$", "_N", name).removesuffix(tap).removesuffix(".")
    return Listed(module.__name__, re.sub(r"\.\d+", ".N", path), tap)


@cache
def small_pair(form: str) -> EncoderDecoder:
    return EncoderDecoder(EncoderDecoderConfig.parse({**SMALL, **FORMS[form]})).eval()


@cache
def forward(form: str) -> Trace:
    """One pass, with padding where the model knows it."""
    if form not in FORMS:
        return recorded(form)
    with trace(small_pair(form)) as t, torch.no_grad():
        t.model(torch.tensor([[4, 5, 2], [4, 2, 0]]), torch.tensor([[1, 4], [1, 5]]))
    return t


def search_pair(model: Any) -> None:
    generate(model, [[4, 5, 2]], SYMBOLS, DecodingConfig(beam_size=2, max_length=3))


def embed(bert: Any) -> None:
    tokens, *others = inputs("bert")
    bert.embed(tokens, *others)
    bert(tokens[:1], torch.tensor([[True] * (tokens.size(1) - 1) + [False]]))


def search_text(gpt: Any) -> None:
    continue_texts(gpt, [[4, 5]], SYMBOLS, LanguageDecodingConfig(beam_size=2, max_length=3, sample=False))


CALLS: dict[str, Callable[[Any], None]] = {
    "post": search_pair,
    "gpt": search_text,
    "bert": embed,
    "recurrent": search_pair,
}
"""Further calls that record taps which a forward pass does not."""


def traces() -> Iterator[Trace]:
    for form in (*FORMS, *OTHERS):
        yield forward(form)
    for form, call in CALLS.items():
        with trace(small_pair(form) if form in FORMS else small_model(form)) as t, torch.no_grad():
            call(t.model)
        yield t


@cache
def found_in_traces() -> set[Listed]:
    return {listed_form(t.model, name) for t in traces() for name in t}


def test_page_is_what_the_generator_makes() -> None:
    made = runpy.run_path(str(DOCS / "make_tensor_names.py"))["render"]()
    assert (DOCS / "tensor-names.md").read_text(encoding="utf-8") == made, "run make docs"


def test_every_recorded_tensor_is_listed() -> None:
    assert found_in_traces() - set(page()) == set()


def test_every_listed_tensor_is_recorded() -> None:
    assert set(page()) - found_in_traces() == set()


@pytest.mark.parametrize("form", [*FORMS, *OTHERS])
def test_each_module_records_the_taps_whose_condition_it_meets(form: str) -> None:
    """A condition of the module is met exactly where the tap is recorded; those of the call are left to other tests."""
    t = forward(form)
    names = {re.sub(r"_\d+$", "_N", name) for name in t}
    for path, module in t.model.named_modules():
        for kind in type(module).__mro__:
            for tap, record in TAPS.get(kind, {}).items():
                name = f"{path}.{tap}".removeprefix(".")
                if find_row(t.model, name) != (kind, tap):
                    continue
                if record.condition is None:
                    assert name in names, name
                elif record.condition.holds is not None:
                    assert (name in names) == bool(record.condition.holds(module)), name


@pytest.mark.parametrize("form", ["normed", *OTHERS])
def test_edits_of_the_marked_taps_alone_are_refused(form: str) -> None:
    t = forward(form)
    names = {listed_form(t.model, name): name for name in t}
    editable = {name: lambda tensor: tensor for one, name in names.items() if not page()[one]}
    run_again(form, editable)
    for one, name in names.items():
        if page()[one]:
            with pytest.raises(ConfigError, match="nothing is computed from"):
                run_again(form, {name: lambda tensor: tensor})


def run_again(form: str, edits: dict[str, Callable[[torch.Tensor], torch.Tensor]]) -> None:
    if form in FORMS:
        with trace(small_pair(form), edits=edits), torch.no_grad():
            small_pair(form)(torch.tensor([[4, 5, 2], [4, 2, 0]]), torch.tensor([[1, 4], [1, 5]]))
    else:
        recorded(form, edits=edits)


def test_rotated_queries_are_not_listed_for_cross_attention() -> None:
    rotated = {one.path for one in page() if one.tap == "rotated_q"}
    assert rotated == {"encoder.layers.N.self_attention", "decoder.layers.N.self_attention"}
    assert Listed("MultiHeadAttention", "decoder.layers.N.cross_attention", "q") in page()


@pytest.mark.parametrize(
    ("honest", "tampered"),
    [("| `context` |", "| `contexts` |"), ("`encoder.final_norm` (", "`encoder.final` ("), ("`rotated_q`", "`rotate`")],
)
def test_a_page_with_another_name_is_noticed(honest: str, tampered: str) -> None:
    text = (DOCS / "tensor-names.md").read_text(encoding="utf-8")
    assert honest in text
    other = set(parse_page(text.replace(honest, tampered)))
    assert other - found_in_traces()
    assert found_in_traces() - other
