"""Text that goes on: by hand, alone and together, in pieces, from kept prompts, and past the context."""

import copy
import json
import pickle
from dataclasses import replace
from typing import Any

import pytest
import tokenizers
import torch

import glassformer.predict.generator
from glassformer.errors import ConfigError, DataError
from glassformer.models.gpt import GPT, GPTConfig
from glassformer.predict import Generator
from glassformer.predict.prompt_cache import WithPromptCache
from glassformer.text import TextConfig, train_tokenizers
from glassformer.text.pretrained import PretrainedTokenizer

PROMPTS = ["the dog ", "a", "", "the bird s"]
OPTIONS: list[dict[str, Any]] = [
    {"sample": False},
    {"beam_size": 3, "n_best": 3},
    {"sample": True, "seed": 4, "n_best": 2},
    {"sample": True, "top_k": 4, "top_p": 0.9, "min_p": 0.01, "temperature": 1.5},
    {"sample": False, "no_repeat_ngram": 2, "min_length": 6},
]


def told(generator: Generator, prompts: list[str], **options: Any) -> list[list[str]]:
    return [[one.text for one in several] for several in generator.continuations(prompts, **options)]


def test_greedy_is_the_model_by_hand_and_the_prompt_counts(generator: Generator) -> None:
    ids = generator.tokenizer.encode("the dog")
    for _ in range(8):
        ids.append(int(generator.model(torch.tensor([ids]))[0, -1, 3:].argmax()) + 3)  # no special token is likely
    found = generator.generate(["the dog"], sample=False, max_length=8)
    assert "the dog" + found[0] == generator.tokenizer.decode(ids)


@pytest.mark.parametrize("options", [{"beam_size": 2}, {"sample": False}, {"sample": True}])
def test_log_probabilities_are_the_model_s_behind_the_prompt(generator: Generator, options: dict[str, Any]) -> None:
    ((found, *_),) = generator.continuations(["the dog"], max_length=4, **options)
    read, written = generator.tokenizer.encode("the dog"), found.hypothesis.tokens
    assert len(written) == 4
    assert found.hypothesis.finish_reason == "length"
    rows = generator.model(torch.tensor([read + written[:-1]]))[0, len(read) - 1 :].log_softmax(-1)
    expected = rows.gather(1, torch.tensor(written)[:, None])[:, 0].tolist()
    assert found.hypothesis.token_log_probs == pytest.approx(expected, abs=1e-4)


def test_an_empty_prompt_begins_behind_the_end_token(generator: Generator) -> None:
    logits = generator.model(torch.tensor([[generator.tokenizer.end_id]]))[0, -1]
    (found,) = generator.continuations([""], sample=False, max_length=1)
    assert found[0].hypothesis.token_log_probs[0] == pytest.approx(logits.log_softmax(-1).max().item(), abs=1e-5)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", ["generator", "rotary"])
def test_together_as_alone_with_and_without_cache(
    request: pytest.FixtureRequest, kind: str, options: dict[str, Any]
) -> None:
    model: Generator = request.getfixturevalue(kind)
    together = told(model, PROMPTS, max_extra=9, **options)
    assert together == [told(model, [prompt], max_extra=9, **options)[0] for prompt in PROMPTS]
    assert together == told(model, PROMPTS, max_extra=9, use_cache=False, **options)
    assert len({tuple(texts) for texts in together}) > 1


@pytest.mark.parametrize("options", [{"sample": False}, {"sample": True, "seed": 2}, {"beam_size": 2}])
@pytest.mark.parametrize("kind", ["generator", "rotary"])
def test_streamed_text_is_the_generated_one(request: pytest.FixtureRequest, kind: str, options: dict[str, Any]) -> None:
    """40 tokens: a model of 16 positions goes on behind its last half."""
    model: Generator = request.getfixturevalue(kind)
    for prompt in PROMPTS:
        pieces = list(model.stream(prompt, max_length=40, **options))
        assert "".join(pieces) == model.generate([prompt], max_length=40, **options)[0]
        assert kind == "rotary" or "beam_size" in options or len(pieces) > 4


