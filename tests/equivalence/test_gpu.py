"""A GPU computes what the CPU does. ``GLASSFORMER_TEST_GPU=1 pytest tests/equivalence/test_gpu.py`` runs these."""

import os
from collections.abc import Iterator
from dataclasses import astuple, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.dropout import Dropout
from glassformer.layers.mask import Mask
from glassformer.storage.run_folder import RunFolder
from glassformer.train.build import build
from glassformer.train.step import train_step
from tiny_run import TinyRun, run_to_the_end, state_of
from tiny_run import made as tiny_translation
from tiny_tasks import EXAMPLES, made

ASKED = os.environ.get("GLASSFORMER_TEST_GPU") == "1"
pytestmark = pytest.mark.skipif(not ASKED, reason="GLASSFORMER_TEST_GPU is not 1")
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}


@pytest.fixture
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return tiny_translation(tmp_path_factory)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("empty", [False, True])
def test_masked_attention_and_its_gradients(empty: bool, dtype: torch.dtype) -> None:
    """Compared with float64 on the CPU. Outputs of a query without an allowed key are zeros."""
    module = MultiHeadAttention(256, 4, 64, 64, Dropout(0.0)).train()
    allowed = torch.rand(5, 1, 33, 47) < 0.3
    allowed[..., 0] = True
    if empty:
        allowed[0, :, 5:9], allowed[3] = False, False
    inputs = [torch.randn(5, 4, length, 64).to(dtype) for length in (33, 47, 47)]
    found = []
    for device, kind in (("cpu", torch.float64), ("cuda", dtype)):
        q, k, v = (x.to(device, kind).requires_grad_() for x in inputs)
        y = module.attend(q, k, v, Mask(allowed=allowed.to(device)))
        found.append([y, *torch.autograd.grad(y.float().square().sum(), (q, k, v))])
    for expected, x in zip(*found, strict=True):
        error = (expected.double() - x.double().cpu()).norm() / expected.norm()
        assert error < TOLERANCE[dtype]
    if empty:
        assert found[1][0][3].count_nonzero() == 0


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_steps_of_packed_rows(tiny: TinyRun, tmp_path: Path, precision: str) -> None:
    """The losses and gradient norms of a translation model's steps."""
    changes = {"model.dropout": 0.0, "model.attention_dropout": 0.0, "train.precision": precision}
    numbers = []
    for device in ("cpu", "cuda"):
        state = build(tiny.config({**changes, "train.device": device, "train.engine": "torch"}))
        run = RunFolder.create(tmp_path / device)
        steps = [train_step(state, run) for _ in range(4)]
        numbers.append(torch.tensor([(step.loss, step.gradient_norm) for step in steps]))
    torch.testing.assert_close(*numbers, rtol=1e-4 if precision == "float32" else 5e-2, atol=0)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(tiny: TinyRun, tmp_path: Path, precision: str) -> None:
    changes = {"train.precision": precision, "train.device": "cuda", "train.max_steps": 20, "validation.every": 10}
    run_to_the_end(tiny.config(changes), tmp_path / "whole")
    run_to_the_end(tiny.config({**changes, "train.max_steps": 10}), tmp_path / "parts")
    run_to_the_end(tiny.config(changes), tmp_path / "parts", resume=True)
    whole, parts = (state_of(tmp_path / name)["weights"] for name in ("whole", "parts"))
    assert whole == parts


def leaves(results: Any) -> Iterator[Any]:
    """The texts and numbers of what a predictor returns."""
    if is_dataclass(results):
        results = astuple(results)  # type: ignore[arg-type]
    if isinstance(results, dict):
        results = results.values()
    if isinstance(results, str | float | int):
        yield results
    else:
        for one in results:
            yield from leaves(one)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("task", EXAMPLES)
def test_a_task_is_trained_and_used(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, task: str, precision: str
) -> None:
    tiny = made(tmp_path_factory, task)
    run_to_the_end(tiny.config(device="cuda", precision=precision), tmp_path / "run")
    here, there = (glassformer.load(tmp_path / "run", device=device) for device in ("cpu", "cuda"))
    use = EXAMPLES[task].use or (lambda generator: generator.generate(["the "], max_length=8))
    expected, found = list(leaves(use(here))), list(leaves(use(there)))
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert one == (other if isinstance(other, str) else pytest.approx(other, rel=1e-3, abs=1e-4))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_alone_and_together(tiny: TinyRun, beam_size: int) -> None:
    texts = ["the cat sleeps", "a dog", "she sees the big dog and the cat", "the cat"]
    expected = tiny.translator.translate(texts, beam_size=beam_size)
    translator = glassformer.load(tiny.run, device="cuda")
    assert translator.translate(texts, beam_size=beam_size) == expected
    assert [translator.translate([text], beam_size=beam_size)[0] for text in texts] == expected


def test_every_tensor_of_a_pass(tiny: TinyRun) -> None:
    here = glassformer.examine(tiny.translator, "the cat sleeps").trace
    there = glassformer.examine(glassformer.load(tiny.run, device="cuda"), "the cat sleeps").trace
    assert list(here) == list(there)
    for name in here:
        torch.testing.assert_close(there[name].cpu(), here[name], rtol=1e-3, atol=1e-4)
