"""The native decoder equals the model, to the rounding of float32 or of int8."""

import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import glassformer.native.library as built
from built_kernels import copying_compiler
from glassformer.errors import ConfigError
from glassformer.generate import DecodingConfig, Ensemble, Hypothesis, SpecialTokens, generate
from glassformer.generate.candidates import NativeSearch, Search, TorchSearch
from glassformer.layers.feed_forward import ACTIVATIONS, Activation, FeedForward
from glassformer.layers.position import Rotary
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.native import Accelerated, abi, accelerate, route
from glassformer.native.beam_steps import BeamResult, BeamRules, Beams
from glassformer.native.decoding import MAX_SOURCE_TOKENS, NativeDecoder
from glassformer.native.execution import SearchKernels
from glassformer.native.library import Kernels, kernels
from glassformer.native.packed import Packed
from own_process import ENVIRONMENT

Maker = Callable[..., EncoderDecoder]
SYMBOLS = SpecialTokens(pad=0, start=1, end=2)
SOURCES = [[5, 2], [3, 8, 7, 4, 6, 5, 2], [4, 4, 2], [7, 8, 3, 2], [6, 2], [3, 8, 7, 4, 6, 5, 2], [8, 5, 3, 6, 2]]
SEARCHES = [{"beam_size": 1}, {"beam_size": 4, "n_best": 3}, {"sample": True, "n_best": 2}]
KINDS = {
    "a width that no vector divides": {"d_model": 22, "d_ff": 27},
    "the paper's": {},
    "pre-norm": {"norm_order": "pre"},
    "wide": {"d_model": 160, "n_heads": 5, "d_k": None, "d_v": None, "d_ff": 333, "vocab_size": 301},
    "learned, untied, biases": {"positions": "learned", "tie_embeddings": False, "output_bias": True},
    "no attention biases": {"attention_bias": False, "n_encoder_layers": 1, "n_decoder_layers": 3},
    "rotary": {"positions": "rotary"},
    "rotary, wide heads": {
        "positions": "rotary",
        "d_model": 80,
        "n_heads": 2,
        "d_k": 38,
        "d_v": 12,
        "norm_order": "pre",
    },
    "gelu": {"activation": "gelu", "norm_order": "pre"},
    "gelu_tanh": {"activation": "gelu_tanh"},
    "silu": {"activation": "silu", "d_ff": 21},
    "normalized embedding": {
        "scale_embeddings": False,
        "norm_embeddings": True,
        "positions": "learned",
        "tie_embeddings": False,
    },
    "scaled and normalized embedding": {"norm_embeddings": True, "positions": "learned", "norm_order": "pre"},
}


@pytest.fixture(scope="module")
def made() -> Kernels:
    if (functions := kernels()) is None:
        pytest.skip("there are no kernels here")
    return functions


def walk(model: EncoderDecoder, decoder: NativeDecoder, steps: int = 40) -> list[tuple[Tensor, Tensor]]:
    """Logits of both for hypotheses that branch, end and change their order; past the first room for positions."""
    source = torch.tensor([[5, 7, 3, 4, 2], [8, 6, 2, 0, 0], [3, 2, 0, 0, 0]])
    visible, rng = source > 0, random.Random(0)
    states = [one.begin(source, visible) for one in (model, decoder)]
    tokens, sentences, found = torch.ones(3, 1, dtype=torch.long), 3, []
    for step in range(min(steps, model.config.max_length)):
        found.append((model.step(tokens, states[0]), decoder.step(tokens, states[1]).clone()))
        k = len(tokens) // sentences
        kept = [2, 0] if step == 5 else list(range(sentences))
        sentences = len(kept)
        rows = [sentence * k + rng.randrange(k) for sentence in kept for _ in range(3)]
        for state in states:
            state.select_sentences(torch.tensor(kept))
            state.select(torch.tensor(rows))
        tokens = torch.tensor([[rng.randrange(3, 9)] for _ in rows])
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_model(make_model: Maker, made: Kernels, kind: str) -> None:
    model = make_model(**KINDS[kind]).float()
    with torch.inference_mode():
        for step, (expected, found) in enumerate(walk(model, NativeDecoder(model, made))):
            torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5, msg=lambda m, s=step: f"step {s}: {m}")


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("name", abi.ACTIVATIONS)
def test_logits_are_those_of_the_model_for_every_activation(
    make_model: Maker, made: Kernels, name: Activation, scale: float
) -> None:
    """With inputs of some thousands too, where exponentials would overflow."""
    model = make_model(d_ff=51).float()
    for module in model.modules():
        if isinstance(module, FeedForward):
            module.activation = ACTIVATIONS[name]
            with torch.no_grad():
                module.inner.bias.copy_(torch.linspace(-scale, scale, 51))
    with torch.inference_mode():
        for expected, found in walk(model, NativeDecoder(model, made)):
            torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["wide", "pre-norm", "learned, untied, biases"])
