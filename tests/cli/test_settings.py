"""Settings of commands: one syntax, ``KEY=VALUE`` with its section."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tiny_run import TinyRun, write_lines
from tiny_tasks import made

Cli = Callable[..., Any]
Refused = Callable[..., str]
TEXT = "the old cat sleeps\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["decoding.n_best=3"],
        ["-", "decoding.n_best=3"],
        ["-", "n_best=3"],
        ["-s", "decoding.n_best=3"],
        ["--set", "n_best=3"],
    ],
)
def test_translate_reads_every_form_of_a_setting(cli: Cli, tiny: TinyRun, arguments: list[str]) -> None:
    expected = cli("translate", tiny.run, "--n-best", 3, stdin=TEXT)
    assert expected.out.count("|||") == 6
    assert cli("translate", tiny.run, *arguments, stdin=TEXT) == expected


def test_generate_reads_settings_and_prompts_with_an_equals_sign(
    cli: Cli, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = made(tmp_path_factory, "language").run
    expected = cli("generate", run, "--max-length", 3, "--no-sample", "a=b")
    assert expected.out.startswith("a=b")
    assert cli("generate", run, "a=b", "decoding.max_length=3", "sample=false") == expected


def test_evaluate_reads_settings_between_files(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "text", ["the cat", "she sleeps"])
    expected = cli("evaluate", tiny.run, file, file, "-s", "beam_size=1").out.splitlines()
    assert cli("evaluate", tiny.run, file, "decoding.beam_size=1", file).out.splitlines()[:2] == expected[:2]


def test_train_and_info_read_both_forms(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    config = tiny.write_config(tmp_path / "tiny.toml")
    assert cli("info", config, "model.d_ff=64").out == cli("info", config, "-s", "model.d_ff=64").out
    assert cli("train", config, "-s", "train.max_steps=1", "validation.every=9", "--run", tmp_path / "run").code == 0
    assert "max_steps = 1\n" in (tmp_path / "run" / "config.toml").read_text()


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("decoding.beamsize=3", "unknown key decoding.beamsize; did you mean decoding.beam_size?"),
        ("beamsize=3", "unknown key decoding.beamsize; did you mean decoding.beam_size?"),
        ("train.seed=3", "'train.seed=3': only keys of decoding can be set for a trained run; leave it out"),
    ],
)
def test_an_unknown_key_names_the_nearest(refused: Refused, tiny: TinyRun, setting: str, fault: str) -> None:
    assert refused("translate", tiny.run, "-s", setting, stdin=TEXT) == fault


def test_usage_shows_settings_in_one_pair_of_brackets(cli: Cli) -> None:
    for command in ("train", "info", "translate", "generate"):
        assert " [KEY=VALUE]..." in cli(command, "--help").out
