"""The command ``prepare``: its account, its bar, and what it refuses."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from shard_tasks import settings

Cli = Callable[..., Any]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "my.toml"
    path.write_text(tomli_w.dumps(settings("translation", tmp_path)))
    return path


def test_prepare_prints_the_account_and_training_takes_the_folder(cli: Cli, config: Path, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    done = cli("prepare", config, "--output", shards, "--processes", "1", "--shard-tokens", "1000")
    assert f"{tmp_path / 'train'}: 300 read, 298 kept, empty 2 (line 8, 101)" in done.err
    assert "unknown tokens: source 0 of" in done.err
    assert f"{shards}: 348 samples, " in done.out and " shards, " in done.out
    trained = cli("train", config, f"data.shards={shards}", "train.max_steps=2", "--run", tmp_path / "run")
    assert "298 kept" in trained.err and "step 2: train.max_steps=2 is reached" in trained.err


def test_data_shards_is_the_default_folder(cli: Cli, config: Path, tmp_path: Path) -> None:
    cli("prepare", config, f"data.shards={tmp_path / 'here'}", "--processes", "1")
    assert (tmp_path / "here" / "index.json").is_file()


def test_the_folder_may_be_the_working_directory(
    cli: Cli, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    done = cli("prepare", config, "-o", ".", "--processes", "1")
    assert done.out.startswith(".: 348 samples, ") and " tokens in 1 shard, " in done.out
    assert (tmp_path / "empty" / "index.json").is_file()


def test_documents_of_a_stream_are_counted_in_tokens(cli: Cli, tmp_path: Path) -> None:
    config = tmp_path / "language.toml"
    config.write_text(tomli_w.dumps(settings("language", tmp_path)))
    shards = tmp_path / "shards"
    done = cli("prepare", config, "-o", shards, "--processes", "1", "--shard-tokens", "400")
    assert re.fullmatch(rf"{shards}: [\d,]+ tokens in \d+ shards, [\d.]+ MB, [\d.]+ s\n", done.out)


def test_prepare_refuses_in_one_line(refused: Callable[..., str], config: Path, tmp_path: Path) -> None:
    assert refused("prepare", config) == "no folder for the shards; give --output FOLDER, or set data.shards"
    (tmp_path / "file").write_text("")
    assert refused("prepare", config, "-o", tmp_path / "file").startswith(f"{tmp_path / 'file'}: cannot be written")
    line = refused("prepare", config, "-o", tmp_path / "s", "--shard-tokens", "5000000000")
    assert "a shard has 1 to 4,294,967,295 tokens" in line


def test_plan_takes_a_configuration_with_shards(cli: Cli, config: Path) -> None:
    done = cli("plan", config, "data.shards=nowhere", "--world", "1")
    assert "parameters" in done.out
