"""A configuration is read, overridden, refused with a hint, and written back as it was."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import apply_override
from glassformer.errors import ConfigError, nearest
from glassformer.models.gpt import GPTConfig
from glassformer.train import parse_config, read_config
from glassformer.train.tasks.translation import TranslationRun

DATA = {"source": "en", "target": "fr", "train": ["corpus"]}


def refusal(values: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config({"data": DATA, **values}, "run.toml")
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix("run.toml: ")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"train": {"max_step": 1}}, "unknown key train.max_step; did you mean train.max_steps?"),
        (
            {"optimizer": {"lerning_rate": 1}},
            "unknown key optimizer.lerning_rate; did you mean optimizer.learning_rate?",
        ),
        ({"optimiser": {}}, "unknown key optimiser; did you mean optimizer?"),
        ({"max_steps": 1}, "unknown key max_steps; did you mean train.max_steps?"),
        # Known in another section: that one, although this section has something similar.
        ({"optimizer": {"max_steps": 1}}, "unknown key optimizer.max_steps; did you mean train.max_steps?"),
        ({"model": {"learning_rate": 1}}, "unknown key model.learning_rate; did you mean optimizer.learning_rate?"),
        ({"train": {"alpha": 1}}, "unknown key train.alpha; did you mean decoding.alpha?"),
        (
            {"validation": {"xyzzy": 1}},
            "unknown key validation.xyzzy; known: beam_size, every, max_sentences, metric, patience, tokenize",
        ),
    ],
)
def test_unknown_key_error_names_the_nearest_key(values: dict[str, Any], told: str) -> None:
    assert refusal(values) == told


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"model": {"d_model": 512, "n_heads": 7}},
            "model: d_model=512 is not divisible by n_heads=7; choose n_heads from 1, 2, 4, 8, 16, 32, 64",
        ),
        ({"model": {"vocab_size": 0}}, "holds no token; leave it out"),
        (
            {"model": {"vocab_size": [10, 11]}},
            "needs one vocabulary; set text.joint=true or model.tie_embeddings=false",
        ),
        ({"model": {"dropout": 1}}, "model.dropout=1: input should be less than 0.99"),
        ({"model": {"norm_order": "mid"}}, "model.norm_order='mid': input should be 'post' or 'pre'"),
        ({"train": {"max_steps": 2.5}}, "train.max_steps=2.5: input should be a valid integer"),
        ({"train": {"max_seconds": -1}}, "train.max_seconds=-1: input should be greater than or equal to 0"),
        (
            {"text": {"kind": "char", "bpe_dropout": 0.1}},
            'bpe_dropout=0.1 needs kind="bpe" or "bytes", not "char"; set it to 0',
        ),
        ({"optimizer": {"betas": [1.5, 0.9]}}, "optimizer.betas.0=1.5: input should be less than 1"),
        ({"train": {"seed": 2**70}}, "input should be less than 9223372036854775808"),
        (
            {"model": {"positions": "learned"}, "text": {"bpe_dropout": 0.1}},
            "text.bpe_dropout lengthens sentences, and learned positions end; set it to 0",
        ),
        ({"text": {"joint": False}}, "set text.joint=true or model.tie_embeddings=false"),
        ({"data": {**DATA, "train": []}}, "data.train=[]: list should have at least 1 item, not 0"),
        (
            {"data": {"train": ["x"], "weights": [1, 2]}},
            "weights has 2 values and train 1 paths; give one weight a path",
        ),
        ({"decoding": 4}, "decoding=4: decoding is a section, not a value; set the keys in it"),
        ({"data": {"source": "en"}}, "data.train is not given, and it has no default; add it"),
    ],
)
def test_invalid_configuration_is_a_one_line_error(values: dict[str, Any], told: str) -> None:
    assert told in refusal(values)


def test_separate_vocabularies_without_tying_are_allowed() -> None:
    values = {"data": DATA, "text": {"joint": False}, "model": {"tie_embeddings": False}}
    assert not parse_config(values).text.joint


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("train.max_steps=200", ("train", "max_steps"), 200),
        ("optimizer.learning_rate=1e-4", ("optimizer", "learning_rate"), 1e-4),
        ("text.joint=false", ("text", "joint"), False),
        ("text.kind=word", ("text", "kind"), "word"),
        ('text.kind="word"', ("text", "kind"), "word"),
        ('data.train=["a", "b"]', ("data", "train"), ["a", "b"]),
        ("data.cache=/tmp/a=b", ("data", "cache"), "/tmp/a=b"),
        ("data.cache=", ("data", "cache"), ""),
        ("beam_size=5", ("beam_size",), 5),
    ],
)
def test_overrides_are_typed(override: str, path: tuple[str, ...], value: object) -> None:
    values: dict[str, Any] = {}
    apply_override(values, override)
    for key in path:
        values = values[key]
    assert values == value
    assert type(values) is type(value)


@pytest.mark.parametrize("override", ["max_steps", "", "=3", "train.max_steps 3"])
def test_invalid_override_is_an_error(override: str) -> None:
    with pytest.raises(ConfigError, match=r"is not key=value; write for example train\.max_steps=200$"):
        apply_override({}, override)


def test_default_then_file_then_override(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[data]\ntrain = ["a"]\n[train]\nmax_steps = 7  # a comment\nseed = 3\n')
    config = read_config(path, ["train.max_steps=8", "train.max_steps=9"])
    assert (config.train.max_steps, config.train.seed, config.train.accumulate) == (9, 3, 1)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: None, "no such file; name a configuration file in TOML"),
        (lambda path: path.mkdir(), "is a folder; name a configuration file in TOML"),
        (lambda path: path.write_text("[train"), "not valid TOML: "),
        (lambda path: path.write_text("[train]\nseed = 1\nseed = 2\n"), "not valid TOML: "),
        (lambda path: path.write_bytes(b"# \xff\n"), "not valid TOML: "),
    ],
)
def test_unreadable_file_is_an_error(tmp_path: Path, make: Any, told: str) -> None:
    path = tmp_path / "run.toml"
    make(path)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert str(caught.value).startswith(f"{path}: {told}")
    assert "\n" not in str(caught.value)


@settings(max_examples=25, deadline=None)
@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    number=st.floats(min_value=1e-12, max_value=1e6, allow_nan=False),
    weights=st.lists(st.floats(min_value=1e-3, max_value=10), min_size=1, max_size=3),
)
def test_written_configuration_is_read_unchanged(
    tmp_path_factory: pytest.TempPathFactory, text: str, number: float, weights: list[float]
) -> None:
    path = tmp_path_factory.mktemp("written") / "run.toml"
    values = {
        "data": {**DATA, "train": [f"{text}{n}" for n in range(len(weights))], "weights": weights, "cache": text},
        "optimizer": {"learning_rate": number},
        "model": {"vocab_size": 9, "d_k": 3},
    }
    config = parse_config(values)
    config.write(path)
    assert read_config(path) == config
    written = tomllib.loads(path.read_text(encoding="utf-8"))
    assert set(written) == set(TranslationRun.model_fields)
    assert written["train"]["accumulate"] == 1  # defaults too


def test_a_configuration_does_not_change() -> None:
    config = parse_config({"data": DATA})
    with pytest.raises(ValueError, match="frozen"):
        config.train.seed = 2  # type: ignore[misc]


def test_nearest_lists_all_names_without_a_similar_one() -> None:
    assert nearest("beam", ["beam_size", "alpha"]) == "did you mean beam_size?"
    assert nearest("zzz", ["beam_size", "alpha"]) == "known: alpha, beam_size"
    assert nearest("beam", ["beam_size", "alpha"], "decoding.") == "did you mean decoding.beam_size?"


@pytest.mark.parametrize("values", [[], [1, 2], "text", None])
@pytest.mark.parametrize("parse", [GPTConfig.parse, GPTConfig.parse_stored])
def test_values_that_are_no_table_are_refused(parse: Any, values: Any) -> None:
    with pytest.raises(ConfigError, match=r"^config\.json: "):
        parse(values, "config.json")


@pytest.mark.parametrize("setting", ['model.kind=["gpt"]', "task=[1]", 'text.kind=["word"]', 'data.kind=["x"]'])
def test_list_in_place_of_a_name_is_refused(setting: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[data]\ntrain = ["a"]\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(setting.partition("=")[0])):
        read_config(tmp_path / "run.toml", [setting])
