"""A run or checkpoint that cannot be used is refused in one line, by whatever verb."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassformer.storage.checkpoint import load_checkpoint, save_checkpoint
from glassformer.storage.run_folder import RunFolder, resolve
from glassformer.text import TextConfig, train_tokenizers
from tiny_run import TinyRun, run_to_the_end
from tiny_tasks import made

Refused = Callable[..., str]


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
    told = f"{tmp_path}/copid: there is no such run or checkpoint; did you mean {copied}?"
    assert refused("translate", tmp_path / "copid") == told
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


def test_others_that_translate_not_are_refused(
    refused: Refused, tiny: TinyRun, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = made(tmp_path_factory, "masked").run
    sides = [f"{tiny.folder}/validation.en", f"{tiny.folder}/validation.fr"]
    told = f"{other}: is a run of task=masked, but this is for translation; use glassformer fill"
    assert refused("translate", tiny.run, "--ensemble", other) == told
    assert refused("evaluate", tiny.run, *sides, "--baseline", other) == told


def test_what_cannot_be_averaged(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    assert refused("average", tiny.run, "-n", "0").startswith("--last 0: at least one")
    RunFolder.create(tmp_path / "empty")
    assert "empty: this run has saved no checkpoint yet" in refused("average", tmp_path / "empty")
    assert "exists already; name a new folder" in refused("average", tiny.run, "-o", tmp_path)
    checkpoint = resolve(tiny.run)
    assert refused("average", checkpoint) == f"{checkpoint}: is a checkpoint, not a run; name {tiny.run}"
    alone = Path(shutil.copytree(checkpoint, tmp_path / "alone"))
    assert refused("average", alone).endswith("not a run; name the folder of a run, with its checkpoints in it")


def test_what_is_neither_a_run_nor_a_configuration(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    told = "there is no such run, checkpoint or configuration; "
    line = refused("info", tmp_path / "t.tml")
    assert line == f"{tmp_path}/t.tml: {told}name the folder of a run or of a checkpoint, or a .toml file"
    tiny.write_config(tmp_path / "t.toml")
    for name in ("t.tml", "u.toml"):
        assert refused("info", tmp_path / name) == f"{tmp_path}/{name}: {told}did you mean {tmp_path}/t.toml?"


@pytest.mark.parametrize(
    "junk", ["{", "[]", '{"checkpoint": 7}', "\xff", "[" * 100_000, '{"checkpoint": "..", "value": 1}']
)
def test_junk_for_the_best_is_told_in_one_line(refused: Refused, tiny: TinyRun, tmp_path: Path, junk: str) -> None:
    shutil.copytree(tiny.run, tmp_path / "run")
    (tmp_path / "run" / "best.json").write_text(junk, encoding="latin-1")
    told = "best.json: is damaged; delete it to use the newest checkpoint"
    assert refused("translate", tmp_path / "run").endswith(told)