@pytest.mark.parametrize("options", OPTIONS[:3])
@pytest.mark.parametrize("kind", ["generator", "rotary"])
def test_a_kept_prompt_changes_nothing(request: pytest.FixtureRequest, kind: str, options: dict[str, Any]) -> None:
    model: Generator = request.getfixturevalue(kind)
    kept = model.with_prompt("the bird")
    prompts = ["the bird", "the bird si", "the bir", "the bird s", "the dog", ""]
    for some in (prompts[:4], prompts, prompts[:1]):
        assert told(kept, some, max_extra=6, **options) == told(model, some, max_extra=6, **options)
    assert model.kept is None


def test_a_kept_prompt_is_not_read_again(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, read = generator.with_prompt("the bird"), list[int]()
    whole = GPT.hidden
    monkeypatch.setattr(GPT, "hidden", lambda self, tokens, *rest: read.append(1) or whole(self, tokens, *rest))
    kept.generate(["the bird sin"], max_length=2, engine="torch")  # another engine reads it once
    assert read == [1]
    kept.generate(["the bird sin"], max_length=2, engine="torch")
    assert read == [1]
    generator.generate(["the bird sin"], max_length=2, engine="torch")
    assert read == [1, 1]


@pytest.mark.parametrize("write", ["in place", "through data"])
def test_a_kept_prompt_is_read_again_after_a_change_of_the_weights(rotary: Generator, write: str) -> None:
    model = replace(rotary, model=copy.deepcopy(rotary.model))
    kept, prompts = model.with_prompt("the bird"), ["the bird si"]

    def log_probs(generator: Generator) -> list[float]:
        return generator.continuations(prompts, max_extra=6, sample=False)[0][0].hypothesis.token_log_probs

    before = log_probs(kept)
    weight = model.model.get_submodule("decoder.layers.0.self_attention.value").weight
    if write == "in place":
        with torch.no_grad():
            weight.mul_(-3)
    else:
        weight.data.mul_(-3)
    kept.refresh()
    model.refresh()
    assert log_probs(kept) == log_probs(model) != before


def test_a_generator_with_a_kept_prompt_can_be_copied(generator: Generator) -> None:
    kept = generator.with_prompt("the bird")
    copied = pickle.loads(pickle.dumps(kept))
    assert told(copied, ["the bird si"], max_extra=4) == told(generator, ["the bird si"], max_extra=4)
    decodable = kept._decodable(kept.configure())
    assert isinstance(copy.copy(decodable), WithPromptCache)


@pytest.mark.parametrize("text", [{"kind": "bytes", "vocab_size": 300}, {"kind": "bpe", "byte_fallback": True}])
def test_streamed_bytes_join_to_the_generated_text(rotary: Generator, text: dict[str, Any]) -> None:
    """A random model samples many invalid bytes, and prompts are cut anywhere."""
    lines = ["the dog  runs.\n    the bird sings.\n"] * 5
    tokenizer = train_tokenizers(TextConfig.parse(text), lambda: iter(lines), lambda: iter(())).source
    torch.manual_seed(0)
    values = rotary.model.config.model_dump() | {"vocab_size": tokenizer.vocab_size}
    generator = replace(rotary, model=GPT(GPTConfig.parse(values)).eval(), tokenizer=tokenizer)
    for seed, prompt in enumerate(["the", "né à 日本", "the dog\n   "] * 5):
        (whole,) = generator.generate([prompt], sample=True, seed=seed, max_length=12)
        assert "".join(generator.stream(prompt, sample=True, seed=seed, max_length=12)) == whole
        assert tokenizer.unknown_id not in tokenizer.encode(prompt)


def test_streamed_pieces_are_whole_characters(rotary: Generator) -> None:
    """A vocabulary of bytes: é is two tokens, and half of it is no text."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    names = ["<pad>", "<s>", "</s>", "<unk>"]
    pipeline = tokenizers.Tokenizer(tokenizers.models.BPE({one: n for n, one in enumerate([*names, *alphabet])}, []))
    pipeline.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = tokenizers.decoders.ByteLevel()
    special = {name: n for n, name in enumerate(names)}
    tokenizer = PretrainedTokenizer(special, json.loads(pipeline.to_str()))
    torch.manual_seed(0)
    values = rotary.model.config.model_dump() | {"vocab_size": tokenizer.vocab_size}
    generator = replace(rotary, model=GPT(GPTConfig.parse(values)).eval(), tokenizer=tokenizer)
    told = tokenizer.encode("né à")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(glassformer.predict.generator, "stream_text", lambda *_: iter(told))
        assert list(generator.stream("x")) == ["n", "é", " ", "à"]
    assert "".join(generator.stream("x", max_length=30, seed=2)) == generator.generate(["x"], max_length=30, seed=2)[0]


def test_past_its_positions_a_text_goes_on_from_its_last_half(generator: Generator) -> None:
    """16 were trained, though there are 24."""
    assert generator.window == 16
    (found,) = generator.continuations(["the dog"], sample=False, max_length=50)
    assert len(found[0].hypothesis.tokens) == 50 == len(found[0].hypothesis.token_log_probs)
    assert found[0].hypothesis.finish_reason == "length"
    ids = generator.tokenizer.encode("the dog" + found[0].text)
    expected = generator.model(torch.tensor([ids[8:16]]))[0, -1].log_softmax(-1)[ids[16]].item()
    assert found[0].hypothesis.token_log_probs[16 - 7] == pytest.approx(expected, abs=1e-5)
    (beam,) = generator.continuations(["the dog"], beam_size=2, max_length=50)
    assert len(beam[0].hypothesis.tokens) == 16 - len("the dog")


def test_a_prompt_beyond_the_context_is_cut_with_a_warning_or_refused(generator: Generator) -> None:
    prompt = "the dog runs. the dog sleeps."
    with pytest.warns(UserWarning, match=r"prompt 1 has 29 tokens, and the model sees 16, .*; only its last 12 are"):
        cut = generator.generate([prompt], sample=False, max_length=4)
    assert cut == generator.generate([prompt[-12:]], sample=False, max_length=4)
    with pytest.raises(DataError, match=r"prompt 1 has 29 tokens, and the model sees 16, .*; shorten it to 15"):
        generator.generate([prompt], refuse_long=True)


def test_no_ngram_comes_twice_nor_from_the_prompt(generator: Generator) -> None:
    prompt = "the dog "
    (found,) = generator.generate([prompt], sample=False, no_repeat_ngram=2, max_length=30)
    pairs = [a + b for a, b in zip(prompt + found, (prompt + found)[1:], strict=False)]
    assert len(set(pairs)) == len(pairs)
    assert found


def test_where_lines_are_documents_a_prompt_begins_one(generator: Generator) -> None:
    lines, end = replace(generator, documents="line"), generator.tokenizer.end_id
    ids = [end, *generator.tokenizer.encode("the")]
    likelihood = lines.score(["the"])[0]
    logits = generator.model(torch.tensor([ids[:-1]]))[0].log_softmax(-1)
    expected = -logits.gather(1, torch.tensor(ids[1:])[:, None]).sum().item()
    assert likelihood.nll == pytest.approx(expected, abs=1e-4)
    assert likelihood.tokens == likelihood.characters == 3
    assert generator.score(["the"])[0].tokens == 2


def test_what_cannot_be_is_refused(generator: Generator) -> None:
    with pytest.raises(DataError, match="prompts is one string"):
        generator.generate("the")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"unknown key beem_size; did you mean beam_size\?"):
        generator.generate(["the"], beem_size=2)
    with pytest.raises(ConfigError, match="min_length=9 is more than the 3 new tokens; raise max_length"):
        generator.generate(["the"], min_length=9, max_extra=3)
    with pytest.raises(DataError, match="the model sees 1 token, which leaves no room to go on"):
        replace(generator, context=1).generate(["a"])
    with pytest.raises(DataError, match="a prompt of 29 tokens does not fit the 16 that the model sees"):
        generator.with_prompt("the dog runs. the dog sleeps.")
