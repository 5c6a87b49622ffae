"""What a user can mend is one line on stderr and exit code 2, and leaves nothing half written."""

import gzip
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassformer.checkpoint import load_checkpoint, save_checkpoint
from glassformer.config import DataError
from glassformer.run_folder import RunFolder, resolve
from glassformer.text import TextConfig, train_tokenizers
from tiny_run import TinyRun, run_to_the_end, write_lines

Refused = Callable[..., str]
Cli = Callable[..., Any]


# train


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
            r"min_length=70 is more than the \d+ tokens that a text of \d+ may become; lower it",
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
        (["model.positions=rotary", "model.d_k=3"], r"rotary .*d_k=3 is odd; choose an even one"),
        (["optimizer.weight_decay=0.1"], r"weight_decay needs kind=adamw"),
        (["text.joint=false"], r"tie_embeddings=true needs one vocabulary; set text\.joint=true or .*=false"),
        (["text.vocab_size=10"], r"vocab_size=10 is too small: .*choose at least \d+"),
        (["data.train=[]"], r"data\.train=\[\]: .*at least 1 item"),
        (['data.train=["/nowhere/train"]'], r"/nowhere/train\.en: no such file \(nor train\.en\.gz\); a path is .*"),
        (['data.validation=["/nowhere/v"]'], r"/nowhere/v\.en: no such file"),
        (["data.batch_tokens=5"], r"does not fit data\.batch_tokens=5; raise it to \d+ or lower data\.max_length"),
        (["data.max_length=2"], r"no pair is left to train on: .*train: 300 read, 0 kept, too_long 300 \(line 1, 2,"),
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
        (b"[train\n", r"run\.toml: not valid TOML: .*line 1.*; mend it there$"),
        (b"#\n\xff\xfe[\x00", r"run\.toml: not valid TOML: byte 0xff in line 2 is not UTF-8; save it as UTF-8$"),
        (b"a = " + b"[" * 100_000, r"run\.toml: not valid TOML: brackets within brackets, too many; close them$"),
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
    assert re.search(r"v, line 2: not valid UTF-8; mend or remove the line$", line)
    assert not (tmp_path / "run").exists()


