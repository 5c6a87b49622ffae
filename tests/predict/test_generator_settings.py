"""Stop strings, logit bias and repetition penalty of language models: batches, streams and command line."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from cli.conftest import Cli, cli, refused  # noqa: F401 - fixtures
from glassformer.errors import ConfigError
from glassformer.predict import Generator
from tiny_tasks import TinyTask

PROMPTS = ["the dog ", "a", "", "the bird s"]
SEARCHES: list[dict[str, Any]] = [{"sample": False}, {"sample": True, "seed": 3}, {"beam_size": 3, "n_best": 2}]
SPANS = [[(4, 5)], [(6, 8), (3, 5)], [(20, 26), (30, 31)]]
"""Spans of the stop strings in the text generated without them."""


def before(text: str, stop: list[str]) -> str:
    return text[: min([start for one in stop if (start := text.find(one)) >= 0], default=len(text))]


@pytest.mark.parametrize("spans", SPANS, ids=str)
@pytest.mark.parametrize("options", SEARCHES[:2])
@pytest.mark.parametrize("kind", ["generator", "rotary"])
def test_generation_ends_before_the_first_stop_string(
    request: pytest.FixtureRequest, kind: str, options: dict[str, Any], spans: list[tuple[int, int]]
) -> None:
    """Equals the text without stop strings up to that point, beyond the window and in streams too."""
    model: Generator = request.getfixturevalue(kind)
    whole = model.generate(PROMPTS, max_length=40, **options)
    stop = [text[slice(*span)] for text, span in zip(whole, spans, strict=False) if text[slice(*span)]]
    found = model.continuations(PROMPTS, max_length=40, stop=stop, **options)
    for prompt, text, (one,) in zip(PROMPTS, whole, found, strict=True):
        assert one.text == before(text, stop)
        assert (one.hypothesis.finish_reason == "stop") is (one.text != text)
        assert model.tokenizer.decode(one.hypothesis.tokens) == one.text
        assert len(one.hypothesis.token_log_probs) == len(one.hypothesis.predicted(model.tokenizer.end_id))
        assert "".join(model.stream(prompt, max_length=40, stop=stop, **options)) == one.text
    assert any(one.hypothesis.finish_reason == "stop" for (one,) in found)


def test_beam_search_ends_at_a_stop_string(rotary: Generator) -> None:
    for stop in (["e"], ["s.", " d"], ["o", "s"]):
        found = rotary.continuations(PROMPTS, max_length=12, stop=stop, **SEARCHES[2])
        for prompt, several in zip(PROMPTS, found, strict=True):
            alone = rotary.continuations([prompt], max_length=12, stop=stop, **SEARCHES[2])[0]
            assert [one.text for one in several] == [one.text for one in alone]
            assert not any(text in one.text for one in several for text in stop)


@pytest.mark.parametrize("search", SEARCHES)
def test_bias_and_penalty_do_not_depend_on_batch_or_cache(rotary: Generator, search: dict[str, Any]) -> None:
    options = {"max_length": 20, "repetition_penalty": 1.4, "logit_bias": {"e": 1.0, "a": float("-inf")}, **search}

    def generate(prompts: list[str], **more: Any) -> list[list[str]]:
        return [[one.text for one in several] for several in rotary.continuations(prompts, **{**options, **more})]

    together = generate(PROMPTS)
    assert together == [generate([prompt])[0] for prompt in PROMPTS]
    assert together == generate(PROMPTS, use_cache=False)
    plain = rotary.continuations(PROMPTS, max_length=20, **search)
    assert together != [[one.text for one in several] for several in plain]
    assert "a" not in "".join(text for several in together for text in several)


def test_repetition_penalty_counts_the_prompt(generator: Generator) -> None:
    ids = generator.tokenizer.encode("the dog")
    row = generator.model(torch.tensor([ids]))[0, -1]
    for id in set(ids):
        row[id] = row[id] / 5 if row[id] > 0 else row[id] * 5
    (found,) = generator.continuations(["the dog"], sample=False, repetition_penalty=5.0, max_length=1)
    assert found[0].hypothesis.tokens == [int(row[3:].argmax()) + 3]
    expected = row.log_softmax(-1)[found[0].hypothesis.tokens[0]].item()
    assert found[0].hypothesis.token_log_probs[0] == pytest.approx(expected, abs=1e-5)


def test_temperature_0_equals_greedy_search(generator: Generator) -> None:
    assert generator.generate(PROMPTS, temperature=0) == generator.generate(PROMPTS, sample=False)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"stop": ["x", "Ω"]}, "stop='Ω' can never occur: this vocabulary reads 'xΩx' as '"),
        ({"stop": ""}, "an empty stop string would end every text at once; leave it out"),
        ({"logit_bias": {"dog": 1}}, r"'dog' is 3 tokens; choose one of them: 'd' \(#\d+\), 'o' "),
        ({"logit_bias": {"Ω": 1}}, "'Ω' is not in this vocabulary; choose a token of it, or #id"),
        ({"logit_bias": {9999: 1}}, r"#9999 is not in this vocabulary; its ids go from #0 to #\d+$"),
    ],
)
def test_generator_rejects_invalid_stop_strings_and_biases(
    generator: Generator, options: dict[str, Any], fault: str
) -> None:
    generator = replace(generator, decoding=generator.decoding.model_copy(update={"stop": ()}))
    if options.get("stop") == ["x", "Ω"]:
        options = {"stop": ["e", "Ω"]}
    with pytest.raises(ConfigError, match=fault):
        generator.generate(["the"], **options)


def test_generate_command_accepts_stop_strings_and_biases(cli: Cli, language: TinyTask, generator: Generator) -> None:  # noqa: F811
    options = {"temperature": 0, "max_length": 20, "stop": [".", "b"], "logit_bias": {"d": -3.0}}
    arguments = ["--temperature", 0, "--max-length", 20, "--stop", ".", "--stop", "b", "-s", "logit_bias={d = -3.0}"]
    (expected,) = generator.continuations(["the "], **options)
    assert cli("generate", language.run, "the ", *arguments) == (0, f"the {expected[0].text}\n", "")
    (one,) = json.loads(cli("generate", language.run, "the ", "--json", *arguments)[1])["continuations"]
    assert one["text"] == expected[0].text
    assert one["finish_reason"] == "stop"
    assert "".join(one["tokens"]) == one["text"]
    assert len(one["tokens"]) == len(one["token_log_probs"])


def test_generate_command_refuses_a_stop_string_that_cannot_occur(refused: Any, language: TinyTask) -> None:  # noqa: F811
    assert refused("generate", language.run, "the", "--stop", "🚀").startswith("stop='🚀' can never occur: ")
