"""CTranslate2 computes the same probabilities, and its search gives the same texts."""

from pathlib import Path
from typing import Any

import pytest
import tokenizers

import tiny_run
from glassformer.errors import ConfigError, DataError
from glassformer.interop.to_ctranslate2 import ctranslate2, export_ctranslate2
from glassformer.native.instructions import processor_features
from interop.small_checkpoint import checkpoint

MODELS: dict[str, dict[str, Any]] = {
    "post": {},
    "pre, rotary": {"norm_order": "pre", "positions": "rotary", "activation": "silu", "output_bias": True},
    "learned, untied": {"positions": "learned", "tie_embeddings": False, "activation": "gelu"},
    "gelu_tanh": {"activation": "gelu_tanh"},
    "normed, tied": {"scale_embeddings": False, "norm_embeddings": True, "positions": "learned"},
    "normed with the factor, untied": {
        "norm_embeddings": True,
        "positions": "learned",
        "norm_order": "pre",
        "tie_embeddings": False,
    },
    "two vocabularies": {"joint": False, "kind": "word", "attention_bias": False, "d_model": 15},
}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tiny_run.TinyRun:
    return tiny_run.made(tmp_path_factory)


@pytest.mark.parametrize("name", MODELS)
def test_probabilities_and_texts_are_the_same(name: str, tmp_path: Path) -> None:
    exported = export_ctranslate2(checkpoint(tmp_path / "ours", **MODELS[name]), tmp_path / "theirs")
    assert exported.parity.differences["float32"] <= 1e-5
    assert all(sample.our_output == sample.their_output for sample in exported.parity.samples)


@pytest.mark.parametrize("quantization", ["float32", "int8"])
def test_ctranslate2_search_finds_the_same_tokens(quantization: Any, tiny: tiny_run.TinyRun, tmp_path: Path) -> None:
    """Encode with ``source.json`` and decode with ``target.json``.

    A beam there ends as soon as it has enough hypotheses, so ours, where it goes on, may find a better one.
    """
    if quantization == "int8" and not processor_features() & {"avx512_vnni", "avx_vnni"}:
        pytest.skip("CTranslate2's int8 is far from its float32 on a processor without VNNI (measured on AMD Zen 3)")
    exported = export_ctranslate2(tiny.run, tmp_path / "theirs", quantization)
    theirs = ctranslate2.Translator(str(exported.path), compute_type=quantization)
    source, target = (tokenizers.Tokenizer.from_file(str(exported.path / f"{s}.json")) for s in ("source", "target"))
    texts = (tiny.folder / "validation.en").read_text().splitlines()
    tokens = [source.encode(text).tokens for text in texts]
    limits = {"max_decoding_length": 30, "min_decoding_length": 0, "return_scores": True}
    for beam in (1, 4) if quantization == "float32" else (1,):
        results = theirs.translate_batch(tokens, beam_size=beam, length_penalty=1, **limits)
        outputs = [target.decode([target.token_to_id(token) for token in one.hypotheses[0]]) for one in results]
        settings = {"beam_size": beam, "length_penalty": "average", "alpha": 1.0, "max_length": 30}
        ours = [several[0] for several in tiny.translator.hypotheses(texts, **settings, precision=quantization)]
        same = [a == b.text for a, b in zip(outputs, ours, strict=True)]
        if quantization == "int8":
            assert sum(same) >= len(texts) - 3
        elif beam == 1:
            assert all(same)
        else:
            scores = zip(same, ours, results, strict=True)
            assert all(equal or one.score > other.scores[0] for equal, one, other in scores)
            assert sum(same) > len(texts) // 4


def test_eight_bits_leave_the_run_alone(tiny: tiny_run.TinyRun, tmp_path: Path) -> None:
    first = export_ctranslate2(tiny.run, tmp_path / "int8", "int8").parity
    second = export_ctranslate2(tiny.run, tmp_path / "float32").parity
    assert 1e-5 < first.differences["int8"] < 1
    assert [sample.our_output for sample in first.samples] == [sample.our_output for sample in second.samples]
    weights = [(tmp_path / name / "model.bin").stat().st_size for name in ("int8", "float32")]
    assert weights[0] < weights[1]


@pytest.mark.parametrize(
    ("texts", "message"),
    [([" "], "no text to compare on: each is empty"), (["a " * 70], "has 141 tokens, and there are 60 positions")],
)
def test_texts_that_cannot_be_compared(texts: list[str], message: str, tmp_path: Path) -> None:
    ours = checkpoint(tmp_path / "ours", positions="learned", max_length=60)
    with pytest.raises(DataError, match=message):
        export_ctranslate2(ours, tmp_path / "theirs", texts=texts)
    assert not (tmp_path / "theirs").exists()


def test_heads_of_another_width_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.d_k=4, model\.d_v=6"):
        export_ctranslate2(checkpoint(tmp_path / "ours", d_k=4), tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()
