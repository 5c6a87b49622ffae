"""Which models go to which library, said as it is before any of the libraries is asked."""

from pathlib import Path

import pytest

from cli.stored_models import stored
from glassformer.errors import ConfigError
from glassformer.interop.folder import load_translator


@pytest.mark.parametrize(("task", "kind"), [("language", "gpt"), ("masked", "bert"), ("images", "vit")])
def test_what_another_library_takes_is_sent_there(task: str, kind: str, tmp_path: Path) -> None:
    run = stored(tmp_path, task)
    with pytest.raises(ConfigError) as caught:
        load_translator(run)
    told = f"model.kind={kind!r} is not exported there; encoder_decoder is; use --to huggingface"
    assert str(caught.value) == f"{run}: {told}"


def test_what_none_takes_is_not_sent_to_one_that_refuses_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_translator(stored(tmp_path, "forecasting"))
    assert str(caught.value).endswith(
        "model.kind='series' is not exported there; encoder_decoder is; "
        "--to huggingface takes encoder_decoder, gpt, bert, vit alone; use the run itself"
    )
