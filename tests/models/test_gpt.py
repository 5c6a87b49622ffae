"""The decoder alone: what it may see, and decoding with keys kept, whatever shares its batch."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.errors import ConfigError, DataError
from glassformer.generate import DecodingConfig, SpecialTokens
from glassformer.generate.beam import beam
from glassformer.generate.greedy_and_sampling import greedy
from glassformer.generate.protocol import Prompt
from glassformer.layers.sparse import Pattern
from glassformer.models.gpt import GPT, GPTConfig
from glassformer.taps import record

Build = Callable[..., Any]
TOLERANCE = {"atol": 1e-11, "rtol": 1e-11}
GPT2: dict[str, Any] = {}
LLAMA: dict[str, Any] = {
    "norm": "rms",
    "positions": "rotary",
    "activation": "silu",
    "gated": True,
    "bias": False,
    "tie_embeddings": False,
    "attention": {"n_kv_heads": 2, "rope_theta": 500.0, "d_head": 6},
}
KINDS = {
    "gpt-2": GPT2,
    "llama": LLAMA,
    "sinusoidal": {"positions": "sinusoidal", "attention": {"n_kv_heads": 1}},
    "window": {"attention": {"pattern": "window", "span": 3, "n_kv_heads": 2}},
}
SPARSE = {pattern: {"attention": {"pattern": pattern, "span": 3}} for pattern in ("strided", "fixed")}
SPARSE["global"] = {"positions": "rotary", "attention": {"pattern": "window", "span": 2, "global_positions": [0, 4]}}
PROMPTS = [[5, 3, 9, 4, 11, 7], [8, 6], [], [10, 4, 3]]


def padded(prompts: list[list[int]], pad: int = 0) -> tuple[Tensor, Tensor]:
    width = max(map(len, prompts))
    tokens = torch.tensor([[*ids, *[pad] * (width - len(ids))] for ids in prompts], dtype=torch.long)
    return tokens, torch.arange(width) < torch.tensor([len(ids) for ids in prompts])[:, None]


@pytest.fixture(params=KINDS)
def model(build: Build, request: pytest.FixtureRequest) -> GPT:
    made: GPT = build("gpt", **KINDS[request.param])
    return made


def test_a_changed_token_changes_no_bit_before_it(model: GPT) -> None:
    tokens = torch.randint(3, 11, (2, 7))
    before = model(tokens)
    for place in range(7):
        changed = tokens.clone()
        changed[:, place] += 1
        after = model(changed)
        assert torch.equal(before[:, :place], after[:, :place])
        reached = (before[:, place:] != after[:, place:]).any(-1)
        assert reached.all() or model.config.attention.pattern == "window"
        assert reached[:, :5].all()  # two layers of a window of 3


@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_patterns_decode_as_they_read(build: Build, kind: str) -> None:
    """Blocks and strides count from each prompt's own first token, whatever is padded."""
    model = build("gpt", **SPARSE[kind])
    texts, state = [[*ids, 1] for ids in PROMPTS], model.begin(*padded(PROMPTS))
    for token in range(3, 12):
        logits = model.step(torch.tensor([[text[-1]] for text in texts]), state)
        for text, found in zip(texts, logits, strict=True):
            torch.testing.assert_close(found, model(torch.tensor([text]))[0, -1], **TOLERANCE)
        texts = [[*text, token] for text in texts]
    with record(model) as recorded:
        traced = model(torch.tensor(texts[:1]))
    torch.testing.assert_close(traced, model(torch.tensor(texts[:1])), **TOLERANCE)
    weights = recorded["decoder.layers.0.self_attention.weights"]
    assert (weights == 0).sum() > (torch.ones_like(weights).triu(1)).sum()


