"""Names that others rely on: those of the weights in every checkpoint ever written, and those of the package.

A test that fails here has found a breaking change; what was written under the old names must still be read.
"""

import subprocess
import sys
from importlib import import_module

import pytest

import glassformer
from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from glassformer.models.registry import weights_of

SMALL = {"vocab_size": 7, "d_model": 8, "n_heads": 2, "d_ff": 12, "n_encoder_layers": 1, "n_decoder_layers": 1}

ATTENTION = ["query.weight", "key.weight", "value.weight", "output.weight"]
ATTENTION_WITH_BIAS = [
    "query.weight",
    "query.bias",
    "key.weight",
    "key.bias",
    "value.weight",
    "value.bias",
    "output.weight",
    "output.bias",
]
NORM = ["norm.weight", "norm.bias"]
FEED_FORWARD = ["inner.weight", "inner.bias", "outer.weight", "outer.bias"]


def block(path: str, attention: list[str], cross: bool) -> list[str]:
    parts = [("self_attention", attention), ("self_attention_norm", NORM)]
    parts += [("cross_attention", attention), ("cross_attention_norm", NORM)] if cross else []
    parts += [("feed_forward", FEED_FORWARD), ("feed_forward_norm", NORM)]
    return [f"{path}.{part}.{name}" for part, names in parts for name in names]


def names_of(**values: object) -> list[str]:
    return sorted(weights_of(EncoderDecoder(EncoderDecoderConfig.parse({**SMALL, **values}))))


def test_weights_of_the_paper_s_model() -> None:
    """Post-norm; the three matrices of section 3.4 are one, stored once."""
    expected = ["source_embedding.weight"]
    expected += block("encoder.layers.0", ATTENTION, cross=False) + block("decoder.layers.0", ATTENTION, cross=True)
    assert names_of(attention_bias=False) == sorted(expected)


def test_weights_of_a_model_with_everything() -> None:
    """Pre-norm, nothing shared, learned positions, every bias."""
    expected = [f"{side}_embedding{name}.weight" for side in ("source", "target") for name in ("", ".position")]
    expected += ["output_projection.weight", "output_projection.bias"]
    expected += [f"{stack}.final_norm.{name}" for stack in ("encoder", "decoder") for name in ("weight", "bias")]
    expected += block("encoder.layers.0", ATTENTION_WITH_BIAS, cross=False)
    expected += block("decoder.layers.0", ATTENTION_WITH_BIAS, cross=True)
    values = {"norm_order": "pre", "tie_embeddings": False, "positions": "learned", "output_bias": True}
    assert names_of(**values) == sorted(expected)


def test_weights_of_a_tied_model_with_learned_positions_and_no_other_change() -> None:
    """Positions that are computed add no weights."""
    assert set(names_of(positions="learned")) - set(names_of()) == {"source_embedding.position.weight"}
    assert names_of(positions="rotary") == names_of(positions="sinusoidal")


def test_weights_of_a_normalized_embedding_and_no_other_change() -> None:
    """Tied ones have one norm."""
    norms = [f"{side}_embedding.norm.{name}" for side in ("source", "target") for name in ("weight", "bias")]
    for scaled in (False, True):
        values = {"scale_embeddings": scaled, "norm_embeddings": True}
        assert set(names_of(**values)) - set(names_of()) == set(norms[:2])
        untied = names_of(**values, tie_embeddings=False)
        assert set(untied) - set(names_of(tie_embeddings=False)) == set(norms)


def test_public_names_of_the_package() -> None:
    expected = [
        "CheckpointError",
        "Classifier",
        "ConfigError",
        "CrossAttention",
        "DataError",
        "Encoder",
        "Example",
        "Filler",
        "Forecaster",
        "Generator",
        "GlassformerError",
        "ImageClassifier",
        "Tagger",
        "Trace",
        "Translation",
        "Translator",
        "View",
        "examine",
        "explain",
        "explore",
        "load",
        "parse_config",
        "read_config",
        "report",
        "save_view",
        "tap",
        "trace",
        "tracing",
        "train",
        "view",
        "view_tensor",
        "walkthrough",
    ]
    assert sorted(glassformer.__all__) == expected
    assert all(getattr(glassformer, name).__name__.removeprefix("glassformer.") == name for name in expected)


@pytest.mark.parametrize("name", ["glassformer", "glassformer.data", "glassformer.predict", "glassformer.metrics"])
def test_names_that_are_imported_later_are_there(name: str) -> None:
    package = import_module(name)
    assert set(package.__all__) <= set(dir(package))
    for each in package.__all__:
        assert getattr(package, each) is not None
    with pytest.raises(AttributeError, match=f"^module '{name}' has no attribute 'Transfomer'$"):
        _ = package.Transfomer


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, glassformer; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_translating_imports_neither_metrics_nor_image_readers() -> None:
    """They and what they import take megabytes and tenths of a second."""
    code = "import sys, glassformer; glassformer.Translator; import glassformer.predict.loading; "
    check = "sys.exit(bool({'sacrebleu', 'PIL', 'glassformer.data'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code + check], check=False).returncode == 0
