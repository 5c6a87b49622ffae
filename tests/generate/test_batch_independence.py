"""What a sentence becomes does not depend on what is decoded beside it."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from threading import Barrier, Thread, get_ident

import pytest
import torch

from glassformer.generate import DecodingConfig, Ensemble, Hypothesis, SpecialTokens, generate, score_pairs
from glassformer.generate.candidates import TorchSearch
from glassformer.generate.search import map_in_threads, split_batches
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.native import accelerate

Maker = Callable[..., EncoderDecoder]
SOURCES = [[5, 2], [3, 8, 7, 4, 6, 5, 2], [4, 4, 2], [7, 8, 3, 2], [6, 2], [3, 8, 7, 4, 6, 5, 2], [8, 5, 3, 6, 2]]
PREFIXES = [[], [5], [3, 4], [], [7, 7, 7], [], [6]]
SEARCHES = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 4, "n_best": 2},
    "beam without cache": {"beam_size": 3, "length_penalty": "average", "alpha": 1.0, "use_cache": False},
    "sampling": {"sample": True},
    "several draws": {"sample": True, "n_best": 3, "top_p": 0.9, "temperature": 1.5},
}


def assert_same(one: list[list[Hypothesis]], other: list[list[Hypothesis]], tolerance: float) -> None:
    assert [[h.tokens for h in hypotheses] for hypotheses in one] == [[h.tokens for h in hs] for hs in other]
    for first, second in zip(chain(*one), chain(*other), strict=True):
        assert first.score == pytest.approx(second.score, abs=tolerance)
        assert first.token_log_probs == pytest.approx(second.token_log_probs, abs=tolerance)


@pytest.mark.parametrize("prefixes", [None, PREFIXES], ids=["free", "forced"])
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)], ids=str)
def test_batch_results_equal_single_results(
    make_peaked: Maker,
    symbols: SpecialTokens,
    dtype: torch.dtype,
    tolerance: float,
    search: str,
    prefixes: list[list[int]] | None,
) -> None:
    model = make_peaked(3).to(dtype)
    config = DecodingConfig(max_extra=6, **SEARCHES[search])
    alone = [
        generate(model, [source], symbols, config, prefixes and [prefixes[index]])[0]
        for index, source in enumerate(SOURCES)
    ]
    assert len({len(h.tokens) for hypotheses in alone for h in hypotheses}) > 2
    for batch_tokens in (1, 13, 4096):
        together = generate(model, SOURCES, symbols, config.model_copy(update={"batch_tokens": batch_tokens}), prefixes)
        assert_same(together, alone, tolerance)


@pytest.mark.parametrize("patience", [0.5, 1.0])
def test_finished_sentence_is_unchanged_by_further_steps(
    make_peaked: Maker, symbols: SpecialTokens, patience: float
) -> None:
    """In a batch of more than eight some decided sentences are kept for a while, so that the others are not copied."""
    draw = random.Random(0)
    sources = [[*(draw.randint(3, 8) for _ in range(draw.randint(1, 12))), 2] for _ in range(40)]
    config = DecodingConfig(beam_size=4, n_best=4, max_extra=12, patience=patience, length_penalty="average", alpha=1.0)
    for seed in range(3):
        model = make_peaked(seed)
        alone = [generate(model, [source], symbols, config)[0] for source in sources]
        assert_same(generate(model, sources, symbols, config), alone, 1e-10)


def test_scores_do_not_depend_on_the_batch(make_peaked: Maker, symbols: SpecialTokens) -> None:
    model, targets = make_peaked(0), [[3] * length for length in (0, 5, 1, 2, 7, 3, 0)]
    alone = [score_pairs(model, [s], [t], symbols, DecodingConfig())[0] for s, t in zip(SOURCES, targets)]
    for batch_tokens in (1, 13, 4096):
        together = score_pairs(model, SOURCES, targets, symbols, DecodingConfig(batch_tokens=batch_tokens))
        assert_same([together], [alone], 1e-10)


@pytest.mark.parametrize("search", ["greedy", "beam", "several draws"])
def test_a_model_twice_is_the_model(make_peaked: Maker, symbols: SpecialTokens, search: str) -> None:
    model, config = make_peaked(1), DecodingConfig(max_extra=6, **SEARCHES[search])
    found = [generate(each, SOURCES, symbols, config) for each in (model, Ensemble([model, model]))]
    assert_same(*found, 1e-10)


def test_an_ensemble_has_the_mean_of_the_probabilities(make_peaked: Maker, symbols: SpecialTokens) -> None:
    members = [make_peaked(0), make_peaked(1, d_model=8, positions="rotary")]
    source, tokens = torch.tensor([SOURCES[1]]), torch.tensor([[1, 5, 4, 7]])
    seen = torch.ones_like(source, dtype=torch.bool)
    ensemble = Ensemble(members)
    mean = sum(model(source, tokens).softmax(-1) for model in members) / 2
    torch.testing.assert_close(ensemble(source, tokens, seen).exp(), mean, atol=1e-12, rtol=0)
    state = ensemble.begin(source, seen)
    for step in range(4):
        logits = ensemble.step(tokens[:, step : step + 1], state)
        torch.testing.assert_close(logits.softmax(-1), mean[:, step], atol=1e-12, rtol=0)
    config = DecodingConfig(beam_size=3)
    best = generate(ensemble, [SOURCES[1]], symbols, config)[0][0]
    again = score_pairs(ensemble, [SOURCES[1]], [best.tokens], symbols, config)[0]
    assert best.token_log_probs == pytest.approx(again.token_log_probs, abs=1e-10)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("threads", [1, 2])
def test_idle_rows_and_parallel_searches_preserve_results(
    make_peaked: Maker, symbols: SpecialTokens, search: str, threads: int
) -> None:
    """More sentences than every row of which is dropped as it ends, in batches that two threads share."""
    model, generator = make_peaked(3), random.Random(1)
    sources = [[generator.randint(3, 8) for _ in range(generator.randint(1, 9))] + [2] for _ in range(60)]
    config = DecodingConfig(max_extra=6, **SEARCHES[search])
    alone = [generate(model, [source], symbols, config)[0] for source in sources]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for batch_tokens in (200, 4096):
            many = config.model_copy(update={"batch_tokens": batch_tokens})
            assert_same(generate(model, sources, symbols, many), alone, 1e-10)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_error_in_a_search_thread_is_raised(make_peaked: Maker, symbols: SpecialTokens) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(IndexError):
            generate(make_peaked(0), [[3, 2], [99, 2], [4, 4, 4, 2]], symbols, DecodingConfig(batch_tokens=1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def in_new_thread(compute: Callable[[], int]) -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(compute).result()


def test_threads_of_a_search_leave_the_number_of_the_host() -> None:
    """Each worker has its share; a thread that begins to compute during the search, or after it, has the host's."""
    before, begun, found = torch.get_num_threads(), Barrier(2), list[tuple[int, int]]()

    def search(batch: list[int]) -> list[list[Hypothesis]]:
        begun.wait(60)
        found.append((torch.get_num_threads(), in_new_thread(torch.get_num_threads)))
        return []

    torch.set_num_threads(4)
    try:
        assert map_in_threads(search, [[0], [1]], threads=True) == [[], []]
        assert found == [(2, 4), (2, 4)]
        assert (torch.get_num_threads(), in_new_thread(torch.get_num_threads)) == (4, 4)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("allowed", [0, 1, 2, 3])
