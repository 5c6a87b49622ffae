"""Away from the CPU every attention is one call of PyTorch's fused attention, in training and inference."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.dropout import Dropout
from glassformer.layers.mask import Mask, causal_mask
from glassformer.models.bert import BERT, BERTConfig
from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from glassformer.models.gpt import GPT, GPTConfig
from glassformer.taps import record
from own_process import running
from second_device import second_device

SIZES: dict[str, Any] = {"vocab_size": 30, "d_model": 32, "n_heads": 4, "d_ff": 64}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The keyword arguments of every call of fused attention; ``cudnn``: whether cuDNN's may be chosen."""
    found: list[dict[str, Any]] = []
    fused = F.scaled_dot_product_attention

    def counted(*tensors: Tensor, **options: Any) -> Tensor:
        found.append({**options, "cudnn": torch.backends.cuda.cudnn_sdp_enabled()})
        return fused(*tensors, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    return found


@pytest.fixture
def meta() -> Iterator[None]:
    with torch.device("meta"):
        yield


def ids(length: int) -> Tensor:
    return torch.ones(3, length, dtype=torch.long, device="meta")


@pytest.mark.parametrize("training", [True, False])
def test_translation_calls_fused_attention_once_for_each_attention(
    calls: list[dict[str, Any]], meta: None, training: bool
) -> None:
    model = EncoderDecoder(EncoderDecoderConfig(**SIZES, n_encoder_layers=2, n_decoder_layers=2)).train(training)
    logits = model(ids(7), ids(5), ids(7).bool(), ids(5).bool())
    if training:
        logits.sum().backward()
    assert [call["is_causal"] for call in calls] == [False, False, True, False, True, False]
    assert [call["attn_mask"] is None for call in calls] == [False, False, True, False, True, False]
    assert {call["dropout_p"] for call in calls} == {26 / 256 if training else 0.0}


@pytest.mark.parametrize("training", [True, False])
def test_a_second_device_calls_fused_attention_once_for_each_attention(
    calls: list[dict[str, Any]], training: bool
) -> None:
    with second_device() as device:
        sizes = {**SIZES, "n_encoder_layers": 2, "n_decoder_layers": 2}
        model = EncoderDecoder(EncoderDecoderConfig(**sizes)).train(training).to(device)
        source, target = (torch.ones(3, length, dtype=torch.long).to(device) for length in (7, 5))
        logits = model(source, target, source.bool(), target.bool())
        if training:
            logits.sum().backward()
    assert len(calls) == 6
    assert {call["dropout_p"] for call in calls} == {26 / 256 if training else 0.0}


@pytest.mark.parametrize("training", [True, False])
def test_a_language_model_passes_shared_heads_to_fused_attention(
    calls: list[dict[str, Any]], meta: None, training: bool
) -> None:
    model = GPT(GPTConfig(**SIZES, n_layers=2, attention_dropout=0.5, attention={"n_kv_heads": 2})).train(training)
    model(ids(5)).sum().backward()
    assert [(call["is_causal"], call["enable_gqa"], call["attn_mask"]) for call in calls] == [(True, True, None)] * 2
    assert all(call["cudnn"] for call in calls)
    assert {call["dropout_p"] for call in calls} == {0.5 if training else 0.0}


def test_packed_rows_pass_their_mask_to_fused_attention(calls: list[dict[str, Any]], meta: None) -> None:
    model = BERT(BERTConfig(**SIZES, n_layers=1))
    model(ids(6), ids(6))
    (call,) = calls
    assert call["attn_mask"].shape == (3, 1, 6, 6)
    assert not call["cudnn"], "cuDNN's attention is wrong for a query without an allowed key"
    assert torch.backends.cuda.cudnn_sdp_enabled()
    assert not call["is_causal"]


def test_a_trace_computes_the_definition(calls: list[dict[str, Any]], meta: None) -> None:
    model = GPT(GPTConfig(**SIZES, n_layers=2))
    with record(model) as recorded:
        model(ids(5))
    assert not calls
    assert recorded["decoder.layers.1.self_attention.weights"].shape == (3, 4, 5, 5)


def test_a_dropout_of_another_kind_is_applied_by_the_definition(calls: list[dict[str, Any]], meta: None) -> None:
    x = torch.ones(1, 3, 8)
    MultiHeadAttention(8, 2, 4, 4, nn.Dropout(0.5))(x)
    assert not calls
    MultiHeadAttention(8, 2, 4, 4, Dropout(0.5))(x)
    assert len(calls) == 1


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("kind", ["none", "padding", "causal", "both", "offset"])
def test_fused_attention_is_the_definition(kind: str, n_kv_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = torch.arange(6) < torch.tensor([[6], [3]])
    query = 2 if kind == "offset" else 6
    masks = {
        "none": None,
        "padding": Mask(keys),
        "causal": causal_mask(),
        "both": Mask(keys, causal=True),
        "offset": causal_mask(4),
    }
    module = MultiHeadAttention(8, (4, n_kv_heads), 6, 6, Dropout(0.5)).double().eval()
    q = torch.randn(2, 4, query, 6, dtype=torch.float64)
    k, v = (torch.randn(2, n_kv_heads, 6, 6, dtype=torch.float64) for _ in range(2))
    with record(module):
        defined = module.attend(q, k, v, masks[kind])
    monkeypatch.setattr(Tensor, "is_cpu", False)
    torch.testing.assert_close(module.attend(q, k, v, masks[kind]), defined, atol=1e-12, rtol=1e-12)


COMPILED = """
import torch
from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig

sizes = {"vocab_size": 30, "d_model": 32, "n_heads": 4, "d_ff": 64, "n_encoder_layers": 2, "n_decoder_layers": 2}
torch.manual_seed(1)
for training in (True, False):
    model = EncoderDecoder(EncoderDecoderConfig(**sizes, dropout=0.0)).train(training)
    source, target = torch.randint(4, 30, (2, 7)), torch.randint(4, 30, (2, 5))
    pair = source, target, source > 9, target > 9
    expected = model(*pair)
    for stack in (model.encoder, model.decoder):
        stack.compile(backend="aot_eager", fullgraph=True)
    found = model(*pair)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    found.sum().backward()
    print("equal")
"""


def test_compiled_stacks_have_no_graph_break_and_compute_the_same() -> None:
    """In a process of its own: the compiler cannot trace the checks of shapes that tests install."""
    process = running("-W", "ignore", "-c", COMPILED, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = process.communicate()
    assert output == "equal\nequal\n", errors


EXPORTED = """
import torch
from glassformer.models.bert import BERT, BERTConfig
from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from glassformer.models.gpt import GPT, GPTConfig

sizes = {"vocab_size": 30, "d_model": 32, "n_heads": 4, "d_ff": 64}
text = torch.ones(2, 7, dtype=torch.int64, device="meta")
mask = text > 0
with torch.device("meta"):
    stacks = {"n_encoder_layers": 2, "n_decoder_layers": 3}
    models = [
        (EncoderDecoder(EncoderDecoderConfig(**sizes, **stacks)), (text, text, mask, mask)),
        (GPT(GPTConfig(**sizes, n_layers=3)), (text,)),
        (BERT(BERTConfig(**sizes, n_layers=2)), (text, mask)),
    ]
for model, inputs in models:
    nodes = torch.export.export(model.train(), inputs).graph.nodes
    names = [str(node.target) for node in nodes if node.op == "call_function"]
    print(*(sum(name.startswith(f"aten.{kind}") for name in names) for kind in ("scaled_dot", "softmax", "item")))
"""


def test_exported_models_have_one_fused_attention_each_and_no_other_softmax() -> None:
    """With dropout, away from the CPU. An export is one graph: a graph break or reading a value of a tensor ends it."""
    process = running("-W", "ignore", "-c", EXPORTED, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = process.communicate()
    assert output == "8 0 0\n3 0 0\n2 0 0\n", errors
