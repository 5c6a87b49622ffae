"""Errors for folders of transformers with missing files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.stored_models import stored
from glassformer.errors import CheckpointError, DataError
from glassformer.interop.huggingface import export_folder, import_folder
from interop.small_checkpoint import checkpoint
from tiny_tasks import made

Exported = Callable[[str], Path]


@pytest.fixture
def exported(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    def run(task: str) -> Path:
        if task == "trained":
            return made(tmp_path_factory, "masked").run
        return checkpoint(tmp_path / "run") if task == "translation" else stored(tmp_path, task)

    return lambda task: export_folder(run(task), tmp_path / "theirs").path


def refusal(folder: Path, tmp_path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        import_folder(str(folder), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("task", "file"),
    [
        ("translation", "tokenizer.json"),
        ("translation", "tokenizer_config.json"),
        ("masked", "tokenizer.json"),
        ("trained", "tokenizer_config.json"),  # another class there cannot tokenize with these entries
    ],
)
def test_without_a_tokenizer(exported: Exported, task: str, file: str, tmp_path: Path) -> None:
    """Our tokenizer is stored in the export, but the comparison needs theirs."""
    folder = exported(task)
    (folder / file).unlink()
    assert refusal(folder, tmp_path) == (
        f"{folder}: has no {file}, so AutoTokenizer cannot read a text; copy the tokenizer's files there, or save "
        f"them: AutoTokenizer.from_pretrained(MODEL).save_pretrained({str(folder)!r})"
    )


def test_import_without_settings_file_or_tokenizer_is_refused(exported: Exported, tmp_path: Path) -> None:
    folder = exported("masked")
    for name in ("tokenizer.json", "glassformer.json"):
        (folder / name).unlink()
    message = (
        "has neither tokenizer.json nor vocab.txt nor vocab.json; copy the tokenizer's files there, or save them: "
    )
    assert f"{folder}: {message}AutoTokenizer.from_pretrained(MODEL)." in refusal(folder, tmp_path)
    (folder / "vocab.json").write_text("{}")
    assert "has no tokenizer.json, so AutoTokenizer cannot read a text; copy" in refusal(folder, tmp_path)


def test_import_without_preprocessor_config_is_refused(exported: Exported, tmp_path: Path) -> None:
    folder = exported("images")
    (folder / "preprocessor_config.json").unlink()
    assert refusal(folder, tmp_path) == (
        f"{folder}: preprocessor_config.json is missing or damaged, so AutoImageProcessor cannot read a picture; "
        "copy it again"
    )


def test_half_a_file_of_weights(exported: Exported, tmp_path: Path) -> None:
    weights = exported("images") / "model.safetensors"
    for size in (100, 0, weights.stat().st_size - 4):
        weights.write_bytes(weights.read_bytes()[:size] if size else b"{")
        message = "is damaged: it is not a complete safetensors file; copy it again"
        assert f"{weights}: {message}" == refusal(weights.parent, tmp_path)


def test_import_of_a_vocabulary_without_tokenizer_asks_for_texts(exported: Exported, tmp_path: Path) -> None:
    folder = exported("language")
    for name in ("tokenizer.json", "glassformer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    (folder / "vocab.txt").write_text("hello\n")
    with pytest.raises(DataError, match=r"has no entry that is text, so none is made up to compare on; give texts$"):
        import_folder(str(folder), tmp_path / "ours")
