"""Samplers: batches cut from sorted pairs by definition, functions of their generator, complete."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data.sampling import Batching, Mixture, by_length, in_rows, in_windows, plan_batches, shuffle

pairs = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=60)


@given(pairs=pairs, batch_tokens=st.integers(20, 150), noise=st.sampled_from([0.0, 0.1]), seed=st.integers(0, 99))
def test_every_batch_takes_as_many_pairs_as_fit(
    pairs: list[tuple[int, int]], batch_tokens: int, noise: float, seed: int
) -> None:
    source, target = (np.array(side, np.int32) for side in zip(*pairs, strict=True))
    generator = np.random.default_rng(seed)
    plan = plan_batches(source, target, batch_tokens, noise, generator)
    expected: list[list[int]] = [[]]
    for example in plan.examples.tolist():
        rows = [*expected[-1], example]
        if len(rows) * max(max(pairs[row]) for row in rows) > batch_tokens:
            expected.append([])
        expected[-1].append(example)
    assert sorted(plan.batch(i).tolist() for i in range(len(plan))) == sorted(expected)
    for i in range(len(plan)):
        rows = plan.batch(i)
        assert plan.padded_tokens[i] == len(rows) * (source[rows].max() + target[rows].max())


def test_without_noise_target_lengths_ascend_and_equal_lengths_are_shuffled() -> None:
    source, target = np.repeat(np.arange(1, 5, dtype=np.int32), 50), np.tile(np.arange(1, 3, dtype=np.int32), 100)
    plans = [plan_batches(source, target, 40, 0.0, np.random.default_rng(seed)) for seed in (1, 2)]
    for plan in plans:
        assert (np.diff(target[plan.examples]) >= 0).all()
        assert (np.abs(np.diff(source[plan.examples])) <= 1).all()  # up, then down: no jump to the shortest
    assert (plans[0].examples != plans[1].examples).any()


LENGTHS = np.random.default_rng(3).integers(1, 20, (2, 60)).astype(np.int32)
HALVES = Mixture.of([40, 20], [1.0, 2.0])
SAMPLERS: dict[str, Callable[[np.random.Generator], Batching[Any]]] = {
    "shuffle": shuffle(60, 7),
    "by_length": partial(by_length, LENGTHS[0], HALVES, 50, 0.1),
    "in_rows": partial(in_rows, (LENGTHS[0], LENGTHS[1]), HALVES, 32, 64, 0.0),
    "in_windows": partial(in_windows, HALVES, 6, 3),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_are_functions_of_the_generator(name: str) -> None:
    def epoch(seed: int) -> list[list[int]]:
        plan = SAMPLERS[name](np.random.default_rng(seed))
        batches = [plan.batch(i) for i in range(len(plan))]
        return [np.concatenate(batch if name == "in_rows" else [batch]).tolist() for batch in batches]

    assert epoch(1) == epoch(1)
    assert epoch(1) != epoch(2)
    expected = {"shuffle": [1] * 60, "by_length": [1] * 40 + [2] * 20, "in_rows": [1] * 40 + [2] * 20}
    if name in expected:
        seen = np.bincount([example for batch in epoch(1) for example in batch], minlength=60)
        assert seen.tolist() == expected[name]
    else:
        begins = [begin for batch in epoch(1) for begin in batch]
        assert all(begin + 6 < 40 or 40 <= begin < 60 - 6 for begin in begins)


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_largest_batch_and_the_share_of_padding_belong_to_the_plan(name: str) -> None:
    plan = SAMPLERS[name](np.random.default_rng(1))
    sizes = [len(plan.batch(i)) for i in range(len(plan))]
    if name in ("shuffle", "in_windows"):
        assert sizes[plan.largest] == max(sizes)
        assert plan.padding_share == 0
    else:
        assert 0 < plan.padding_share < 0.5


def test_a_mixture_locates_every_example_in_its_data_set() -> None:
    mixture = Mixture.of([3, 1, 2])
    assert [mixture.locate(i) for i in range(6)] == [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]
    assert mixture.draw(np.random.default_rng(0)).tolist() == list(range(6))