def test_int8_logits_are_within_a_fortieth(make_model: Maker, made: Kernels, kind: str) -> None:
    """Relative to the spread of the logits; nearly all of it is of the products, not of the keys and values."""
    model = make_model(**KINDS[kind]).float()
    with torch.inference_mode():
        pairs = walk(model, NativeDecoder(model, made, int8=True))
    errors = torch.stack([(found - expected).square().mean().sqrt() / expected.std() for expected, found in pairs])
    assert 0 < errors.max() < 0.025


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_searches_find_the_same_in_the_kernels(make_model: Maker, made: Kernels, search: dict[str, int]) -> None:
    for seed in range(4):
        model = make_model(seed, tie_embeddings=False, n_encoder_layers=1, n_decoder_layers=1).float()
        with torch.no_grad():
            model.output_projection.weight *= 3  # so that choices matter, and end at different lengths
        config = DecodingConfig(max_extra=9, **search)
        expected = generate(model, SOURCES, SYMBOLS, config)
        found = generate(NativeDecoder(model, made), SOURCES, SYMBOLS, config)
        assert [[h.tokens for h in one] for one in found] == [[h.tokens for h in one] for one in expected]
        for one, other in zip(flat(found), flat(expected), strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-4)


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_no_batch_has_more_source_tokens_than_are_of_use(
    make_model: Maker, made: Kernels, monkeypatch: pytest.MonkeyPatch, search: dict[str, int], members: int
) -> None:
    """Those of all draws together, which are read each; without a cache as many as are allowed."""
    models = [NativeDecoder(make_model(seed).float(), made) for seed in range(members)]
    read, begin = list[int](), NativeDecoder.begin
    monkeypatch.setattr(NativeDecoder, "begin", lambda self, x, *rest: read.append(x.numel()) or begin(self, x, *rest))
    searched = models[0] if members == 1 else Ensemble(models)
    for use_cache in (True, False):
        config = DecodingConfig(max_length=1, batch_tokens=10_000, use_cache=use_cache, **search)
        read.clear()
        assert len(generate(searched, [[5, 3, 8, 2]] * 600, SYMBOLS, config)) == 600
        draws = 2 if config.sample else 1
        assert sum(read) == 2400 * draws * members
        assert max(read) == (MAX_SOURCE_TOKENS if use_cache else 2400 * draws)


def flat(found: list[list[Hypothesis]]) -> list[Hypothesis]:
    return [hypothesis for one in found for hypothesis in one]


