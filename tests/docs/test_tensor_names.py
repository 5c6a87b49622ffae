"""docs/tensor-names.md and reality agree."""

import re
from pathlib import Path

import pytest
import torch

from glassformer import trace
from glassformer.generate import DecodingConfig, Symbols, generate

PAGE = Path(__file__).parents[2] / "docs" / "tensor-names.md"


@pytest.mark.parametrize("values", [{}, {"norm_order": "pre"}, {"positions": "rotary"}])
def test_every_recorded_name_is_documented_and_every_documented_name_is_recorded(make_model, values) -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = "\n".join(line.partition("|")[2].partition("|")[2] for line in page.splitlines() if line.startswith("| "))
    documented = set(re.findall(r"`(\w+)`", table))
    model = make_model(**values)
    with trace(model) as recorded:
        model(torch.tensor([[4, 5, 2]]), torch.tensor([[1, 4]]))
        generate(model, [[4, 5, 2]], Symbols(pad=0, start=1, end=2), DecodingConfig(beam_size=2, max_length=3))
    taps = {name.rpartition(".")[2] for name in recorded}
    assert taps <= documented
    rotary = {"rotated_q", "rotated_k"}
    assert documented - taps <= ({"positioned", "encoding"} if "positions" in values else rotary)
