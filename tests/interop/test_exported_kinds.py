"""Models that CTranslate2 and ONNX do not support, with the remedy in the error."""

from pathlib import Path

import pytest

from cli.stored_models import stored
from glassformer.errors import ConfigError
from glassformer.interop.folder import load_translator


@pytest.mark.parametrize(("task", "kind"), [("language", "gpt"), ("masked", "bert"), ("images", "vit")])
def test_export_names_the_library_that_supports_the_kind(task: str, kind: str, tmp_path: Path) -> None:
    run = stored(tmp_path, task)
    with pytest.raises(ConfigError) as caught:
        load_translator(run)
    message = f"model.kind={kind!r} is not exported there; encoder_decoder is; use --to huggingface"
    assert str(caught.value) == f"{run}: {message}"


def test_export_of_a_kind_without_a_library_names_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_translator(stored(tmp_path, "forecasting"))
    assert str(caught.value).endswith(
        "model.kind='series' is not exported there; encoder_decoder is; "
        "--to huggingface takes encoder_decoder, gpt, bert, vit alone; use the run itself"
    )