@pytest.mark.parametrize("int8", [False, True])
def test_how_many_cores_there_are_changes_no_bit(make_model: Maker, made: Kernels, int8: bool) -> None:
    """Wide enough that they share a product: 131,072 weights and more."""
    sizes = {"d_model": 256, "n_heads": 4, "d_k": None, "d_v": None, "d_ff": 512, "vocab_size": 601}
    model = NativeDecoder(make_model(**sizes).float(), made, int8)
    source, before, found = torch.randint(3, 9, (17, 6)), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            with torch.inference_mode():
                state = model.begin(source, source > 0)
                found.append([model.step(torch.full((17, 1), token), state).clone() for token in (1, 4, 5)])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for some in found[1:] for one, other in zip(found[0], some, strict=True))


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("kind", ["wide", "gelu"])
def test_row_bits_do_not_depend_on_the_batch(make_model: Maker, made: Kernels, kind: str, int8: bool) -> None:
    model = NativeDecoder(make_model(**KINDS[kind]).float(), made, int8)
    rows = 109  # more than go through the kernels at once
    source = torch.randint(3, 9, (rows, 6))
    visible = torch.arange(6) < torch.randint(1, 7, (rows, 1))
    with torch.inference_mode():
        state = model.begin(source, visible)
        together = [model.step(torch.full((rows, 1), token), state).clone() for token in (1, 4, 5)]
        for row in range(rows):
            length = int(visible[row].sum())
            state = model.begin(source[row : row + 1, :length], visible[row : row + 1, :length])
            for token, logits in zip((1, 4, 5), together, strict=True):
                assert torch.equal(model.step(torch.tensor([[token]]), state)[0], logits[row])