def test_batches_are_computed_one_by_one_if_the_system_refuses_a_thread(
    allowed: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first or the second worker, or the threads that they start."""
    start, before, started = Thread.start, torch.get_num_threads(), list[Thread]()

    def start_few(thread: Thread) -> None:
        if len(started) == allowed:
            raise RuntimeError("can't start new thread")  # as Python does
        started.append(thread)
        start(thread)

    torch.set_num_threads(2)
    monkeypatch.setattr(Thread, "start", start_few)
    try:
        assert list(map_in_threads(len, [[3], [1, 2]], threads=True)) == [1, 2]
        monkeypatch.undo()
        assert (torch.get_num_threads(), in_new_thread(torch.get_num_threads)) == (2, 2)
        assert capfd.readouterr().err == ""
    finally:
        torch.set_num_threads(before)


def test_errors_of_a_search_in_threads_are_raised() -> None:
    def search(batch: list[int]) -> None:
        raise RuntimeError(f"{len(batch)} sentences")

    with pytest.raises(RuntimeError, match="1 sentences"):
        list(map_in_threads(search, [[0], [1]], threads=True))


def test_in_bfloat16_a_score_does_not_depend_on_other_rows() -> None:
    """One row whose exponentials overflow must not change how the others are summed."""
    rows = torch.randn(5, 640).mul(4).bfloat16()
    alone = TorchSearch().log_sum(rows.clone())
    rows[2, 7] = 300.0
    together = TorchSearch().log_sum(rows)
    assert torch.equal(together[[0, 1, 3, 4]], alone[[0, 1, 3, 4]])
    assert together[2].item() == pytest.approx(300.0)


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_batches_of_an_accelerated_form_are_searched_in_threads(
    make_peaked: Maker, symbols: SpecialTokens, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Those of the model itself are not, since a trace or a hook may listen."""
    model, before, threads = make_peaked(0).float().eval(), torch.get_num_threads(), set[int]()
    sources, config = [[3, 2], [4, 4, 4, 2], [5, 2]], DecodingConfig(batch_tokens=1, max_length=4)
    monkeypatch.setattr("glassformer.generate.search.beam", lambda *_: threads.add(get_ident()) or [[]])
    torch.set_num_threads(2)
    try:
        generate(model, sources, symbols, config)
        assert threads == {get_ident()}
        threads.clear()
        generate(accelerate(model, engine), sources, symbols, config)
        assert threads
        assert get_ident() not in threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("rows", "cores", "sizes"), [(32, 2, [16, 16]), (33, 4, [9, 8, 8, 8]), (15, 2, [15]), (0, 2, [])]
)
def test_a_large_batch_is_divided_among_the_cores(rows: int, cores: int, sizes: list[int]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(cores)
    try:
        batches = [list(range(rows))] if rows else []
        divided = split_batches(batches, threads=True)
        assert sorted(map(len, divided), reverse=True) == sizes
        assert sorted(index for batch in divided for index in batch) == list(range(rows))
        assert split_batches(batches, threads=False) == batches
    finally:
        torch.set_num_threads(before)
