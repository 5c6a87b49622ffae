"""docs/tensor-names.md and reality agree."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from explain.small_models import VARIANTS, inputs, recorded, small_model
from glassformer import trace
from glassformer.generate import DecodingConfig, SpecialTokens, generate

PAGE = Path(__file__).parents[2] / "docs" / "tensor-names.md"


def documented(part: int | None = None) -> set[str]:
    """The taps of the page, or of one of its two tables; a number behind a name is written N."""
    page = PAGE.read_text(encoding="utf-8")
    if part is not None:
        page = page.split("\n## ")[1 + part]
    rows = [line.partition("|")[2].partition("|")[2] for line in page.splitlines() if line.startswith("| ")]
    return set(re.findall(r"`(\w+)`", "\n".join(rows)))


def taps_of(names: Any) -> set[str]:
    return {re.sub(r"_\d+$", "_N", name.rpartition(".")[2]) for name in names}


def of_a_search(make_model: Any, **values: Any) -> set[str]:
    model = make_model(**values)
    with trace(model) as t:
        model(torch.tensor([[4, 5, 2]]), torch.tensor([[1, 4]]))
        generate(model, [[4, 5, 2]], SpecialTokens(pad=0, start=1, end=2), DecodingConfig(beam_size=2, max_length=3))
    return taps_of(t)


@pytest.mark.parametrize("values", [{}, {"norm_order": "pre"}, {"positions": "rotary"}, {"embedding": "normed"}])
def test_every_recorded_name_of_a_translation_is_documented(make_model, values: dict[str, Any]) -> None:
    assert of_a_search(make_model, **values) <= documented()


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_recorded_name_of_the_others_is_documented(variant: str) -> None:
    assert taps_of(recorded(variant)) <= documented()


def test_every_documented_name_is_recorded_by_some_model(make_model) -> None:
    bert = small_model("bert")
    with trace(bert) as t, torch.no_grad():
        bert.embed(*inputs("bert"))
    found = taps_of(t) | of_a_search(make_model, norm_order="pre")
    for variant in VARIANTS:
        found |= taps_of(recorded(variant))
    assert documented() <= found
    assert documented(0) & {"gate", "root_mean_square"} and "forecast" in documented(1)


def test_every_module_that_is_named_is_there(make_model) -> None:
    """``….feed_forward`` and the like, as ends of paths."""
    page = PAGE.read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ")]
    named = {name.replace("N", "0") for cell in cells for name in re.findall(r"`…?\.?([\w.]+)`", cell)} - {"embed"}
    models = [make_model(norm_order="pre", embedding="normed"), *map(small_model, VARIANTS)]
    paths = {path for model in models for path, _ in model.named_modules()}
    assert {name for name in named if not any(path == name or path.endswith(f".{name}") for path in paths)} == set()
