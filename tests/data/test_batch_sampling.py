"""Where the sorted pairs are cut into batches, against the definition written as a loop."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data.sampling import plan_batches

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
