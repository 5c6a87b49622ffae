"""Generators shared by the tests of language models."""

from dataclasses import replace

import pytest
import torch

from glassformer.models.gpt import GPT, GPTConfig
from glassformer.predict import Generator
from tiny_tasks import TinyTask, made


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> TinyTask:
    return made(tmp_path_factory, "language")


@pytest.fixture(scope="module")
def generator(language: TinyTask) -> Generator:
    return Generator.load(language.run)


@pytest.fixture(scope="module")
def rotary(generator: Generator) -> Generator:
    """Without learned positions, and so without a length limit; random weights, so that no token is certain."""
    torch.manual_seed(3)
    values = generator.model.config.model_dump() | {"positions": "rotary"}
    return replace(generator, model=GPT(GPTConfig.parse(values)).eval())
