"""With the same weights, our GPT, BERT and ViT compute what those of Hugging Face's transformers do.

A table gives for each of our weights the name of theirs, and what has to be done to it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.interop import require
from glassformer.layers.norm import RMSNorm
from glassformer.models.bert import BERT, BERTConfig
from glassformer.models.gpt import GPT, GPTConfig
from glassformer.models.vit import ViT, ViTConfig

try:
    theirs: Any = require("transformers", "huggingface")
except ConfigError:
    pytest.skip("transformers is not installed", allow_module_level=True)

TOLERANCE = {"atol": 1e-10, "rtol": 1e-10}
Row = tuple[str, str, Callable[[Tensor], Tensor]]
"""Our name, their name, and ours from theirs."""


def same(weight: Tensor) -> Tensor:
    return weight


def linear(ours: str, other: str, change: Callable[[Tensor], Tensor] = same) -> Iterator[Row]:
    """Weight and bias; of a norm too."""
    yield f"{ours}.weight", f"{other}.weight", change
    yield f"{ours}.bias", f"{other}.bias", change


def third(index: int) -> Callable[[Tensor], Tensor]:
    """Of the one matrix that GPT-2 has for queries, keys and values; ``Conv1D`` holds it transposed."""
    return lambda weight: (weight.t() if weight.dim() == 2 else weight).chunk(3)[index]


def in_pairs(n_heads: int) -> Callable[[Tensor], Tensor]:
    """Rows of a projection: Llama turns dimension i of a head with i + d/2, we turn neighbors."""
    return lambda weight: weight.unflatten(0, (n_heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def gpt2_rows(n_layers: int) -> Iterator[Row]:
    yield "embedding.weight", "transformer.wte.weight", same
    yield "embedding.position.weight", "transformer.wpe.weight", same
    yield from linear("decoder.final_norm", "transformer.ln_f")
    for layer in range(n_layers):
        ours, other = f"decoder.layers.{layer}", f"transformer.h.{layer}"
        for index, name in enumerate(("query", "key", "value")):
            yield from linear(f"{ours}.self_attention.{name}", f"{other}.attn.c_attn", third(index))
        yield from linear(f"{ours}.self_attention.output", f"{other}.attn.c_proj", Tensor.t)
        yield from linear(f"{ours}.self_attention_norm.norm", f"{other}.ln_1")
        yield from linear(f"{ours}.feed_forward.inner", f"{other}.mlp.c_fc", Tensor.t)
        yield from linear(f"{ours}.feed_forward.outer", f"{other}.mlp.c_proj", Tensor.t)
        yield from linear(f"{ours}.feed_forward_norm.norm", f"{other}.ln_2")


def llama_rows(n_layers: int, n_heads: int, n_kv_heads: int) -> Iterator[Row]:
    yield "embedding.weight", "model.embed_tokens.weight", same
    yield "output_projection.weight", "lm_head.weight", same
    yield "decoder.final_norm.weight", "model.norm.weight", same
    parts: list[Row] = [
        ("self_attention.query", "self_attn.q_proj", in_pairs(n_heads)),
        ("self_attention.key", "self_attn.k_proj", in_pairs(n_kv_heads)),
        ("self_attention.value", "self_attn.v_proj", same),
        ("self_attention.output", "self_attn.o_proj", same),
        ("self_attention_norm.norm", "input_layernorm", same),
        ("feed_forward.gate", "mlp.gate_proj", same),
        ("feed_forward.inner", "mlp.up_proj", same),
        ("feed_forward.outer", "mlp.down_proj", same),
        ("feed_forward_norm.norm", "post_attention_layernorm", same),
    ]
    for layer in range(n_layers):
        for ours, other, change in parts:
            yield f"decoder.layers.{layer}.{ours}.weight", f"model.layers.{layer}.{other}.weight", change


def bert_rows(n_layers: int) -> Iterator[Row]:
    yield "embedding.weight", "bert.embeddings.word_embeddings.weight", same
    yield "embedding.position.weight", "bert.embeddings.position_embeddings.weight", same
    yield "embedding.segment.weight", "bert.embeddings.token_type_embeddings.weight", same
    yield from linear("embedding.norm", "bert.embeddings.LayerNorm")
    for layer in range(n_layers):
        ours, other = f"encoder.layers.{layer}", f"bert.encoder.layer.{layer}"
        for name in ("query", "key", "value"):
            yield from linear(f"{ours}.self_attention.{name}", f"{other}.attention.self.{name}")
        yield from linear(f"{ours}.self_attention.output", f"{other}.attention.output.dense")
        yield from linear(f"{ours}.self_attention_norm.norm", f"{other}.attention.output.LayerNorm")
        yield from linear(f"{ours}.feed_forward.inner", f"{other}.intermediate.dense")
        yield from linear(f"{ours}.feed_forward.outer", f"{other}.output.dense")
        yield from linear(f"{ours}.feed_forward_norm.norm", f"{other}.output.LayerNorm")


def masked_token_rows() -> Iterator[Row]:
    yield from linear("transform.dense", "cls.predictions.transform.dense")
    yield from linear("transform.norm", "cls.predictions.transform.LayerNorm")
    yield "output_projection.bias", "cls.predictions.bias", same


def class_rows() -> Iterator[Row]:
    yield from linear("classes.pooler.dense", "bert.pooler.dense")
    yield from linear("classes.projection", "classifier")


def vit_rows(n_layers: int) -> Iterator[Row]:
    yield "embedding.class_token", "vit.embeddings.cls_token", Tensor.flatten
    yield "embedding.position.weight", "vit.embeddings.position_embeddings", lambda weight: weight[0]
    patches = "vit.embeddings.patch_embeddings.projection"
    yield "embedding.projection.weight", f"{patches}.weight", lambda weight: weight.flatten(1)
    yield "embedding.projection.bias", f"{patches}.bias", same
    yield from linear("encoder.final_norm", "vit.layernorm")
    yield from linear("output_projection", "classifier")
    for layer in range(n_layers):
        ours, other = f"encoder.layers.{layer}", f"vit.layers.{layer}"
        for name, their_name in VIT_PARTS.items():
            yield from linear(f"{ours}.{name}", f"{other}.{their_name}")


VIT_PARTS = {
    "self_attention.query": "attention.q_proj",
    "self_attention.key": "attention.k_proj",
    "self_attention.value": "attention.v_proj",
    "self_attention.output": "attention.o_proj",
    "self_attention_norm.norm": "layernorm_before",
    "feed_forward.inner": "mlp.fc1",
    "feed_forward.outer": "mlp.fc2",
    "feed_forward_norm.norm": "layernorm_after",
}


SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
OURS = {"d_model": 16, "d_ff": 24, "n_layers": 2, "n_heads": 4, "dropout": 0.0}


def random_weights(other: nn.Module) -> nn.Module:
    """Weights large enough to matter, and norms and biases that are not 1 and 0."""
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter) + (parameter.dim() == 1))
    return other.double().eval()


@torch.no_grad()
def copied(ours: Any, other: nn.Module, rows: Iterator[Row]) -> Any:
    """``ours`` with the weights of ``other``, none left out on either side."""
    ours, weights, used = ours.double().eval(), dict(other.named_parameters()), set()
    own = dict(ours.named_parameters())
    for name, their_name, change in rows:
        own.pop(name).copy_(change(weights[their_name]))
        used.add(their_name)
    assert not own
    assert used == set(weights)
    return ours


def batch(length: int = 9) -> tuple[Tensor, Tensor]:
    """Rows of 9, 5 and 1 tokens."""
    return torch.randint(3, 12, (3, length)), torch.arange(length) < torch.tensor([length, 5, 1])[:, None]


def compare(ours: Tensor, other: Tensor, seen: Tensor | None = None) -> None:
    assert ours.shape == other.shape
    assert ours.dtype == other.dtype == torch.float64
    torch.testing.assert_close(*((ours, other) if seen is None else (ours[seen], other[seen])), **TOLERANCE)


@pytest.mark.parametrize("activation", [("gelu_tanh", "gelu_new"), ("gelu", "gelu"), ("relu", "relu")], ids=str)
def test_gpt_2(activation: tuple[str, str]) -> None:
    config = theirs.GPT2Config(
        vocab_size=12, n_positions=32, n_embd=16, n_layer=2, n_head=4, n_inner=24, activation_function=activation[1],
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    other = random_weights(theirs.GPT2LMHeadModel(config))
    ours = GPT(GPTConfig(vocab_size=12, max_length=32, activation=activation[0], **OURS))
    model, (tokens, seen) = copied(ours, other, gpt2_rows(2)), batch()
    compare(model(tokens, seen), other(tokens, attention_mask=seen.long()).logits, seen)
    compare(model(tokens), other(tokens).logits)


def llama(n_kv_heads: int, head_dim: int) -> tuple[Any, Any]:
    values = {"rms_norm_eps": 1e-6, "tie_word_embeddings": False, "max_position_embeddings": 32, "head_dim": head_dim}
    ropes = {"rope_type": "default", "rope_theta": 500.0}
    config = theirs.LlamaConfig(
        vocab_size=12, num_key_value_heads=n_kv_heads, rope_parameters=ropes, bos_token_id=1, eos_token_id=2, **values,
        **SIZES,
    )  # fmt: skip
    other = random_weights(theirs.LlamaForCausalLM(config))
    attention = {"n_kv_heads": n_kv_heads, "d_head": head_dim, "rope_theta": 500.0}
    kinds = {"norm": "rms", "positions": "rotary", "activation": "silu", "gated": True, "bias": False}
    ours = GPTConfig.parse(
        {"vocab_size": 12, "tie_embeddings": False, "norm_eps": 1e-6, "attention": attention, **kinds, **OURS}
    )
    return copied(GPT(ours), other, llama_rows(2, 4, n_kv_heads)), other


class Angles(nn.Module):
    """Their cosines and sines, in float64."""

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        d_head = 6
        rates = 500.0 ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head)
        angles = (position_ids[..., None].double() * rates).repeat(1, 1, 2)
        return angles.cos(), angles.sin()


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
def test_llama(n_kv_heads: int) -> None:
    """They compute norms and angles in float32 whatever the model's type; here in its own, to see the tenth digit."""
    model, other = llama(n_kv_heads, head_dim=6)
    tokens, seen = batch()
    close = {"atol": 1e-4, "rtol": 1e-4}
    torch.testing.assert_close(model(tokens, seen)[seen], other(tokens, attention_mask=seen).logits[seen], **close)
    other.model.rotary_emb = Angles()
    for path, module in list(other.named_modules()):
        if path.endswith("norm"):
            exact = RMSNorm(16, 1e-6).double()
            exact.weight = module.weight
            other.set_submodule(path, exact)
    compare(model(tokens, seen), other(tokens, attention_mask=seen.long()).logits, seen)


