"""COMET with a fake library: calls, scores and errors."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from glassformer.errors import ConfigError, DataError
from glassformer.metrics import corpus_scores, paired_bootstrap
from glassformer.metrics.comet import Comet

SOURCES, REFERENCES = ["ein Hund", "eine Katze"], ["a dog", "a cat"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model" / "checkpoints").mkdir(parents=True)
    (tmp_path / "model" / "checkpoints" / "model.ckpt").write_bytes(b"pickle")
    (tmp_path / "model" / "hparams.yaml").write_text("class_identifier: regression_metric\n")
    return tmp_path / "model"


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Fake of unbabel-comet 2.2.7: scores 0.9 for a sentence equal to its reference, otherwise 0.5."""
    calls: dict[str, Any] = {}

    def predict(samples: list[dict[str, str]], **options: Any) -> Any:
        calls["samples"], calls["options"] = samples, options
        scores = [0.9 if sample["mt"] == sample["ref"] else 0.5 for sample in samples]
        return SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))

    def load(checkpoint_path: str, reload_hparams: bool = False, strict: bool = False, local_files_only: bool = False):
        calls["loaded"], calls["local"] = checkpoint_path, local_files_only
        if "broken" in checkpoint_path:
            raise OSError("no tokenizer\n in the cache")
        return SimpleNamespace(predict=predict)

    module = ModuleType("comet")
    module.load_from_checkpoint, module.__version__, module.calls = load, "2.2.7", calls  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "comet", module)
    return module


def test_comet_score_is_the_mean_over_sentences(folder: Path, library: Any) -> None:
    found = corpus_scores({"comet": Comet(folder, SOURCES)}, ["a dog", "cat"], REFERENCES)["comet"]
    assert found.score == pytest.approx(0.7)
    assert found.signature == "nrefs:1|model:model|version:2.2.7"
    assert library.calls["loaded"] == str(folder / "checkpoints" / "model.ckpt")
    assert library.calls["local"] is True  # no downloads
    assert library.calls["samples"][1] == {"src": "eine Katze", "mt": "cat", "ref": "a cat"}
    assert library.calls["options"] == {"batch_size": 16, "gpus": 0, "progress_bar": False, "num_workers": 0}


def test_comet_compares_two_systems(folder: Path, library: Any) -> None:
    metric = Comet(folder, SOURCES * 20)
    found = paired_bootstrap(
        REFERENCES * 20, ["a dog", "cat"] * 20, REFERENCES * 20, samples=50, metrics={"comet": metric}
    )
    assert found["comet"].difference == pytest.approx(0.2)
    assert found["comet"].signature == "nrefs:1|model:model|seed:12345|bs:50|version:2.2.7"


def test_comet_refuses_a_folder_without_a_model(tmp_path: Path, folder: Path, library: Any) -> None:
    with pytest.raises(DataError, match=r"has no checkpoints/model\.ckpt; choose the folder of a downloaded COMET"):
        Comet(tmp_path, SOURCES)
    (folder / "hparams.yaml").unlink()
    with pytest.raises(DataError, match=r"has no hparams\.yaml"):
        Comet(folder, SOURCES)


def test_comet_reports_a_model_that_fails_to_load_in_one_line(folder: Path, library: Any) -> None:
    broken = folder.rename(folder.with_name("broken"))
    with pytest.raises(DataError) as caught:
        Comet(broken, SOURCES)
    assert str(caught.value) == f"{broken}: COMET cannot load the model (no tokenizer in the cache); choose another"


def test_comet_refuses_a_score_that_is_not_finite(folder: Path, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    metric = Comet(folder, SOURCES)
    monkeypatch.setattr(metric.model, "predict", lambda samples, **_: SimpleNamespace(scores=[0.1, float("nan")]))
    with pytest.raises(DataError, match="COMET scores sentence 2 as nan"):
        metric.counts(REFERENCES, REFERENCES)


def test_comet_names_the_extra_if_the_library_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(ConfigError, match=r"COMET is not installed; pip install 'glassformer\[comet\]'"):
        Comet(folder, SOURCES)


def test_comet_names_a_missing_dependency(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "comet.py").write_text("import package_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "comet", raising=False)
    fault = "COMET is not installed completely: module 'package_that_is_not_there' is missing; pip install"
    with pytest.raises(ConfigError, match=fault):
        Comet(folder, SOURCES)


def test_comet_scores_each_system_once(folder: Path, library: Any) -> None:
    metric = Comet(folder, SOURCES)
    first = metric.counts(["a dog", "cat"], REFERENCES)
    library.calls.clear()
    assert metric.counts(["a dog", "cat"], REFERENCES) is first
    assert not library.calls
    assert metric.counts(["dog", "cat"], REFERENCES)[:, 0].tolist() == [0.5, 0.5]
