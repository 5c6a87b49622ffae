"""Decoder-only models in the kernels equal the model, to the rounding of float32 or of int8."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glassformer.generate import LanguageDecodingConfig, SpecialTokens, continue_texts
from glassformer.layers.block import AddNorm
from glassformer.layers.position import Rotary
from glassformer.models.gpt import GPT, GPTConfig
from glassformer.native import Accelerated, abi, accelerate, route
from glassformer.native.beam_steps import BeamResult
from glassformer.native.decoding import NativeGPT
from glassformer.native.library import missing_reason

VOCABULARY = 60
LLAMA = {"norm": "rms", "positions": "rotary", "activation": "silu", "gated": True, "bias": False}
KINDS: dict[str, dict[str, Any]] = {
    "GPT-2": {"d_model": 128, "n_heads": 2, "d_ff": 256},
    "Llama": {**LLAMA, "attention": {"n_kv_heads": 2}, "tie_embeddings": False},
    "Llama, one head of keys": {**LLAMA, "attention": {"n_kv_heads": 1, "d_head": 18}, "d_model": 50, "d_ff": 37},
    "odd widths": {"d_model": 21, "n_heads": 3, "d_ff": 29, "n_layers": 1},
    "sinusoidal, ReLU": {"positions": "sinusoidal", "activation": "relu", "d_model": 36},
    "GEGLU, LayerNorm without bias": {"gated": True, "activation": "gelu", "bias": False},
}
PROMPTS = [[7, 3, 9, 4, 8, 5, 6], [3], [], [9, 8, 7], [4, 5]]


@pytest.fixture(autouse=True)
def _kernels() -> None:
    if reason := missing_reason():
        pytest.skip(reason)


def make(kind: str, seed: int = 0) -> GPT:
    torch.manual_seed(seed)
    sizes = {"vocab_size": VOCABULARY, "d_model": 48, "n_heads": 4, "d_ff": 64, "n_layers": 2, "max_length": 80}
    model = GPT(GPTConfig.parse({**sizes, **KINDS[kind], "dropout": 0.0})).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn_like(weight) * (0.3 if weight.dim() > 1 else 0.2) + ("norm" in name))
    return model


def batch(prompts: list[list[int]]) -> tuple[Tensor, Tensor]:
    width = max(map(len, prompts))
    source = torch.tensor([[*ids, *[0] * (width - len(ids))] for ids in prompts], dtype=torch.long).view(
        len(prompts), width
    )
    return source, torch.arange(width) < torch.tensor([[len(ids)] for ids in prompts])


def walk(model: GPT, form: Any, steps: int = 40) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits of both, for rows that branch, end and change their order; past the first room for positions."""
    rng, states = random.Random(0), [one.begin(*batch(PROMPTS)) for one in (model, form)]
    tokens = torch.full((len(PROMPTS), 1), 5)
    for step in range(steps):
        yield model.step(tokens, states[0]), form.step(tokens, states[1]).clone()
        count = 3 if step == 9 else 8 if step == 12 else len(tokens)
        rows = torch.tensor([rng.randrange(len(tokens)) for _ in range(count)])
        for state in states:
            state.select(rows)
        tokens = torch.tensor([[rng.randrange(3, VOCABULARY)] for _ in rows])


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_model(kind: str) -> None:
    model = make(kind)
    assert {one.engine for one in route(model)} == {"native"}
    for step, (expected, found) in enumerate(walk(model, accelerate(model))):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4, msg=lambda m, s=step: f"step {s}: {m}")


@torch.inference_mode()
@pytest.mark.parametrize("name", abi.ACTIVATIONS)
@pytest.mark.parametrize("gated", [True, False])
def test_logits_are_those_of_the_model_for_every_activation(name: str, gated: bool) -> None:
    KINDS["activation"] = {"activation": name, "gated": gated, "d_ff": 35}
    model = make("activation")
    for expected, found in walk(model, accelerate(model), steps=4):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["GPT-2", "Llama"])
def test_int8_logits_are_near_those_of_the_model(kind: str) -> None:
    model = make(kind)
    errors = [
        float((found - expected).square().mean().sqrt() / expected.std())
        for expected, found in walk(model, accelerate(model, precision="int8"))
    ]
    assert 0 < max(errors) < 0.2


