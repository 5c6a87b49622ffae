"""A training that cannot be is refused in one line, before it begins, and leaves no run."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from glassformer.storage.run_folder import RunFolder
from tiny_run import TinyRun, run_to_the_end

Refused = Callable[..., str]


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["train.max_step=3"], r"^'train\.max_step=3': unknown key train\.max_step; did you mean train\.max_steps\?"),
        (
            ["train.seed=3", "model.n_heads=5", "train.seed=4"],
            r"^'model\.n_heads=5': model: d_model=16 is not divisible",
        ),
        (["optimizer.learning_rate=inf"], r"optimizer\.learning_rate=inf: input should be a finite number"),
        (["optimizer.betas=[0.9, nan]"], r"optimizer\.betas\.1=nan: input should be a finite number"),
        (["data.weights=[inf]"], r"data\.weights\.0=inf: input should be a finite number"),
        (
            ["decoding.min_length=3", "decoding.max_length=2"],
            r"^'decoding\.max_length=2': .*min_length=3 is more than max",
        ),
        (
            ["decoding.min_length=70"],
            r"min_length=70 is more than the maximum of \d+ tokens for a text of \d+; lower it",
        ),
        (["optimizer.max_steps=3"], r"unknown key optimizer\.max_steps; did you mean train\.max_steps\?"),
        (["trian.max_steps=3"], r"unknown key trian; did you mean train\?"),
        (["train.max_steps=many"], r"train\.max_steps='many': input should be a valid integer"),
        (["train.max_steps=0"], r"train\.max_steps=0: input should be greater than 0"),
        (["train.max_steps"], r"'train\.max_steps' is not key=value; write for example train\.max_steps=200"),
        (
            ["train.max_steps.x=1"],
            r"'train\.max_steps\.x=1': train\.max_steps is a value, not a section; set it without \.x",
        ),
        (["model=3"], r"model=3: model is a section, not a value; set the keys in it"),
        (["model.n_heads=5"], r"model: d_model=16 is not divisible by n_heads=5; choose n_heads from 1, 2, 4, 8, 16"),
        (["model.positions=rotary", "model.d_k=3"], r"rotary .*d_k=3 is odd; choose an even d_k"),
        (["optimizer.weight_decay=0.1"], r"kind=adam has no weight_decay; set kind=adamw"),
        (["text.joint=false"], r"tie_embeddings=true needs one vocabulary; set text\.joint=true or .*=false"),
        (["text.vocab_size=10"], r"vocab_size=10 is too small for .*choose at least \d+"),
        (["data.train=[]"], r"data\.train=\[\]: .*at least 1 item"),
        (['data.train=["/nowhere/train"]'], r"/nowhere/train\.en: no such file \(nor train\.en\.gz\); a path is .*"),
        (['data.validation=["/nowhere/v"]'], r"/nowhere/v\.en: no such file"),
        (["data.batch_tokens=5"], r"does not fit data\.batch_tokens=5; raise it to \d+ or lower data\.max_length"),
        (["data.max_length=2"], r"no pair is left \(.*train: 300 read, 0 kept, too_long 300 \(line 1, 2,"),
        (
            ["text.kind=word", "text.vocab_size=20", "text.max_unknown_rate=0.05"],
            r"tokens are unknown .*rate=0\.05; raise",
        ),
    ],
)
def test_settings_that_cannot_be_trained_with(
    refused: Refused, tiny: TinyRun, tmp_path: Path, overrides: list[str], told: str
) -> None:
    run = tmp_path / "run"
    line = refused("train", tiny.write_config(tmp_path / "run.toml"), *overrides, "--run", run)
    assert re.search(told, line), line
    assert not run.exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, r"run\.toml: no such file; name a configuration file in TOML"),
        (b"[train\n", r"run\.toml: not valid TOML: .*line 1.*; correct it there$"),
        (b"#\n\xff\xfe[\x00", r"run\.toml: not valid TOML: byte 0xff in line 2 is not UTF-8; save it as UTF-8$"),
        (b"a = " + b"[" * 100_000, r"run\.toml: not valid TOML: brackets are nested too deeply; close them$"),
        (b"", r"run\.toml: data is not given, and it has no default; add it"),
        (
            b"[data]\nsource = 'en'\ntarget = 'fr'\n",
            r"run\.toml: data\.train is not given, and it has no default; add it",
        ),
        (b"[data]\nsource = 'en'\ntarget = 'en'\ntrain = ['x']\n", r"source and target are both 'en'; give"),
    ],
)
def test_a_configuration_that_is_none(refused: Refused, tmp_path: Path, content: bytes | None, told: str) -> None:
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_bytes(content)
    line = refused("train", path, "--run", tmp_path / "run")
    assert re.search(told, line), line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("english", "french", "told"),
    [
        (b"a\nb\nc\n", b"a\nb\n", r"t\.fr has 2 lines and .*t\.en has 3: line 3 of .*t\.en has no partner; parallel"),
        (b"a\n", b"", r"t\.fr: is empty; a corpus needs at least one line"),
        (b"", b"", r"t\.en: is empty; a corpus needs at least one line"),
        (b"\xff\n\xfe\n", b"a\nb\n", r".*"),
        (b"\n \n", b"a\nb\n", r".*"),
    ],
)
def test_text_that_cannot_be_trained_on(
    refused: Refused, tiny: TinyRun, tmp_path: Path, english: bytes, french: bytes, told: str
) -> None:
    (tmp_path / "t.en").write_bytes(english)
    (tmp_path / "t.fr").write_bytes(french)
    config = tiny.write_config(tmp_path / "run.toml", {"data.train": [str(tmp_path / "t")]})
    line = refused("train", config, "--run", tmp_path / "run")
    assert re.search(told, line), line
    assert not (tmp_path / "run").exists()


def test_validation_text_that_cannot_be_read(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    (tmp_path / "v.en").write_bytes(b"a\n\xff\n")
    (tmp_path / "v.fr").write_bytes(b"a\nb\n")
    config = tiny.write_config(tmp_path / "run.toml", {"data.validation": [str(tmp_path / "v")]})
    line = refused("train", config, "--run", tmp_path / "run")
    assert re.search(r"v, line 2: not valid UTF-8; fix or remove the line$", line)
    assert not (tmp_path / "run").exists()


def test_a_run_that_exists_and_one_that_does_not(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    config = tiny.write_config(tmp_path / "run.toml")
    assert "holds a run already; go on with --resume, or name another" in refused("train", config, "--run", tiny.run)
    line = refused("train", config, "--resume", "--run", tiny.run.with_name("rum"))
    assert line == f"{tiny.run.with_name('rum')}: no run is there; did you mean {tiny.run}?"
    line = refused("train", config, "model.d_model=32", "--resume", "--run", tiny.run)
    assert line == "model.d_model=32, but the run began with 16; resume with 16, or start a new run"


def test_a_folder_of_other_files_is_not_taken_for_a_run(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    config = tiny.write_config(tmp_path / "tiny.toml")
    told = "holds other files and no run; name another folder with --run"
    assert told in refused("train", config, "--run", tmp_path)


def test_junk_for_the_best_is_told_before_training(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    settings = {"data.validation": [], "train.max_steps": 2}
    run_to_the_end(tiny.config(settings), tmp_path / "run")
    (tmp_path / "run" / "best.json").write_text("{")
    config = tiny.write_config(tmp_path / "tiny.toml", settings)
    line = refused("train", config, "train.max_steps=9", "--resume", "--run", tmp_path / "run")
    assert "best.json: is damaged" in line
    assert [path.name for path in RunFolder.open(tmp_path / "run").checkpoints()] == ["step_00000002"]


def test_a_picture_without_a_folder_is_refused_before_training(refused: Refused, tmp_path: Path) -> None:
    picture = tmp_path / "none" / "p.svg"
    assert "there is no folder" in refused("demo", "--run", tmp_path / "demo", "--picture", picture)
    assert not (tmp_path / "demo").exists()
