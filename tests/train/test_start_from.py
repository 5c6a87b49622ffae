"""``train.start_from``: omitted sizes come from the origin run."""

from pathlib import Path
from typing import Any

import pytest

from glassformer.errors import ConfigError
from glassformer.storage.checkpoint import load_checkpoint
from glassformer.storage.run_folder import RunFolder, resolve
from glassformer.train import RunConfig, Started, parse_config, read_config
from tiny_run import TinyRun, run_to_the_end
from tiny_tasks import TinyTask, made


def settings(tiny: TinyTask, begun: Path, **model: Any) -> RunConfig:
    """Configuration of two steps from ``begun``; [model] has only ``model``."""
    values = {name: section for name, section in tiny.values.items() if name != "model"}
    values["train"] = {**values["train"], "start_from": str(begun), "max_steps": 2, "save_every": 1}
    return parse_config(values | ({"model": model} if model else {}))


def newest(run: Path) -> dict[str, Any]:
    model: dict[str, Any] = load_checkpoint(RunFolder.open(run).checkpoints()[-1]).config["model"]
    return model


@pytest.fixture
def masked(tmp_path_factory: pytest.TempPathFactory) -> TinyTask:
    return made(tmp_path_factory, "masked")


@pytest.fixture
def classification(tmp_path_factory: pytest.TempPathFactory) -> TinyTask:
    return made(tmp_path_factory, "classification")


def test_start_from_takes_omitted_sizes(masked: TinyTask, classification: TinyTask, tmp_path: Path) -> None:
    started, *_ = run_to_the_end(settings(classification, masked.run), tmp_path / "run")
    assert isinstance(started, Started)
    before, after = newest(masked.run), newest(tmp_path / "run")
    taken = ("d_model", "n_heads", "d_ff", "n_layers", "max_length", "activation")
    assert [after[name] for name in taken] == [before[name] for name in taken]
    assert not after["masked_tokens"]
    assert after["n_classes"] == 2
    sizes, weights = started.accounts[-2:]
    assert sizes.startswith(
        f"train.start_from={resolve(masked.run)}: [model] takes d_model={before['d_model']}, n_heads="
    )
    assert "21 of 25 weights are taken; classes.pooler.dense.weight, " in weights


def test_start_from_run_is_resumed_with_the_same_configuration(
    masked: TinyTask, classification: TinyTask, tmp_path: Path
) -> None:
    """It still omits [model], and the origin run may be gone."""
    config = settings(classification, masked.run)
    run_to_the_end(config, tmp_path / "run")
    longer = config.model_copy(update={"train": config.train.model_copy(update={"max_steps": 3})})
    assert run_to_the_end(longer, tmp_path / "run", resume=True)[-1].step == 3
    written = read_config(tmp_path / "run" / "config.toml", ["train.max_steps=4"])
    assert written.model.d_model == newest(masked.run)["d_model"]  # type: ignore[attr-defined]
    assert run_to_the_end(written, tmp_path / "run", resume=True)[-1].step == 4


def test_start_from_keeps_settings_of_the_configuration(
    masked: TinyTask, classification: TinyTask, tmp_path: Path
) -> None:
    run_to_the_end(settings(classification, masked.run, max_length=40, n_classes=2), tmp_path / "run")
    assert newest(tmp_path / "run")["max_length"] == 40
    with pytest.raises(ConfigError, match=r"^model\.n_heads=4, but the weights of .* with n_heads=2; set it to that$"):
        run_to_the_end(settings(classification, masked.run, n_heads=4), tmp_path / "other")


def test_start_from_does_not_take_dropout(masked: TinyTask, classification: TinyTask, tmp_path: Path) -> None:
    run_to_the_end(settings(classification, masked.run), tmp_path / "run")
    assert newest(masked.run)["dropout"] != 0.1
    assert newest(tmp_path / "run")["dropout"] == 0.1


def test_start_from_refuses_settings_that_contradict_the_data(
    masked: TinyTask, classification: TinyTask, tmp_path: Path
) -> None:
    config = settings(classification, masked.run)
    longest = newest(masked.run)["max_length"]
    data = config.data.model_copy(update={"max_length": longest + 1})
    with pytest.raises(
        ConfigError, match=rf"data\.max_length={longest + 1} is more than the model\.max_length={longest}"
    ):
        run_to_the_end(config.model_copy(update={"data": data}), tmp_path / "run")


@pytest.mark.parametrize("task", ["language", "images", "forecasting"])
def test_start_from_works_for_every_task(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, task: str) -> None:
    tiny = made(tmp_path_factory, task)
    started, *_ = run_to_the_end(settings(tiny, tiny.run), tmp_path / "run")
    assert isinstance(started, Started)
    own = {"dropout", "attention_dropout", "head_dropout", "attention"}
    before, after = newest(tiny.run), newest(tmp_path / "run")
    assert {k: v for k, v in after.items() if k not in own} == {k: v for k, v in before.items() if k not in own}
    assert "begin" not in started.accounts[-1]


def test_start_from_works_for_translation(tiny: TinyRun, tmp_path: Path) -> None:
    values = tiny.settings({"train.start_from": str(tiny.run), "train.max_steps": 1})
    del values["model"]
    started, *_ = run_to_the_end(parse_config(values), tmp_path / "run")
    assert isinstance(started, Started)
    expected = "[model] takes d_model=16, n_heads=2, d_ff=32, n_encoder_layers=1, n_decoder_layers=2"
    assert started.accounts[-2] == f"train.start_from={resolve(tiny.run)}: {expected}"
    assert newest(tmp_path / "run") == newest(tiny.run)