def test_a_run_that_exists_and_one_that_does_not(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    config = tiny.write_config(tmp_path / "run.toml")
    assert "holds a run already; go on with --resume, or name another" in refused("train", config, "--run", tiny.run)
    line = refused("train", config, "--resume", "--run", tiny.run.with_name("rum"))
    assert line.endswith("rum: no run is there; did you mean run?")
    line = refused("train", config, "model.d_model=32", "--resume", "--run", tiny.run)
    assert line == "model.d_model=32, but the run began with 16; resume with that, or start anew"


# Checkpoints


@pytest.fixture
def copied(tiny: TinyRun, tmp_path: Path) -> Path:
    return Path(shutil.copytree(resolve(tiny.run), tmp_path / "copied"))


@pytest.mark.parametrize("verb", [["translate"], ["tokenize"], ["score"], ["evaluate"], ["info"]])
def test_a_damaged_checkpoint_is_refused_by_every_verb(
    refused: Refused, tiny: TinyRun, copied: Path, verb: list[str]
) -> None:
    sides = [f"{tiny.folder}/validation.en", f"{tiny.folder}/validation.fr"]
    rest = sides if verb[0] in ("score", "evaluate") else []
    weights = copied / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    line = refused(*verb, copied, *rest)
    assert line.startswith(f"{copied}: model.safetensors is damaged: ")
    assert line.endswith("; copy it again")


def test_edited_and_incomplete_checkpoints_are_refused(refused: Refused, copied: Path, tmp_path: Path) -> None:
    config = copied / "config.json"
    written = config.read_text()
    config.write_text(written.replace('"n_heads": 2', '"n_heads": 4'))
    assert "config.json is damaged" in refused("translate", copied)
    config.unlink()
    assert "config.json is missing; copy the whole folder again" in refused("translate", copied)
    assert "there is no such run or checkpoint; did you mean copied?" in refused("translate", tmp_path / "copid")
    (tmp_path / "other").mkdir()
    assert "other: is neither a run nor a checkpoint; known: copied" in refused("translate", tmp_path / "other")


def save_with(copied: Path, **changes: Any) -> None:
    """A checkpoint whole in itself, whose parts do not belong together."""
    loaded = load_checkpoint(copied)
    parts = {"config": loaded.config, "tokenizer": loaded.tokenizer, "weights": loaded.weights} | changes
    save_checkpoint(copied, replace=True, **parts)


def test_a_tokenizer_of_another_training_is_refused(refused: Refused, tiny: TinyRun, copied: Path) -> None:
    def lines(text: str) -> Any:
        return lambda: iter([text] * 3)

    smaller = train_tokenizers(TextConfig(kind="char"), lines("abc"), lines("abc"))
    save_with(copied, tokenizer=smaller.to_json())
    assert re.search(
        r"the tokenizer has \(7, 7\) entries and the model \(300, 300\); they are not", refused("info", copied)
    )

    letters = "".join(chr(0x4E00 + i) for i in range(296))
    as_large = train_tokenizers(TextConfig(kind="char"), lines(letters), lines(letters))
    save_with(copied, tokenizer=as_large.to_json())
    told = "the tokenizer is not the one the model was trained with; restore the original"
    assert refused("translate", copied) == f"{copied}: {told}"

    edited = tiny.translator.tokenizers.to_json()
    edited["config"]["lowercase"] = True
    save_with(copied, tokenizer=edited)
    assert "changed since it was written (its SHA-256 differs); restore" in refused("translate", copied)


def test_weights_of_another_configuration_are_refused(refused: Refused, copied: Path) -> None:
    config = load_checkpoint(copied).config
    save_with(copied, config={**config, "model": {**config["model"], "d_ff": 64}})
    assert "the weights do not fit the configuration: encoder" in refused("translate", copied)
    save_with(copied, config={**config, "model": {**config["model"], "kind": "encoder_decoda"}})
    assert "'encoder_decoda' is not a model; did you mean encoder_decoder?" in refused("translate", copied)


def test_ensembles_of_different_tokenizers_are_refused(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    settings = {"text.vocab_size": 200, "train.max_steps": 1, "data.validation": []}
    run_to_the_end(tiny.config(settings), tmp_path / "other")
    line = refused("translate", tiny.run, "--ensemble", tmp_path / "other")
    assert re.search(r"its tokenizer is not that of .*; an ensemble has one vocabulary$", line), line


def test_what_cannot_be_averaged(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    assert refused("average", tiny.run, "-n", "0").startswith("--last 0: at least one")
    RunFolder.create(tmp_path / "empty")
    assert "empty: this run has saved no checkpoint yet" in refused("average", tmp_path / "empty")
    assert "exists already; name a new folder" in refused("average", tiny.run, "-o", tmp_path)
    checkpoint = resolve(tiny.run)
    assert refused("average", checkpoint) == f"{checkpoint}: is a checkpoint, not a run; name {tiny.run}"
    alone = Path(shutil.copytree(checkpoint, tmp_path / "alone"))
    assert refused("average", alone).endswith("not a run; name the folder of a run, with its checkpoints in it")


# Text to translate


def test_input_and_output_that_cannot_be(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    output = tmp_path / "out.fr"
    output.write_text("before\n")
    line = refused("translate", tiny.run, tmp_path / "nowhere.en", "-o", output)
    assert line.endswith("nowhere.en: cannot be read (No such file or directory); name a file that can be")
    broken = tmp_path / "broken.en"
    broken.write_bytes(b"she sleeps\n" * 3 + b"\xe9t\xe9\n")
    line = refused("translate", tiny.run, broken, "-o", output)
    assert re.search(r"broken\.en, line 4: not valid UTF-8 .*; mend the line, or convert the text: iconv ", line)
    assert "standard input, line 1: not valid UTF-8" in refused("tokenize", tiny.run, stdin=b"\xff\n")
    assert output.read_text() == "before\n"
    assert "no folder" in refused("translate", tiny.run, "-o", tmp_path / "none" / "out.fr")
    assert "is a folder" in refused("translate", tiny.run, "-o", tmp_path)
    assert {item.name for item in tmp_path.iterdir()} == {"broken.en", "out.fr"}
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"she sleeps")[:-6])
    assert refused("tokenize", tiny.run, tmp_path / "cut.gz").endswith("; copy or compress it again")


def test_standard_input_is_one_file(refused: Refused, tiny: TinyRun) -> None:
    told = "standard input cannot be both files; name a file for one of them"
    for arguments in (["score", tiny.run, "-", "-"], ["evaluate", tiny.run, "-", "-"]):
        assert refused(*arguments, stdin="a\nb\n") == told
    assert refused("translate", tiny.run, "--prefix", "-", stdin="a\n") == told


def test_what_is_neither_a_run_nor_a_configuration(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    told = "there is no such run, checkpoint or configuration; "
    line = refused("info", tmp_path / "t.tml")
    assert line == f"{tmp_path}/t.tml: {told}name the folder of a run or of a checkpoint, or a .toml file"
    tiny.write_config(tmp_path / "t.toml")
    for name in ("t.tml", "u.toml"):
        assert refused("info", tmp_path / name) == f"{tmp_path}/{name}: {told}did you mean t.toml?"


@pytest.mark.parametrize(
    "junk", ["{", "[]", '{"checkpoint": 7}', "\xff", "[" * 100_000, '{"checkpoint": "..", "value": 1}']
)
def test_junk_for_the_best_is_told_in_one_line(refused: Refused, tiny: TinyRun, tmp_path: Path, junk: str) -> None:
    shutil.copytree(tiny.run, tmp_path / "run")
    (tmp_path / "run" / "best.json").write_text(junk, encoding="latin-1")
    told = "best.json: is damaged; delete it and the newest checkpoint is used"
    assert refused("translate", tmp_path / "run").endswith(told)


def test_junk_for_the_best_is_told_before_training(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    settings = {"data.validation": [], "train.max_steps": 2}
    run_to_the_end(tiny.config(settings), tmp_path / "run")
    (tmp_path / "run" / "best.json").write_text("{")
    config = tiny.write_config(tmp_path / "tiny.toml", settings)
    line = refused("train", config, "train.max_steps=9", "--resume", "--run", tmp_path / "run")
    assert "best.json: is damaged" in line
    assert [path.name for path in RunFolder.open(tmp_path / "run").checkpoints()] == ["step_00000002"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["translate", "run", "a", "b"], "Got unexpected extra argument(s) (b); see glassformer translate --help"),
        (["train"], "Missing argument 'config'; see glassformer train --help"),
        (["translate", "run", "--beam-size", "x"], "Invalid value for '--beam-size': "),
        (["trian"], "No such command 'trian'. Did you mean 'train'?; see glassformer --help"),
        (["--bogus"], "No such option: --bogus; see glassformer --help"),
    ],
)
def test_a_command_written_wrongly_is_one_line(refused: Refused, arguments: list[str], told: str) -> None:
    assert refused(*arguments).startswith(told)


def test_nothing_asked_is_answered_with_help(cli: Cli) -> None:
    assert cli().code == 0 and "demo " in cli().out and cli().out == cli("--help").out


def test_decoding_settings_that_cannot_be(refused: Refused, tiny: TinyRun) -> None:
    assert "unknown key beamsize; did you mean beam_size?" in refused("translate", tiny.run, "-s", "beamsize=3")
    assert "beam_size=0: input should be greater than 0" in refused("translate", tiny.run, "--beam-size", "0")
    line = refused("translate", tiny.run, "--n-best", "5", "--beam-size", "2")
    assert "n_best=5 hypotheses need beam_size of at least that, not 2" in line
    line = refused("translate", tiny.run, "-s", "min_length=3", "-s", "max_length=2")
    assert line.endswith("min_length=3 is more than max_length=2; lower the first or raise the second")
    line = refused("translate", tiny.run, "-s", "min_length=70", "-s", "max_extra=60", stdin="the cat\n\n")
    assert re.fullmatch(
        r"min_length=70 is more than the 6\d tokens that a text of \d may become; lower it, or .*", line
    )
    assert "alpha=inf: input should be a finite number" in refused("translate", tiny.run, "-s", "alpha=inf")


def test_a_line_too_long_for_the_memory(refused: Refused, cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    """It would be 320 GB of scores. The fused kernel of float32 needs none, and is not waited for here."""
    text = write_lines(tmp_path / "text", ["the cat", "a " * 200_000])
    told = "a text of 200,001 tokens does not fit the memory; split it into sentences"
    result = cli("translate", tiny.run, text, "-s", "precision=bfloat16", "-o", tmp_path / "out")
    warning, error = result.err.splitlines()
    assert result.code == 2 and error == f"glassformer: error: {told}"
    assert re.search(r"warning: line 2 has 200,001 tokens, more than max_length=1024; .* takes long; split", warning)
    assert not (tmp_path / "out").exists()
    assert refused("score", tiny.run, text, text) == told
    with pytest.raises(DataError, match=told):
        tiny.translator.align("a " * 200_000, "b")


def test_files_that_do_not_pair_up(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    three, two = write_lines(tmp_path / "three", list("abc")), write_lines(tmp_path / "two", list("ab"))
    for verb in ("score", "evaluate"):
        told = f"{three} has 3 lines and {two} 2; the first without a partner is line 3, which {two} does not have"
        assert refused(verb, tiny.run, three, two) == told
    assert "two has fewer lines than" in refused("translate", tiny.run, three, "--prefix", two, "-o", tmp_path / "o")
    assert "three has more lines than the 2 of" in refused(
        "translate", tiny.run, two, "--prefix", three, "-o", tmp_path / "o"
    )
    assert not (tmp_path / "o").exists()
    assert "tokenize='14a' is not known; choose from 13a" in refused(
        "evaluate", tiny.run, two, two, "--tokenize", "14a"
    )


def test_no_line_to_evaluate(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    empty = write_lines(tmp_path / "empty", [])
    assert refused("evaluate", tiny.run, empty, empty).endswith("; give at least one of each")


def test_learned_positions_refuse_what_is_longer(refused: Refused, cli: Any, tiny: TinyRun, tmp_path: Path) -> None:
    settings = {
        "model.positions": "learned",
        "model.max_length": 40,
        "data.max_length": 40,
        "train.max_steps": 1,
        "data.validation": [],
    }
    run_to_the_end(tiny.config(settings), tmp_path / "run")
    line = "the cat " * 60
    result = cli("translate", tmp_path / "run", "-o", tmp_path / "out", stdin=f"she sleeps\n{line}\n")
    assert result.code == 2
    assert re.fullmatch(
        r"glassformer: error: .*\d+ tokens are longer than max_length=40, and learned positions end there; "
        r"shorten the text, or train with positions=sinusoidal",
        result.err.splitlines()[-1],
    )
    assert "line 2 has" in result.err
    assert not (tmp_path / "out").exists()
    long_enough = cli("translate", tmp_path / "run", stdin="she sleeps\n")
    assert long_enough.code == 0


# What stands where the output goes


def test_a_link_is_followed_a_pipe_is_written_to_and_the_mode_is_kept(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "source", ["the cat"])
    wanted = cli("translate", tiny.run, source).out
    real, link, pipe = tmp_path / "real", tmp_path / "link", tmp_path / "pipe"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    assert cli("translate", tiny.run, source, "-o", link).code == 0
    assert link.is_symlink() and real.read_text() == wanted and real.stat().st_mode & 0o777 == 0o600
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert cli("translate", tiny.run, source, "-o", pipe).code == 0
    assert os.read(reader, 1000).decode() == wanted and pipe.is_fifo()
    os.close(reader)


def test_a_folder_of_other_files_is_not_taken_for_a_run(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    config = tiny.write_config(tmp_path / "tiny.toml")
    told = "holds other files and no run; name another folder with --run"
    assert told in refused("train", config, "--run", tmp_path)


def test_a_picture_without_a_folder_is_refused_before_training(refused: Refused, tmp_path: Path) -> None:
    picture = tmp_path / "none" / "p.svg"
    assert "there is no folder" in refused("demo", "--run", tmp_path / "demo", "--picture", picture)
    assert not (tmp_path / "demo").exists()