@torch.inference_mode()
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("kind", ["GPT-2", "Llama"])
def test_logits_do_not_depend_on_the_batch_or_the_threads(kind: str, precision: Any) -> None:
    form, before = accelerate(make(kind), precision=precision), torch.get_num_threads()

    def logits(prompts: list[list[int]]) -> Tensor:
        state = form.begin(*batch(prompts))
        return torch.stack([form.step(torch.full((len(prompts), 1), token), state).clone() for token in (5, 9, 4)], 1)

    together = logits(PROMPTS)
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert torch.equal(together, logits(PROMPTS))
            for row, ids in enumerate(PROMPTS):
                assert torch.equal(together[row], logits([ids])[0])
    finally:
        torch.set_num_threads(before)


@torch.inference_mode()
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("kind", ["GPT-2", "Llama"])
def test_a_shared_beginning_changes_no_bit(kind: str, precision: Any) -> None:
    """A kept prompt of 40 tokens, of which all prompts begin with 37."""
    form = accelerate(make(kind), precision=precision)
    assert isinstance(form, NativeGPT)
    common = [random.Random(1).randrange(3, VOCABULARY) for _ in range(37)]
    prompts = [[*common, *ids] for ids in PROMPTS]
    states = form.begin(*batch(prompts)), form.begin(*batch(prompts), prefix=form.read([*common, 3, 3, 3]), shared=37)
    for token in (5, 9, 4):
        one, other = (form.step(torch.full((len(prompts), 1), token), state).clone() for state in states)
        assert torch.equal(one, other)


@torch.inference_mode()
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_empty_prompts_may_stand_behind_a_long_one(precision: Any) -> None:
    """The long one passes the layers alone, and so do the others, without a token."""
    form, prompts = accelerate(make("GPT-2"), precision=precision), [[5] * 70, [], []]
    together = form.step(torch.full((3, 1), 7), form.begin(*batch(prompts)))
    alone = [form.step(torch.tensor([[7]]), form.begin(*batch([ids]))).clone() for ids in prompts]
    assert torch.equal(together, torch.cat(alone))


@pytest.mark.parametrize("search", [{"beam_size": 1}, {"beam_size": 4, "n_best": 3}, {"sample": True, "n_best": 2}])
@pytest.mark.parametrize("kind", ["GPT-2", "Llama"])
def test_searches_find_the_same_in_the_kernels(kind: str, search: dict[str, Any]) -> None:
    symbols, config = (
        SpecialTokens(pad=0, start=1, end=2),
        LanguageDecodingConfig(max_extra=20, **{"sample": False, **search}),
    )
    prompts = [ids or [5] for ids in PROMPTS]
    for seed in range(3):
        model = make(kind, seed)
        found, expected = (continue_texts(form, prompts, symbols, config) for form in (accelerate(model), model))
        assert [[h.tokens for h in one] for one in found] == [[h.tokens for h in one] for one in expected]
        for one, other in zip(found, expected, strict=True):
            assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-3)


