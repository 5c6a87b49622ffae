"""Two graphs compute what the model does, at lengths and batches that they were not traced with."""

import json
from pathlib import Path

import pytest
import torch

from glassformer.errors import DataError
from glassformer.interop.folder import SETTINGS_FILE
from glassformer.interop.to_onnx import export_onnx, logits_of_graphs
from glassformer.predict.translator import Translator
from interop.small_checkpoint import checkpoint


def test_the_graphs_are_the_model(tmp_path: Path) -> None:
    """One export: PyTorch takes most of ten seconds for it, however small the model."""
    model = {"n_encoder_layers": 1, "norm_order": "pre", "d_k": 4, "output_bias": True, "norm_embeddings": True}
    run = checkpoint(tmp_path / "ours", **model)
    exported = export_onnx(run, tmp_path / "theirs")
    assert exported.parity.differences["float32"] <= 1e-5
    assert json.loads((exported.path / SETTINGS_FILE).read_text())["symbols"]["</s>"] == 2
    model = Translator.load(run).models[0]
    logits = logits_of_graphs(exported.path)
    for batch, source, target in ((1, 1, 1), (3, 40, 2), (2, 5, 70)):  # also beyond max_length
        ids, mask = torch.randint(4, 50, (batch, source)), torch.ones(batch, source, dtype=torch.bool)
        mask[0, source // 2 + 1 :] = False
        words = torch.randint(4, 50, (batch, target))
        with torch.inference_mode():
            assert torch.allclose(logits(ids, mask, words), model(ids, words, mask), atol=1e-5)
    with pytest.raises(DataError, match="has no search"):
        export_onnx(run, tmp_path / "again", ["A dog."])