def bert(n_labels: int = 0, **heads: object) -> tuple[Any, BERT]:
    config = theirs.BertConfig(
        vocab_size=12, max_position_embeddings=32, num_labels=n_labels or 2, pad_token_id=0, **SIZES
    )
    return config, BERT(BERTConfig.parse({"vocab_size": 12, "max_length": 32, **heads, **OURS}))


def test_bert_and_its_masked_tokens() -> None:
    config, ours = bert()
    other = random_weights(theirs.BertForMaskedLM(config))
    model = copied(ours, other, iter([*bert_rows(2), *masked_token_rows()]))
    (tokens, seen), segments = batch(), (torch.arange(9) > 3).long().expand(3, 9).contiguous()
    kinds = {"attention_mask": seen.long(), "token_type_ids": segments}
    compare(model.hidden(tokens, seen, segments), other.bert(tokens, **kinds)[0], seen)
    compare(model(tokens, seen, segments), other(tokens, **kinds).logits, seen)
    compare(model(tokens), other(tokens).logits)


def test_bert_that_classifies() -> None:
    config, ours = bert(3, masked_tokens=False, n_classes=3)
    other = random_weights(theirs.BertForSequenceClassification(config))
    model, (tokens, seen) = copied(ours, other, iter([*bert_rows(2), *class_rows()])), batch()
    logits = other(tokens, attention_mask=seen.long()).logits
    compare(model.classes(model.hidden(tokens, seen)), logits)
    compare(model.pooled(tokens, seen), other.bert(tokens, attention_mask=seen.long())[1])


def test_bert_that_tags() -> None:
    config, ours = bert(5, masked_tokens=False, n_tags=5)
    other = random_weights(theirs.BertForTokenClassification(config))
    model = copied(ours, other, iter([*bert_rows(2), *linear("tags.projection", "classifier")]))
    tokens, seen = batch()
    compare(model.tags(model.hidden(tokens, seen)), other(tokens, attention_mask=seen.long()).logits, seen)


def test_vit() -> None:
    config = theirs.ViTConfig(image_size=(8, 12), patch_size=4, num_channels=2, num_labels=5, **SIZES)
    other = random_weights(theirs.ViTForImageClassification(config))
    ours = ViT(ViTConfig.parse({"image_size": (8, 12), "patch_size": 4, "n_channels": 2, "n_classes": 5, **OURS,
                                "norm_eps": config.layer_norm_eps}))  # fmt: skip
    model, images = copied(ours, other, vit_rows(2)), torch.randn(3, 2, 8, 12, dtype=torch.float64)
    compare(model(images), other(images).logits)
    compare(model.hidden(images), other.vit(images).last_hidden_state)