@torch.inference_mode()
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("kind", ["GPT-2", "Llama"])
def test_steps_at_once_find_the_same_as_step_by_step(
    kind: str, precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are taken if prompts have one length."""
    symbols = SpecialTokens(pad=0, start=1, end=2)
    config = LanguageDecodingConfig(max_extra=20, sample=False, beam_size=3, n_best=3)
    form, at_once, taken = Accelerated(make(kind, 0)).form("native", precision), NativeGPT.search_beams, list[bool]()

    def counted(*given: Any) -> BeamResult | None:
        taken.append((result := at_once(*given)) is not None)
        return result

    for prompts, equal in (([[5, 6, 7], [8, 3, 4]], True), ([[5, 6, 7, 8], [9]], False)):
        taken.clear()
        with monkeypatch.context() as patch:
            patch.setattr(NativeGPT, "search_beams", counted)
            found = continue_texts(form, prompts, symbols, config)
            patch.setattr(NativeGPT, "search_beams", lambda *_: None)
            assert found == continue_texts(form, prompts, symbols, config)
        assert taken[0] == equal


def test_hundreds_of_positions_are_read_by_several_threads() -> None:
    """Enough keys and values that the rows, and the heads of a single row, are divided among threads."""
    KINDS["wide"] = {"d_model": 256, "n_heads": 8, "max_length": 700}
    model, before = make("wide"), torch.get_num_threads()
    prompts = [[random.Random(row).randrange(3, VOCABULARY) for _ in range(600 - 7 * row)] for row in range(3)]
    try:
        torch.set_num_threads(3)
        for some in (prompts, prompts[:1]):
            form, (source, mask) = accelerate(model), batch(some)
            states, tokens = [one.begin(source, mask) for one in (model, form)], torch.full((len(some), 1), 5)
            for _ in range(3):
                expected, found = (one.step(tokens, state) for one, state in zip((model, form), states, strict=True))
                torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)
    finally:
        torch.set_num_threads(before)


def test_a_token_beyond_the_vocabulary_is_refused() -> None:
    form = accelerate(make("GPT-2"))
    for ids in ([VOCABULARY], [-1]):
        with pytest.raises(IndexError, match="outside the vocabulary"):
            form.begin(*batch([[3, *ids]]))
        state = form.begin(*batch([[3]]))
        with pytest.raises(IndexError, match="outside the vocabulary"):
            form.step(torch.tensor([ids]), state)


def test_sparse_patterns_are_decoded_by_pytorch() -> None:
    KINDS["window"] = {"attention": {"pattern": "window", "span": 4}}
    model = make("window")
    assert {(one.engine, one.reason) for one in route(model) if one.part == "decoder"} == {
        ("torch", "a sparse pattern")
    }
    assert not isinstance(accelerate(model), NativeGPT)


class Added(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


class Turned(Rotary):
    def forward(self, q: Tensor, k: Tensor, offset: Any) -> tuple[Tensor, Tensor]:
        return super().forward(q, k, 0 * offset)


class Doubled(AddNorm):
    def forward(self, x: Tensor, sublayer: Any) -> Tensor:
        return 2 * super().forward(x, sublayer)


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def cast_to(kind: type[nn.Module], name: str) -> Any:
    """Give the module ``name`` of a model another class, with the same parameters."""

    def change(model: GPT) -> None:
        model.get_submodule(name).__class__ = kind

    return change


def replace_by_noise(name: str) -> Any:
    def change(model: GPT) -> None:
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, Noise().eval())

    return change


def other_order(model: GPT) -> None:
    for wrap in model.decoder.layers[1].children():
        if isinstance(wrap, AddNorm):
            wrap.pre = False


CHANGES = {
    "linear": cast_to(Added, "decoder.layers.0.feed_forward.inner"),
    "rotary": cast_to(Turned, "decoder.layers.1.self_attention.rotary"),
    "wrap": cast_to(Doubled, "decoder.layers.0.feed_forward_norm"),
    "dropout": replace_by_noise("decoder.layers.0.self_attention_norm.dropout"),
    "dropout of the embedding": replace_by_noise("embedding.dropout"),
    "one layer in the other order": other_order,
}


@torch.inference_mode()
@pytest.mark.parametrize("change", CHANGES)
def test_a_module_of_another_class_is_computed_by_pytorch(change: str) -> None:
    model = make("Llama")
    CHANGES[change](model)
    assert {one.part: one.engine for one in route(model)}["decoder"] == "torch"
    for expected, found in walk(model, accelerate(model), steps=3):
        assert torch.equal(found, expected)


@torch.inference_mode()
def test_a_refused_step_leaves_the_state_as_it_was() -> None:
    model = make("GPT-2")
    form, states = accelerate(model), []
    for refused in (False, True):
        states.append(state := form.begin(*batch([[3, 4]])))
        if refused:
            with pytest.raises(IndexError, match="outside the vocabulary"):
                form.step(torch.tensor([[VOCABULARY]]), state)
    one, other = (form.step(torch.tensor([[5]]), state).clone() for state in states)
    assert torch.equal(one, other)


@torch.inference_mode()
def test_a_form_has_what_its_model_has() -> None:
    model = make("GPT-2")
    form = accelerate(model)
    tokens = torch.tensor([[3, 4, 5]])
    assert form.config is model.config
    assert torch.equal(form.hidden(tokens), model.hidden(tokens))
    assert torch.equal(form(tokens, sentences=tokens > 3), model(tokens, sentences=tokens > 3))


@torch.inference_mode()
def test_gaps_in_a_prompt_are_read_as_by_the_model() -> None:
    model = make("sinusoidal, ReLU")
    source, mask = torch.tensor([[5, 7, 3, 4]]), torch.tensor([[True, False, True, True]])
    found, expected = (one.step(torch.tensor([[9]]), one.begin(source, mask)) for one in (accelerate(model), model))
    torch.testing.assert_close(found, expected)
