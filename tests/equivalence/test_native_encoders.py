"""Encoders in the kernels (BERT, ViT, series) equal the model, to the rounding of float32 or of int8."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.embedding import OutputProjection, TokenEmbedding
from glassformer.models.bert import BERT, BERTConfig
from glassformer.models.series import SeriesConfig, SeriesModel
from glassformer.models.vit import ViT, ViTConfig
from glassformer.native import Accelerated, accelerate, route
from glassformer.native.library import missing_reason
from glassformer.taps import record

LENGTHS = torch.tensor([13, 1, 5, 9, 2, 13, 7])
SIZES = {"d_model": 48, "n_heads": 4, "d_ff": 70, "n_layers": 2, "dropout": 0.1}


@pytest.fixture(autouse=True)
def _kernels() -> None:
    if reason := missing_reason():
        pytest.skip(reason)


def bert(**changes: Any) -> BERT:
    return prepared(BERT(BERTConfig.parse({"vocab_size": 50, "n_classes": 3, "n_tags": 4, **SIZES, **changes})))


def vit() -> ViT:
    return prepared(
        ViT(ViTConfig.parse({"n_classes": 3, "image_size": (12, 20), "patch_size": 4, "n_channels": 1, **SIZES}))
    )


def series() -> SeriesModel:
    sizes = {**SIZES, "n_heads": 6}  # heads of 8, as in PatchTST
    return prepared(SeriesModel(SeriesConfig.parse({"n_variables": 2, "context": 64, "horizon": 5, **sizes})))


def prepared(model: Any) -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn_like(weight) * 0.2 + (name.endswith("norm.weight")))
    return model.eval()


def texts() -> tuple[Tensor, Tensor, Tensor]:
    tokens = torch.randint(3, 50, (len(LENGTHS), 13), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(13) < LENGTHS[:, None]
    return tokens, mask, (torch.arange(13) > 4).long().expand_as(tokens)


USES: dict[str, Any] = {
    "mean": (bert, lambda model: model.embed(*texts())),
    "maximum": (bert, lambda model: model.embed(*texts(), pooling="max")),
    "first token": (bert, lambda model: model.embed(*texts(), pooling="cls")),
    "classes": (bert, lambda model: model.classes(model.hidden(*texts()))),
    "tags": (bert, lambda model: model.tags(model.hidden(*texts()))[texts()[1]]),
    "masked tokens": (bert, lambda model: model(*texts())[texts()[1]]),
    "no padding": (bert, lambda model: model.hidden(texts()[0])),
    "wide": (lambda: bert(d_model=192, n_heads=6, activation="relu"), lambda model: model.embed(*texts())),
    "odd widths": (lambda: bert(d_model=21, n_heads=3, d_ff=29), lambda model: model.embed(*texts())),
    "images": (vit, lambda model: model(torch.linspace(0, 1, 720).view(3, 1, 12, 20).sin())),
    "series": (series, lambda model: model(torch.linspace(0, 9, 384).view(3, 64, 2).cos())),
}


@torch.inference_mode()
@pytest.mark.parametrize("use", USES)
def test_results_are_those_of_the_model(use: str) -> None:
    make, compute = USES[use]
    model = make()
    assert {one.part: one.engine for one in route(model)}["encoder"] == "native"
    torch.testing.assert_close(compute(accelerate(model)), compute(model), atol=2e-5, rtol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("use", ["mean", "wide", "images", "series"])
def test_int8_results_are_near_those_of_the_model(use: str) -> None:
    make, compute = USES[use]
    model = make()
    found, expected = compute(accelerate(model, precision="int8")), compute(model)
    assert not torch.equal(found, expected)
    assert float(nn.functional.cosine_similarity(found.flatten(1), expected.flatten(1)).min()) > 0.99


@torch.inference_mode()
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_results_do_not_depend_on_the_batch_or_the_threads(precision: Any) -> None:
    form, before, (tokens, mask, segments) = accelerate(bert(), precision=precision), torch.get_num_threads(), texts()
    many = [part.repeat(40, 1) for part in (tokens, mask, segments)]
    together = form.hidden(*many)
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert torch.equal(form.hidden(*many), together)
            for row, length in enumerate(LENGTHS.tolist()):
                alone = form.hidden(*(part[row : row + 1, :length] for part in (tokens, mask, segments)))
                assert torch.equal(alone[0], together[row, :length])
    finally:
        torch.set_num_threads(before)


def cut(inputs: list[Tensor]) -> list[Tensor]:
    """Without the padding after the longest text."""
    longest = int(inputs[1].sum(1).max())
    return [each[:, :longest] for each in inputs]


IMAGES = torch.linspace(0, 9, 7 * 240).view(7, 1, 12, 20).sin()
SERIES = torch.linspace(0, 9, 7 * 128).view(7, 64, 2).cos()
PARTS: dict[str, Any] = {
    "mean": (bert, lambda model, *text: model.embed(*text)),
    "maximum": (bert, lambda model, *text: model.embed(*text, pooling="max")),
    "classes": (bert, lambda model, *text: model.classes(model.hidden(*text))),
    "tags": (bert, lambda model, *text: model.tags(model.hidden(*text))),
    "masked tokens": (bert, lambda model, *text: model(*text)),
    "images": (vit, lambda model, images: model(images)),
    "series": (series, lambda model, values: model(values)),
}


@torch.inference_mode()
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("part", PARTS)
def test_each_result_of_a_batch_is_that_of_its_input_alone(part: str, precision: Any) -> None:
    make, compute = PARTS[part]
    form = accelerate(make(), precision=precision)
    inputs = {"images": (IMAGES,), "series": (SERIES,)}.get(part, texts())
    many = compute(form, *(each.repeat(40, *[1] * (each.dim() - 1)) for each in inputs))
    for row in range(7):
        for count in (1, 2, 5):
            some = [each.roll(-row, 0)[:count] for each in inputs]
            found = compute(form, *(some if len(some) == 1 else cut(some)))
            expected = many[row : row + count]
            if part in ("tags", "masked tokens"):
                expected = expected[:, : found.size(1)]
            assert torch.equal(found, expected), f"{count} from {row} on"


@torch.inference_mode()
def test_another_weight_is_multiplied_by_pytorch() -> None:
    form = accelerate(bert())
    hidden = form.hidden(*texts())
    assert form.tags(hidden).size(2) == 4
    form.tags.projection.weight = nn.Parameter(torch.ones(2, 48))
    form.tags.projection.bias = nn.Parameter(torch.zeros(2))
    torch.testing.assert_close(form.tags(hidden), hidden.sum(2, keepdim=True).expand(-1, -1, 2), atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_one_sequence_may_lie_column_by_column() -> None:
    model, x = bert(), torch.linspace(-1, 1, 13 * 48).sin().view(1, 48, 13).mT
    form = accelerate(model)
    assert not x.is_contiguous()
    for length in (13, 1):
        torch.testing.assert_close(form.encoder(x[:, :length]), model.encoder(x[:, :length]), atol=2e-5, rtol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("width", [0, 47, 96])
def test_vectors_of_another_width_are_refused(width: int) -> None:
    form = accelerate(bert())
    with pytest.raises(RuntimeError):
        form.encoder(torch.zeros(2, 3, width))


@torch.inference_mode()
def test_unknown_segments_and_tables_of_another_width_are_refused() -> None:
    tokens, mask, segments = texts()
    form = accelerate(bert())
    with pytest.raises(IndexError):
        form.embed(tokens, mask, segments + 2)
    for name in ("position", "segment"):
        form = accelerate(bert())
        table = getattr(form.embedding, name)
        table.weight = nn.Parameter(table.weight[:, :5].clone())
        with pytest.raises(RuntimeError):
            form.embed(tokens, mask, segments)


def test_gradients_numbered_texts_and_gaps_are_computed_by_the_blocks() -> None:
    model, (tokens, mask, segments) = bert(), texts()
    form = accelerate(model)
    form.embed(tokens, mask, segments).sum().backward()
    assert model.encoder.layers[0].feed_forward.inner.weight.grad is not None
    with torch.inference_mode():
        numbers = (torch.arange(13) // 5 + 1).expand_as(tokens)
        for other in (numbers, mask.flip(1)):
            assert torch.equal(form.hidden(tokens, other), model.hidden(tokens, other))


def test_a_trace_and_hooks_see_the_model_itself() -> None:
    model = bert()
    accelerated = Accelerated(model)
    assert accelerated.form("auto", "float32") is not model
    with record(model) as found:
        accelerated.form("auto", "float32").embed(*texts())
    assert "encoder.layers.0.self_attention.weights" in found
    seen: list[int] = []
    model.encoder.layers[1].register_forward_hook(lambda *_: seen.append(1))
    accelerated.form("auto", "float32").embed(*texts())
    assert seen == [1]


@torch.no_grad()
def test_changed_weights_are_refused_until_refresh() -> None:
    model = bert()
    accelerated = Accelerated(model)
    before = accelerated.form("auto", "float32").embed(*texts())
    model.encoder.layers[0].feed_forward.inner.weight.mul_(2)
    with pytest.raises(ConfigError, match="call refresh"):
        accelerated.form("auto", "float32")
    accelerated.refresh()
    after = accelerated.form("auto", "float32").embed(*texts())
    torch.testing.assert_close(after, model.embed(*texts()), atol=2e-5, rtol=1e-4)
    assert not torch.allclose(before, after)


@torch.inference_mode()
def test_rows_that_are_not_contiguous_and_other_devices_give_the_same() -> None:
    model = bert()
    form, x = accelerate(model), torch.randn(1, 48, 7).transpose(1, 2)
    torch.testing.assert_close(form.encoder(x), model.encoder(x), atol=2e-5, rtol=1e-4)
    assert form.to("meta").encoder(x.to("meta")).shape == x.shape


@torch.inference_mode()
def test_bert_embeds_in_the_kernels_unless_a_module_has_a_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = bert(), list[str]()
    form, (tokens, mask, segments) = accelerate(model), texts()
    cases: list[tuple[Any, ...]] = [(tokens, mask, segments), (tokens, mask), (tokens,)]
    expected = [model.hidden(*case) for case in cases]
    forward = TokenEmbedding.forward
    monkeypatch.setattr(TokenEmbedding, "forward", lambda *_, **__: seen.append("embedding"))
    for case, values in zip(cases, expected, strict=True):
        values = values if len(case) == 1 else values.masked_fill(~case[1][..., None], 0.0)
        torch.testing.assert_close(form.hidden(*case), values, atol=2e-5, rtol=1e-4)
    assert seen == []
    with pytest.raises(IndexError, match="a token id is outside the vocabulary"):
        form.hidden(tokens + 50)
    monkeypatch.setattr(TokenEmbedding, "forward", forward)
    parts = [("position", form.embedding.position), ("norm", form.embedding.norm), ("stack", form.encoder)]
    for name, module in parts:
        handle = module.register_forward_hook(lambda *_, name=name: seen.append(name))
        form.hidden(tokens, mask, segments)
        handle.remove()
    assert seen == [name for name, _ in parts]
    assert form.double().hidden(tokens, mask).dtype == torch.float64


@torch.inference_mode()
def test_bert_embeds_as_the_model_does_where_shapes_or_types_differ() -> None:
    model = bert()
    form, (tokens, mask, segments) = accelerate(model), texts()
    one = torch.arange(13)[None] < 9
    torch.testing.assert_close(form.hidden(tokens, one)[:, :9], model.hidden(tokens, one)[:, :9], atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(form.hidden(tokens.int(), mask), form.hidden(tokens, mask))
    with pytest.raises(IndexError):
        form.hidden(tokens, mask, segments - 1)
    form.embedding.norm = nn.Identity()
    assert not torch.allclose(form.hidden(tokens, mask), model.hidden(tokens, mask), atol=0.1)


@torch.inference_mode()
def test_hooks_traces_and_training_of_a_form_run_its_blocks() -> None:
    model, seen = bert(), list[str]()
    form, plain = accelerate(model), bert()
    handles = [
        module.register_forward_hook(lambda *_, name=name: seen.append(name))
        for name, module in (("stack", model.encoder), ("block", model.encoder.layers[0]))
    ]
    form.embed(*texts())
    assert seen == ["block", "stack"]
    for handle in handles:
        handle.remove()
    with record(form) as found:
        form.embed(*texts())
    with record(plain) as expected:
        plain.embed(*texts())
    assert list(found) == list(expected)
    form.train()
    assert not torch.equal(form.embed(*texts()), form.embed(*texts()))


def test_gradients_in_eight_bits_are_refused() -> None:
    with pytest.raises(ConfigError, match="precision=int8 has no gradients; compute under torch"):
        accelerate(bert(), precision="int8").embed(*texts())


@torch.inference_mode()
def test_a_copy_of_a_form_computes_the_same() -> None:
    model = bert()
    for copied in (copy.deepcopy(accelerate(model)), pickle.loads(pickle.dumps(accelerate(model)))):
        assert type(copied) is BERT
        assert (type(copied.output_projection), type(copied.classes.pooler.dense)) == (OutputProjection, nn.Linear)
        assert {one.part: one.engine for one in route(copied)}["embedding"] == "native"
        torch.testing.assert_close(copied.embed(*texts()), model.embed(*texts()), atol=2e-5, rtol=1e-4)


@torch.inference_mode()
def test_heads_of_an_encoder_may_share_keys_and_values() -> None:
    model = bert()
    for block in model.encoder.layers:
        block.self_attention = MultiHeadAttention(48, (4, 2), 12, 12, nn.Identity()).eval()
    assert {one.part: one.engine for one in route(model)}["encoder"] == "native"
    torch.testing.assert_close(accelerate(model).embed(*texts()), model.embed(*texts()), atol=2e-5, rtol=1e-4)