@pytest.mark.parametrize("vocab", [1, 7, 128, 129, 1000, 8000])
def test_candidates_equal_a_full_sort(made: Kernels, vocab: int) -> None:
    logits = (3 * torch.randn(9, vocab)).round(decimals=1)  # with many equal ones: the first of them goes before
    logits[1, : vocab // 2] = -torch.inf
    logits[2, vocab // 3] = 300.0
    search = SearchKernels(made)
    torch.testing.assert_close(search.log_sum(logits), logits.double().logsumexp(-1).float(), rtol=1e-6, atol=1e-6)
    for k in (1, 4, 10):
        values, ids = search.best(logits, k)
        expected = logits.sort(dim=-1, descending=True, stable=True)
        assert torch.equal(values, expected.values[:, :k])
        assert torch.equal(ids, expected.indices[:, :k])


@pytest.mark.parametrize("beam_size", [1, 3, 5])
@pytest.mark.parametrize(("live", "vocab"), [(1, 1), (1, 2), (1, 300), (3, 2), (3, 9), (5, 300), (5, 8000)])
def test_a_step_of_beam_search_is_a_sort_of_all_extensions(
    made: Kernels, live: int, vocab: int, beam_size: int
) -> None:
    """In the kernels and in PyTorch, where equal ones may come in another order. The second sentence is decided."""
    logits = 3 * torch.randn(4 * live, vocab)
    logits[:, -1] = 8.0  # the end, which is among the best
    totals = (-torch.rand(4, live)).sort(descending=True).values
    totals[1] = -torch.inf
    totals[2, 1:] = -torch.inf
    normalizer = logits.logsumexp(-1) - 1  # as if rounded: no token gains more than a probability of 1
    gained = (logits - normalizer[:, None]).clamp(max=0).view(4, live, vocab)
    every = (totals[:, :, None] + gained).flatten(1)
    count = min(2 * beam_size, live * min(2 * beam_size, vocab))
    searches: list[Search] = [NativeSearch(SearchKernels(made)), TorchSearch()]
    for search in searches:
        step = search.extensions(logits.clone(), normalizer, totals, vocab - 1, beam_size)
        found, going = step.candidates, step.continuing
        torch.testing.assert_close(found.totals, every.sort(descending=True).values[:, :count])
        for some in step[:2]:
            place = some.parents * vocab + some.tokens
            assert all(len(set(row)) == len(row) for row in place.tolist())
            torch.testing.assert_close(some.log_probs, gained.flatten(1).gather(1, place))
            alive = some.totals > -torch.inf
            torch.testing.assert_close(some.totals[alive], every.gather(1, place)[alive])
        ends = found.tokens == vocab - 1
        for row in range(4):  # those that do not end, in their order; then, dead, some that do
            onward = found.totals[row][~ends[row]].tolist()
            onward += [-math.inf] * ends[row].sum().item()
            assert going.totals[row].tolist() == onward[: min(beam_size, count)]
        assert step.some_end == bool((ends & (found.totals > -torch.inf)).any())


@pytest.mark.parametrize("int8", [False, True])
def test_nan_is_preserved(make_model: Maker, made: Kernels, int8: bool) -> None:
    model = make_model().float()
    with torch.no_grad():
        model.encoder.layers[0].feed_forward.inner.weight[0, 0] = math.nan
    decoder = NativeDecoder(model, made, int8)
    state = decoder.begin(torch.tensor([[5, 2]]), torch.ones(1, 2, dtype=torch.bool))
    assert decoder.step(torch.tensor([[1]]), state).isnan().all()


def test_a_model_that_the_kernels_do_not_decode_is_searched_by_pytorch(make_model: Maker, made: Kernels) -> None:
    odd = make_model().float()
    odd.decoder.layers[0].feed_forward_norm.norm = nn.Identity().eval()
    for model, reason in (
        (make_model(), "float32 weights, not float64"),
        (odd, "no kernel for Identity"),
    ):
        routes = {one.part: one for one in route(model)}
        assert routes["decoder"].engine == "torch"
        assert reason in routes["decoder"].reason
        assert type(accelerate(model)) is EncoderDecoder
        with pytest.raises(
            ConfigError, match=rf"precision=int8 is not possible: .*{reason}.*; choose precision=float32"
        ):
            accelerate(model, precision="int8")
        with pytest.raises(ConfigError, match=rf"engine=native is not possible: .*{reason}.*; choose .* engine=auto"):
            accelerate(model, engine="native")
    with pytest.raises(ConfigError, match=r"precision=int8 is not possible: engine=torch"):
        accelerate(make_model().float(), "torch", "int8")


@pytest.mark.parametrize("scaled", [False, True])
def test_a_normalized_embedding_is_decoded_as_by_pytorch(make_model: Maker, made: Kernels, scaled: bool) -> None:
    model = make_model(scale_embeddings=scaled, norm_embeddings=True, positions="learned").float()
    config = DecodingConfig(max_extra=9)
    found = [flat(generate(accelerate(model, engine), SOURCES, SYMBOLS, config)) for engine in ("native", "torch")]
    assert [one.tokens for one in found[0]] == [one.tokens for one in found[1]]
    assert [one.score for one in found[0]] == pytest.approx([one.score for one in found[1]], abs=1e-5)


def test_missing_compiler_is_a_warning(make_model: Maker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GLASSFORMER_ENGINE", "jit")
    for compiler, reason in (("", "no C.. compiler is found"), ("false", "cannot compile the kernels")):
        monkeypatch.setenv("PATH", "/bin" if compiler else str(tmp_path))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setenv("CXX", compiler)
        with pytest.warns(UserWarning, match=reason):
            assert isinstance(built.load(), str)
    assert not list(tmp_path.glob("**/*.so"))


def test_narrow_vectors_compute_the_same_logits(
    make_model: Maker, made: Kernels, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same sources for another instruction set, where this machine can run them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GLASSFORMER_INSTRUCTIONS", "x86-64-v3")
    try:
        narrow = built.load()
    except ConfigError:
        pytest.skip("no narrower vectors here")
    assert isinstance(narrow, Kernels)
    if narrow.panel_size == made.panel_size:
        pytest.skip("no narrower vectors here")
    assert narrow.arithmetic != made.arithmetic
    model = make_model(**KINDS["wide"]).float()
    with torch.inference_mode():
        for expected, found in walk(model, NativeDecoder(model, narrow), steps=4):
            torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


def test_bfloat16_is_refused_on_a_cpu(make_model: Maker) -> None:
    with pytest.raises(ConfigError, match=r"precision=bfloat16 is slower .*; choose precision=float32"):
        accelerate(make_model().float(), precision="bfloat16")


def test_an_id_beyond_the_vocabulary_is_refused(make_model: Maker, made: Kernels) -> None:
    decoder = NativeDecoder(make_model().float(), made)
    visible = torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(IndexError, match="outside the vocabulary"):
        decoder.begin(torch.tensor([[99, 2]]), visible)
    state = decoder.begin(torch.tensor([[5, 2]], dtype=torch.int32), visible)
    with pytest.raises(IndexError, match="outside the vocabulary"):
        decoder.step(torch.tensor([[-1]]), state)


def test_a_model_with_a_hook_runs_in_pytorch(make_model: Maker, made: Kernels) -> None:
    model = make_model().float()
    accelerated = Accelerated(model)
    assert isinstance(accelerated.form("auto", "float32"), NativeDecoder)
    hook = model.decoder.layers[0].register_forward_hook(lambda *_: None)
    assert accelerated.form("auto", "float32") is model
    for engine, precision in (("native", "float32"), ("auto", "int8")):
        with pytest.raises(ConfigError, match="is not possible: the model has hooks; remove them"):
            accelerated.form(engine, precision)
    hook.remove()
    assert isinstance(accelerated.form("auto", "float32"), NativeDecoder)


def test_an_unknown_activation_is_named(make_model: Maker, made: Kernels) -> None:
    model = make_model().float()
    model.encoder.layers[1].feed_forward.activation = torch.tanh
    assert {one.reason for one in route(model) if one.part != "search"} == {"the activation tanh"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_the_default_type_of_numbers_does_not_matter(make_model: Maker, made: Kernels, dtype: torch.dtype) -> None:
    decoder = NativeDecoder(make_model(positions="learned").float(), made)
    found = []
    for default in (torch.float32, dtype):
        torch.set_default_dtype(default)
        try:
            state = decoder.begin(torch.tensor([[5, 2]]), torch.ones(1, 2, dtype=torch.bool))
            found.append(decoder.step(torch.tensor([[1]]), state).clone())
        finally:
            torch.set_default_dtype(torch.float32)
    assert torch.equal(*found)


def test_nan_among_the_logits_comes_last(made: Kernels) -> None:
    for seed in range(200):
        torch.manual_seed(seed)
        logits = torch.randn(3, 914)
        logits[torch.rand(3, 914) < 0.3] = torch.nan
        values, ids = SearchKernels(made).best(logits, 4)
        expected = logits.nan_to_num(nan=-torch.inf).sort(dim=-1, descending=True, stable=True)
        assert torch.equal(values, expected.values[:, :4])
        assert torch.equal(ids, expected.indices[:, :4])


def test_a_damaged_library_is_built_again(made: Kernels, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = copying_compiler(tmp_path)  # before the cache is another one, which would get this library too
    monkeypatch.setenv("GLASSFORMER_ENGINE", "jit")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", str(compiler))
    assert isinstance(built.load(), Kernels)
    (library,) = tmp_path.glob("glassformer/**/*.so")
    whole = library.read_bytes()
    for damaged in (whole[:30_000], bytes([whole[0] ^ 1]) + whole[1:], b""):
        library.unlink()  # the loaded one stays as it is
        library.write_bytes(damaged)
        assert isinstance(built.load(), Kernels)
        assert len(library.read_bytes()) == len(whole)


def test_jit_without_a_cache_leaves_no_files(tmp_path: Path) -> None:
    program = "from glassformer.native.library import kernels; assert kernels() is None"
    nowhere = {"GLASSFORMER_ENGINE": "jit", "XDG_CACHE_HOME": "/dev/null", "TMPDIR": str(tmp_path), "CXX": "false"}
    said = subprocess.run(
        [sys.executable, "-c", program], env=ENVIRONMENT | nowhere, capture_output=True, text=True, check=True
    )
    assert "glassformer runs in PyTorch, which is slower, since" in said.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("factor", "error"), [(1, 0.012), (10, 0.026), (100, 0.055)])
@pytest.mark.parametrize("where", ["weights", "inputs"])
def test_outliers_cost_eight_bits_no_more_than_the_documentation_says(
    made: Kernels, where: str, factor: int, error: float
) -> None:
    x, linear = torch.randn(64, 512), torch.nn.Linear(512, 512, bias=False)
    with torch.no_grad():
        torch.nn.init.normal_(linear.weight)
        (linear.weight if where == "weights" else x)[:, 7] *= factor
        packed, found, expected = Packed(made, int8=True), x.new_empty(64, 512), linear(x)
    made.apply_linear(packed.linear(linear), x.data_ptr(), 64, found.data_ptr(), 1)
    assert (found - expected).norm() < error * expected.norm()


@pytest.mark.parametrize("rows", [[0], [0, 1, 2, 0]])
def test_hypotheses_that_are_not_as_many_for_each_sentence_are_refused(
    make_model: Maker, made: Kernels, rows: list[int]
) -> None:
    decoder = NativeDecoder(make_model().float(), made)
    state = decoder.begin(torch.tensor([[5, 2], [3, 2], [4, 2]]), torch.ones(3, 2, dtype=torch.bool))
    decoder.step(torch.ones(3, 1, dtype=torch.long), state)
    state.select(torch.tensor(rows))
    with pytest.raises(ValueError, match=r"\d tokens for \d hypotheses of 3 sentences; select as many"):
        decoder.step(torch.ones(len(rows), 1, dtype=torch.long), state)


def test_extensions_of_too_few_logits_are_refused(made: Kernels) -> None:
    with pytest.raises(ValueError, match="5 rows of logits for 2 sentences of 3 hypotheses"):
        SearchKernels(made).extend(torch.randn(5, 9), torch.zeros(5), torch.zeros(2, 3), 2, 2)


def test_strided_normalizers_extend_as_contiguous_ones(made: Kernels) -> None:
    logits, normalizers, totals = torch.randn(6, 9), torch.randn(12), torch.zeros(2, 3)
    found, expected = (
        SearchKernels(made).extend(logits, each, totals, 2, 2)[0]
        for each in (normalizers[::2], normalizers[::2].contiguous())
    )
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("vocabulary", [0, 5])
def test_the_best_none_are_none(made: Kernels, vocabulary: int) -> None:
    values, ids = SearchKernels(made).best(torch.randn(3, vocabulary), 0)
    assert values.shape == ids.shape == (3, 0)


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["the paper's", "rotary"])
def test_gaps_in_the_source_are_skipped_as_by_the_model(make_model: Maker, made: Kernels, kind: str) -> None:
    model = make_model(**KINDS[kind]).float()
    source, visible = torch.tensor([[5, 7, 3, 2]]), torch.tensor([[True, False, True, True]])
    found, expected = (
        one.step(torch.tensor([[1]]), one.begin(source, visible)) for one in (NativeDecoder(model, made), model)
    )
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


@torch.inference_mode()
def test_encoder_and_decoder_have_rotary_tables_of_their_own(make_model: Maker, made: Kernels) -> None:
    model = make_model(positions="rotary").float()
    for block in model.encoder.layers:
        block.self_attention.rotary = Rotary(block.self_attention.rotary.d_head, 3.0).eval()
    for expected, found in walk(model, NativeDecoder(model, made), steps=3):
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


def test_a_decoder_without_cross_attention_is_computed_by_pytorch(make_model: Maker, made: Kernels) -> None:
    model = make_model().float()
    model.decoder.layers[0].cross_attention = model.decoder.layers[0].cross_attention_norm = None
    routes = {one.part: one.reason for one in route(model)}
    assert routes["decoder"] == "blocks with and without cross-attention"


STEPS: dict[str, dict[str, Any]] = {
    "beam 4": {},
    "several results": {"n_best": 3},
    "beam 2, patient": {"beam_size": 2, "patience": 0},
    "minimum length": {"min_length": 6},
    "maximum length": {"max_length": 3},
    "no steps at once": {"no_repeat_ngram": 2},
}


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("settings", STEPS)
def test_steps_at_once_find_the_same_as_step_by_step(
    make_model: Maker, made: Kernels, monkeypatch: pytest.MonkeyPatch, settings: str, int8: bool
) -> None:
    model = make_model(vocab_size=40).float()
    with torch.no_grad():  # of random weights most texts would end at once, or never
        model.output_projection.weight.mul_(4)
    form, taken = NativeDecoder(model, made, int8), list[int]()
    config = DecodingConfig(**{"beam_size": 4, "max_extra": 30, **STEPS[settings]})
    at_once = NativeDecoder.search_beams

    def counted(*given: Any) -> BeamResult | None:
        result = at_once(*given)
        taken.append(0 if result is None else result.beams.tokens.size(2) - given[2].tokens.size(2))
        return result

    monkeypatch.setattr(NativeDecoder, "search_beams", counted)
    found = [generate(form, sources, SYMBOLS, config) for sources in (SOURCES, SOURCES[:1], SOURCES[1:2])]
    assert (max(taken, default=0) > 1) == (settings != "no steps at once")
    monkeypatch.setattr(NativeDecoder, "search_beams", lambda *_: None)
    assert found == [generate(form, sources, SYMBOLS, config) for sources in (SOURCES, SOURCES[:1], SOURCES[1:2])]


def test_a_forbidden_token_outside_the_vocabulary_is_refused_by_the_kernel(make_model: Maker, made: Kernels) -> None:
    """A search with a negative one goes step by step, as where padding has no token."""
    form = NativeDecoder(make_model(vocab_size=40).float(), made)
    symbols, config = SpecialTokens(pad=-1, start=1, end=2), DecodingConfig(beam_size=4)
    assert len(generate(form, SOURCES[:1], symbols, config)[0]) == 1
    with torch.inference_mode():
        for token in (-1, 40):
            state = form.begin(torch.tensor([[5, 2]]), torch.ones(1, 2, dtype=torch.bool))
            form.step(torch.ones(1, 1, dtype=torch.long), state)
            state.select(torch.zeros(4, dtype=torch.long))
            beams = Beams(torch.full((1, 4, 2), 5), torch.zeros(1, 4, 2), torch.zeros(1, 4))
            with pytest.raises(IndexError):
                form.search_beams(state, beams, BeamRules(2, torch.tensor([0, token])), 3)
            assert len(state.keys_values) == 1


def test_beams_of_two_shapes_are_refused_and_the_best_totals_are_the_greatest(make_model: Maker, made: Kernels) -> None:
    form, rules = NativeDecoder(make_model(vocab_size=40).float(), made), BeamRules(2, torch.tensor([0]))
    with torch.inference_mode():
        for sentences in (1, 0):
            state = form.begin(torch.full((sentences, 2), 5), torch.ones(sentences, 2, dtype=torch.bool))
            form.step(torch.ones(sentences, 1, dtype=torch.long), state)
            state.select(torch.zeros(4 * sentences, dtype=torch.long))
            shape = sentences, 4, 2
            beams = Beams(torch.full(shape, 5), torch.zeros(shape), torch.zeros(shape[:2]))
            if sentences:
                with pytest.raises(ValueError, match="differ in shape"):
                    form.search_beams(state, beams._replace(log_probs=torch.zeros(1, 4, 1)), rules, 3)
            result = form.search_beams(state, beams, rules, 3)
            assert result is not None and len(result.normalizers) == sentences
            assert result.best == result.beams.total.amax(1).tolist()
