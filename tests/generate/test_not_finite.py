"""Searches end for any logits; logits that are not finite raise an error that names the text."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from glassformer.generate import (
    DecodingConfig,
    Ensemble,
    LogitsError,
    SpecialTokens,
    continue_texts,
    generate,
    score_pairs,
    stream_text,
)
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.gpt import GPT, GPTConfig
from glassformer.native.decoding import NativeDecoder
from glassformer.native.execution import PLAIN, Execution, SearchKernels
from glassformer.native.library import kernels
from own_process import ENVIRONMENT
from tiny_run import TinyRun, made

Maker = Callable[..., EncoderDecoder]
SEARCHES = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 4, "n_best": 2},
    "sampling": {"sample": True, "n_best": 2},
}
VALUES = {"NaN": float("nan"), "overflow": 1e38}
SOURCES = [[5, 3, 8, 4, 2], [7, 2], [3, 3, 6, 2]]


@dataclass
class Scripted:
    """Predict word 3, after ``good`` steps ``bad`` logits. More than 20 steps mean an endless search."""

    bad: list[float]
    good: int = 0
    steps: int = 0
    execution: Execution = PLAIN

    def begin(self, source: Tensor, source_mask: Tensor, use_cache: bool = True) -> "Scripted":
        self.steps = 0
        return self

    def select(self, rows: Tensor) -> None:
        """This model has no cache."""

    select_sentences = select

    def step(self, tokens: Tensor, state: "Scripted") -> Tensor:
        self.steps += 1
        assert self.steps <= 20, "the search does not end"
        return torch.tensor(self.bad if self.steps > self.good else [0.0, 0.0, 0.0, 9.0]).repeat(len(tokens), 1)


INF, NAN = float("inf"), float("nan")


def with_search(model: Scripted, native: bool) -> Scripted:
    """``model``, searched in the kernels if ``native``."""
    if native:
        if (functions := kernels()) is None:
            pytest.skip("no kernels here")
        model.execution = Execution(SearchKernels(functions))
    return model


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(
    "bad", [[NAN] * 4, [0.0, 0.0, 0.0, NAN], [0.0, NAN, 1.0, 2.0], [0.0, 0.0, INF, 1.0], [-INF] * 4]
)
@pytest.mark.parametrize("native", [False, True])
def test_search_names_the_step_with_logits_that_are_not_finite(
    symbols: SpecialTokens, search: str, bad: list[float], native: bool
) -> None:
    for good in (0, 3):
        config = DecodingConfig(max_length=9, **SEARCHES[search])
        with pytest.raises(LogitsError, match=f"text 1 has logits that are not finite at step {good + 1}: the weights"):
            generate(with_search(Scripted(bad, good), native), [[3, 2]], symbols, config)


@pytest.mark.parametrize("search", SEARCHES)
def test_search_ends_at_max_length(symbols: SpecialTokens, search: str) -> None:
    model = Scripted([0.0, 0.0, -99.0, 9.0, *[3.0] * 12])
    (found,) = generate(model, [[3, 2]], symbols, DecodingConfig(max_length=7, **SEARCHES[search]))
    assert found[0].tokens == [3] * 7
    assert found[0].finish_reason == "length"
    assert len(found[0].token_log_probs) == 7
    assert model.steps == 8


def corrupted(model: torch.nn.Module, value: float) -> torch.nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return model


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("route", ["PyTorch", "ensemble", "bfloat16", "native", "int8"])
def test_translation_refuses_weights_that_are_not_finite(
    make_model: Maker, symbols: SpecialTokens, route: str, value: str, search: str
) -> None:
    model = corrupted(make_model().float(), VALUES[value])
    if route == "ensemble":
        model = Ensemble([make_model().float(), model])
    elif route == "bfloat16":
        model = model.bfloat16()
    elif route in ("native", "int8"):
        if (functions := kernels()) is None:
            pytest.skip("there are no kernels here")
        model = NativeDecoder(model, functions, int8=route == "int8")
    with pytest.raises(LogitsError, match=r"text [123] has logits that are not finite at step 1"):
        generate(model, SOURCES, symbols, DecodingConfig(max_length=9, **SEARCHES[search]))


@pytest.mark.parametrize("value", VALUES)
def test_comet_refuses_a_score_that_is_not_finite(make_model: Maker, symbols: SpecialTokens, value: str) -> None:
    with pytest.raises(LogitsError, match="text 1 has logits that are not finite at step 1"):
        score_pairs(corrupted(make_model(), VALUES[value] * 1e300), SOURCES, [[3]] * 3, symbols, DecodingConfig())


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("value", VALUES)
def test_continuation_refuses_weights_that_are_not_finite(symbols: SpecialTokens, value: str, search: str) -> None:
    small = {"vocab_size": 12, "d_model": 16, "n_heads": 2, "d_ff": 24, "n_layers": 1, "max_length": 16, "dropout": 0}
    model = corrupted(GPT(GPTConfig.parse(small)).eval(), VALUES[value])
    config = DecodingConfig(max_length=30, **SEARCHES[search])
    window = None if search == "beam" else 16
    with pytest.raises(LogitsError, match=r"text [12] has logits that are not finite at step 1"):
        continue_texts(model, [[3, 4, 5], [6, 7]], symbols, config, window=window)
    if search != "beam":
        with pytest.raises(LogitsError, match="text 1 has logits that are not finite at step 1"):
            list(stream_text(model, [3, 4, 5], symbols, config, window=16))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return made(tmp_path_factory)


CORRUPT_WEIGHTS = """
import sys, torch
from glassformer.cli import main
value = float(sys.argv.pop(1))
from glassformer.models.encoder_decoder import EncoderDecoder
whole = EncoderDecoder.eval
def eval(self):
    with torch.no_grad():
        self.decoder.layers[0].feed_forward.inner.weight.fill_(value)
    EncoderDecoder.eval = whole
    return whole(self)
EncoderDecoder.eval = eval
main()
"""


@pytest.mark.parametrize(("value", "options"), [("nan", ["--beam-size", "1"]), ("1e38", ["-s", "engine=torch"])])
def test_translate_command_names_the_line_with_logits_that_are_not_finite(
    tiny: TinyRun, tmp_path: Path, value: str, options: list[str]
) -> None:
    """Weights are corrupted after loading. A separate process allows a time limit for an endless search."""
    (tmp_path / "text").write_text("\nthe cat sleeps\n", encoding="utf-8")
    command = [
        sys.executable,
        "-c",
        CORRUPT_WEIGHTS,
        value,
        "translate",
        str(tiny.run),
        str(tmp_path / "text"),
        *options,
    ]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stdout == ""
    fault = re.escape(f"error: {tmp_path / 'text'}, line 2: has logits that are not finite at step ")
    assert re.search(rf"{fault}\d+: the weights or", done.stderr)  # the overflowing step depends on the route