def test_all_sparse_layers_of_a_pass_share_one_dense_mask(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that includes the pattern in a trace and in decoding; in blockwise attention, one of the other conditions."""
    model, patterns, masks = build("gpt", n_layers=4, **SPARSE["strided"]), [], []
    mask, attend = Pattern.mask, Pattern.attend
    monkeypatch.setattr(Pattern, "mask", lambda *sizes: patterns.append(sizes) or mask(*sizes))
    monkeypatch.setattr(Pattern, "attend", lambda *inputs: masks.append(inputs[-1]) or attend(*inputs))
    model(torch.randint(3, 12, (1, 12)), torch.tensor([[1] * 4 + [2] * 8]))
    assert not patterns
    assert len(masks) == 4
    assert masks[0] is not None
    assert all(one is masks[0] for one in masks)
    with record(model):
        model(torch.randint(3, 12, (2, 7)))
    assert len(patterns) == 1
    model.step(torch.tensor([[3]]), model.begin(*padded(PROMPTS[:1])))
    assert len(patterns) == 2


@pytest.mark.parametrize("use_cache", [True, False])
def test_cached_logits_equal_those_of_the_full_text(model: GPT, use_cache: bool) -> None:
    """Prompts of 6, 2, 0 and 3 tokens, two hypotheses each, shuffled, past the first buffer."""
    rng, texts = random.Random(0), [[*ids, 1] for ids in PROMPTS]
    state = model.begin(*padded(PROMPTS), use_cache)
    for step in range(13):
        logits = model.step(torch.tensor([[text[-1]] for text in texts]), state)
        for text, found in zip(texts, logits, strict=True):
            torch.testing.assert_close(found, model(torch.tensor([text]))[0, -1], **TOLERANCE)
        if step == 7:
            state.select_sentences(torch.tensor([2, 0, 1]))  # rows are chosen below, all that a prompt is
        rows = [rng.randrange(len(texts)) for _ in range(2 * len(PROMPTS))]
        if step % 3 == 0:  # few move, most stay
            rows = [*range(len(texts) - 1), 0] if len(texts) == len(rows) else rows
        state.select(torch.tensor(rows))
        texts = [[*texts[row], rng.randrange(3, 12)] for row in rows]


@pytest.mark.parametrize("use_cache", [True, False])
def test_several_tokens_a_step_and_prompts_of_no_token(model: GPT, use_cache: bool) -> None:
    texts = torch.randint(3, 12, (2, 9))
    state = model.begin(texts[:, :0], texts[:, :0].bool(), use_cache)
    for start, stop in ((0, 1), (1, 4), (4, 9)):
        torch.testing.assert_close(model.step(texts[:, start:stop], state), model(texts[:, :stop])[:, -1], **TOLERANCE)


@pytest.mark.parametrize("poison", [float("nan"), 1e30])
@pytest.mark.parametrize("use_cache", [True, False])
def test_padding_after_a_prompt_has_no_effect(build: Build, use_cache: bool, poison: float) -> None:
    model = build("gpt", **LLAMA)
    tokens, seen = padded(PROMPTS)
    clean = model.begin(tokens, seen, use_cache)
    with torch.no_grad():
        model.embedding.weight[0] = poison
    dirty = model.begin(tokens, seen, use_cache)
    for _ in range(4):
        new = torch.randint(3, 12, (4, 1))
        assert torch.equal(model.step(new, dirty), found := model.step(new, clean))
        assert found.isfinite().all()


def test_poisoned_padding_changes_no_bit_of_outputs_and_gradients(model: GPT) -> None:
    tokens, seen = padded(PROMPTS)

    def run() -> list[Tensor]:
        model.zero_grad()
        hidden = model.hidden(tokens, seen)[seen]
        hidden.sin().sum().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        return [hidden.detach(), *(gradient.clone() for gradient in gradients if gradient is not None)]

    clean = run()
    assert all(tensor.isfinite().all() for tensor in clean)
    with torch.no_grad():
        model.embedding.weight[0] = torch.nan
    assert all(torch.equal(one, other) for one, other in zip(clean, run(), strict=True))


def test_documents_in_one_row_do_not_attend_to_each_other(model: GPT) -> None:
    lengths, row = [4, 1, 5], torch.randint(3, 12, (1, 12))
    numbers = torch.tensor([[1] * 4 + [2] + [3] * 5 + [0] * 2])
    packed = model(row, numbers)[0]
    for start, length in zip((0, 4, 5), lengths, strict=True):
        alone = model(row[:, start : start + length])[0]
        torch.testing.assert_close(packed[start : start + length], alone, **TOLERANCE)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_search_results_do_not_depend_on_the_batch_of_prompts(model: GPT, beam_size: int) -> None:
    symbols = SpecialTokens(pad=0, start=1, end=2)

    def search(prompts: list[list[int]], use_cache: bool) -> list[list[list[int]]]:
        limits = [[0] * len(prompts), [9] * len(prompts)]
        prompt = Prompt(*padded(prompts), [[] for _ in prompts], *limits, symbols)
        config = DecodingConfig(beam_size=beam_size, n_best=beam_size, use_cache=use_cache)
        if beam_size == 1:
            return [[one.tokens] for one in greedy(model, prompt, config)]
        return [[one.tokens for one in several] for several in beam(model, prompt, config)]

    with torch.inference_mode():
        together = search(PROMPTS, True)
        assert together == [search([ids], True)[0] for ids in PROMPTS]
        assert together == search(PROMPTS, False)


@pytest.mark.parametrize("use_cache", [True, False])
def test_learned_positions_limit_unfinished_rows_only(build: Build, use_cache: bool) -> None:
    """Of two rows the longer has ended, and stays a while; when both are at the end, there is no more."""
    model = build("gpt", max_length=8)
    prompts, texts = [[5, 3, 9, 4, 11, 7], [8, 6]], [[1], [1]]
    state = model.begin(*padded(prompts), use_cache)
    for token in range(3, 9):
        logits = model.step(torch.tensor([text[-1:] for text in texts]), state)
        torch.testing.assert_close(logits[1], model(torch.tensor([prompts[1] + texts[1]]))[0, -1], **TOLERANCE)
        texts = [[*text, token] for text in texts]
    with pytest.raises(DataError, match="are longer than max_length=8"):
        model.step(torch.tensor([[3], [3]]), state)


def test_trace_of_gpt_preserves_logits_and_names_tensors(model: GPT) -> None:
    tokens, seen = padded(PROMPTS)
    with record(model) as recorded:
        logits = model(tokens, seen)
        traced = model.step(tokens[:, :1], model.begin(tokens, seen))
    torch.testing.assert_close(logits, model(tokens, seen), **TOLERANCE)
    torch.testing.assert_close(traced, model.step(tokens[:, :1], model.begin(tokens, seen)), **TOLERANCE)
    weights = recorded.all("decoder.layers.1.self_attention.weights")[0]
    assert weights.shape == (4, 4, 6, 6)
    assert weights.triu(1).count_nonzero() == 0
    expected = {"embedding.one_hot", "embedding.tokens", "decoder.normed", "output_projection.probabilities"}
    assert expected <= set(recorded)
    gated = {f"decoder.layers.0.feed_forward.{name}" for name in ("gate", "inner", "activated", "product", "result")}
    assert not model.config.gated or gated <= set(recorded)


def test_grouped_query_attention_equals_repeated_heads(build: Build) -> None:
    few, all_heads = build("gpt", attention={"n_kv_heads": 2}), build("gpt")
    weights = dict(few.named_parameters())
    with torch.no_grad():
        for name, parameter in all_heads.named_parameters():
            shared = weights[name]
            if name.split(".")[-2] in ("key", "value"):
                shared = shared.unflatten(0, (2, 4)).repeat_interleave(2, dim=0).flatten(0, 1)
            parameter.copy_(shared)
    tokens, seen = padded(PROMPTS)
    torch.testing.assert_close(few(tokens, seen), all_heads(tokens, seen), **TOLERANCE)
    state = few.begin(tokens, seen)
    other = all_heads.begin(tokens, seen)
    torch.testing.assert_close(few.step(tokens[:, :1], state), all_heads.step(tokens[:, :1], other), **TOLERANCE)
    assert state.cache[0].self_attention.keys.size(1) == 2


def test_residual_outputs_start_smaller_the_deeper_the_model_is() -> None:
    model = GPT(GPTConfig(vocab_size=100, d_model=64, n_heads=4, d_ff=256, n_layers=8))
    block = model.decoder.layers[3]
    for weight, expected in (
        (model.embedding.weight, 0.02),
        (block.self_attention.query.weight, 0.02),
        (block.self_attention.output.weight, 0.02 / 4),
        (block.feed_forward.inner.weight, 0.02),
        (block.feed_forward.outer.weight, 0.02 / 4),
    ):
        assert weight.std().item() == pytest.approx(expected, rel=0.06)
    assert block.feed_forward.inner.bias.count_nonzero() == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n_heads": 7}, "d_model=768 is not divisible by n_heads=7; choose n_heads from 1, 2, 3, 4, 6"),
        (
            {"attention": {"n_kv_heads": 5}},
            "n_heads=12 is not divisible by attention.n_kv_heads=5; choose from 1, 2, 3",
        ),
        (
            {"positions": "rotary", "attention": {"d_head": 7}},
            "but attention.d_head=7 is odd; choose an even attention.d_head",
        ),
        ({"n_kv_heads": 4}, "unknown key n_kv_heads; did you mean attention.n_kv_heads?"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GPTConfig.parse(values)
