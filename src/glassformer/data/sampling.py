"""Sampling: pure functions from sizes and a random generator to the batches of an epoch, as indices of examples."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from glassformer.data.token_store import Ragged
from glassformer.errors import DataError

Indices = NDArray[np.int64]
I_co = TypeVar("I_co", covariant=True)

CANDIDATES = 8
"""Pairs of one length among which the most balanced one for a row is chosen; saves 1 % of padding."""


class Batching(Protocol[I_co]):
    """Batches of one epoch, each as the indices of its examples."""

    def __len__(self) -> int:
        """Number of batches."""
        ...

    def batch(self, position: int) -> I_co: ...

    @property
    def largest(self) -> int:
        """Position of the batch that needs most memory."""
        ...

    @property
    def padding_share(self) -> float:
        """Share of padding in the padded tokens of all batches."""
        ...


class Sampler(Protocol[I_co]):
    """Source of the batches of an epoch, which are a function of the generator alone."""

    def __call__(self, generator: np.random.Generator) -> Batching[I_co]: ...


@dataclass(frozen=True)
class Plan:
    """Batches of one epoch: batch ``i`` holds ``examples[starts[i]:stops[i]]``."""

    examples: Indices
    starts: Indices
    stops: Indices
    padded_tokens: Indices  # of each batch
    tokens: int  # of all batches, without padding

    @classmethod
    def unpadded(cls, examples: Indices, bounds: Indices) -> Self:
        """Examples of one size: batch ``i`` holds those from ``bounds[i]`` to ``bounds[i + 1]``."""
        return cls(examples, bounds[:-1], bounds[1:], np.diff(bounds), len(examples))

    def __len__(self) -> int:
        return len(self.starts)

    def batch(self, position: int) -> Indices:
        return self.examples[self.starts[position] : self.stops[position]]

    @property
    def largest(self) -> int:
        return int(self.padded_tokens.argmax())

    @property
    def padding_share(self) -> float:
        return 1 - self.tokens / int(self.padded_tokens.sum())


@dataclass(frozen=True)
class PackedPlan:
    """The same where every example of ``plan`` is a row of several, which are ``rows[i]``."""

    rows: Ragged
    plan: Plan
    padding_share: float

    def __len__(self) -> int:
        return len(self.plan)

    def batch(self, position: int) -> list[NDArray[np.integer]]:
        """The examples of each row."""
        return [self.rows[row] for row in self.plan.batch(position).tolist()]

    @property
    def largest(self) -> int:
        return self.plan.largest


@dataclass(frozen=True)
class Mixture:
    """Several data sets, numbered end to end, each of which an epoch sees ``weight`` times.

    At 1 an epoch sees each example once, at 2.5 each example twice and a random half of them, drawn anew each epoch, a
    third time.
    """

    starts: Indices  # of each data set, and the end of the last
    weights: list[float]

    @classmethod
    def of(cls, sizes: Sequence[int], weights: Sequence[float] = (), names: str = "corpora") -> Self:
        """No weights: each data set once. Raises ``DataError`` for weights that are not one positive number each."""
        if not sizes:
            raise DataError("there is no corpus to make batches of; give data.train a path")
        weights = list(weights) or [1.0] * len(sizes)
        if len(weights) != len(sizes):
            raise DataError(f"data.weights has {len(weights)} values for {len(sizes)} {names}; give one each")
        if not all(0 < weight < float("inf") for weight in weights):
            raise DataError(f"data.weights={weights}: every weight is a number above 0")
        return cls(np.cumsum([0, *sizes]), weights)

    @property
    def sets(self) -> Iterator[tuple[int, int, float]]:
        """First index, size and weight of each data set."""
        return zip(self.starts.tolist(), np.diff(self.starts).tolist(), self.weights, strict=False)

    def locate(self, index: int) -> tuple[int, int]:
        """The number of the data set that ``index`` falls into, and the index within it."""
        number = int(np.searchsorted(self.starts, index, side="right")) - 1
        return number, index - int(self.starts[number])

    def locate_all(self, indices: NDArray[np.integer]) -> tuple[Indices, Indices]:
        """The numbers of the data sets that ``indices`` fall into, and the indices within them."""
        numbers = np.searchsorted(self.starts, indices, side="right") - 1
        return numbers, indices - self.starts[numbers]

    def draw(self, generator: np.random.Generator) -> Indices:
        """The examples of an epoch, in order."""
        return np.concatenate([start + repeated(size, weight, generator) for start, size, weight in self.sets])


def repeated(size: int, weight: float, generator: np.random.Generator) -> Indices:
    """The indices below ``size``, each ``weight`` times. The odd one is drawn: 0.5 of 3 is 1 or 2, on average 1.5."""
    whole, part = divmod(weight, 1.0)
    indices = np.tile(np.arange(size), int(whole))
    if not part:
        return indices
    n_part = max(int(part * size + generator.random()), 0 if whole else 1)
    return np.concatenate([indices, generator.choice(size, n_part, replace=False)])


def shuffle(n_examples: int, batch_size: int) -> Sampler[Indices]:
    """Sampler of each example once, in batches of at most ``batch_size``, their sizes equal to within 1.

    No example is dropped, and none is alone in a last small batch, where its gradient would weigh more.
    """
    if n_examples < 1:
        raise DataError("there is no example to make batches of; give data.train at least one")
    if batch_size < 1:
        raise DataError(f"data.batch_size={batch_size}: a batch holds at least one example; give 1 or more")
    n_batches = -(-n_examples // batch_size)
    bounds = np.arange(n_batches + 1) * n_examples // n_batches
    return lambda generator: Plan.unpadded(generator.permutation(n_examples), bounds)


def by_length(
    lengths: NDArray[np.int32], mixture: Mixture, batch_tokens: int, noise: float, generator: np.random.Generator
) -> Plan:
    """Sequences of similar length in a batch of at most ``batch_tokens`` padded tokens."""
    examples = mixture.draw(generator)
    chosen = lengths[examples]
    plan = plan_batches(chosen, np.zeros_like(chosen), batch_tokens, noise, generator)
    return Plan(examples[plan.examples], plan.starts, plan.stops, plan.padded_tokens, plan.tokens)


def in_windows(mixture: Mixture, context: int, rows: int, generator: np.random.Generator) -> Plan:
    """Positions at which windows of ``context`` tokens begin, at most ``rows`` a batch; batches are equal to within 1.

    Every epoch cuts each stream from another offset, drawn from 0 to ``context`` - 1, so that a token stands at every
    position of a window in time. A window begins with the last target of the window before it. The remainder at both
    ends, less than a window together with its last target, is not seen in that epoch.
    """
    parts = list[Indices]()
    for start, size, weight in mixture.sets:
        last = size - context - 1  # where a window may begin at the latest
        offset = int(generator.integers(min(context, last + 1)))
        begins = np.arange(offset, last + 1, context)
        parts.append(start + begins[repeated(len(begins), weight, generator)])
    windows = generator.permutation(np.concatenate(parts))
    batches = np.array_split(windows, -(-len(windows) // rows))
    return Plan.unpadded(windows, np.cumsum([0, *map(len, batches)]))


def in_rows(
    sides: tuple[NDArray[np.int32], NDArray[np.int32]],
    mixture: Mixture,
    row_tokens: int,
    batch_tokens: int,
    noise: float,
    generator: np.random.Generator,
) -> PackedPlan:
    """Pairs packed into rows, and rows of similar width in a batch of at most ``batch_tokens`` padded tokens a side.

    ``sides``: source and target tokens of every pair, end tokens included. ``row_tokens=0`` gives every pair a row.
    """
    source, target = sides
    rows = pack_rows(mixture.draw(generator), source, target, row_tokens, generator)
    plan = plan_batches(rows.source, rows.target, batch_tokens, 0.0 if row_tokens else noise, generator)
    tokens = source[rows.examples.values].sum() + target[rows.examples.values].sum()
    return PackedPlan(rows.examples, plan, 1 - int(tokens) / int(plan.padded_tokens.sum()))


def plan_batches(
    source: NDArray[np.int32],
    target: NDArray[np.int32],
    batch_tokens: int,
    noise: float,
    generator: np.random.Generator,
) -> Plan:
    """Plan the batches of an epoch from the widths of the rows, ``source`` and ``target``.

    A batch of n rows costs n times its widest side, and at most ``batch_tokens``. Widths are blurred by up to the
    share ``noise`` before sorting, and rows of one width come in random order, so that epochs have different batches.
    """
    rows = generator.permutation(len(source))
    rows = rows[_order_by_length(source[rows], target[rows], noise, generator)]
    source, target = source[rows], target[rows]
    bounds = _cut(np.maximum(source, target), batch_tokens)
    starts, stops = bounds[:-1], bounds[1:]
    widths = np.maximum.reduceat(source, starts).astype(np.int64) + np.maximum.reduceat(target, starts)
    shuffled = generator.permutation(len(starts))
    padded_tokens = ((stops - starts) * widths)[shuffled]
    return Plan(rows, starts[shuffled], stops[shuffled], padded_tokens, int(source.sum()) + int(target.sum()))


def _order_by_length(
    source: NDArray[np.int32], target: NDArray[np.int32], noise: float, generator: np.random.Generator
) -> NDArray[np.int64]:
    """By target length, then source length: upwards for even target lengths, downwards for odd ones.

    A batch that spans two target lengths then holds the longest sources of both, or the shortest of both.
    Sorting is stable: ties must have the same order on every machine, or a resumed run would see other batches.
    """
    by_target, by_source = _blur(target, noise, generator), _blur(source, noise, generator)
    by_source[by_target % 2 == 1] *= -1
    return np.argsort((by_target << 32) + by_source, kind="stable")


def _blur(lengths: NDArray[np.int32], noise: float, generator: np.random.Generator) -> NDArray[np.int64]:
    if not noise:
        return lengths.astype(np.int64)
    factors = generator.uniform(1 - noise, 1 + noise, len(lengths))
    return np.rint(lengths * factors).astype(np.int64)


def _cut(longest: NDArray[np.int32], batch_tokens: int) -> NDArray[np.int64]:
    """Bounds of the fullest runs, from the start, in which rows times the longest side is at most ``batch_tokens``."""
    bounds = [0]
    while (start := bounds[-1]) < len(longest):
        most = batch_tokens // int(longest[start])
        widths = np.maximum.accumulate(longest[start : start + most])
        cost = widths.astype(np.int64) * np.arange(1, len(widths) + 1)
        bounds.append(start + int(np.searchsorted(cost, batch_tokens, side="right")))
    return np.array(bounds, np.int64)


class Rows(NamedTuple):
    """Rows of the pairs of an epoch, and the width of each row on both sides."""

    examples: Ragged
    source: NDArray[np.int32]
    target: NDArray[np.int32]


def pack_rows(
    examples: NDArray[np.int64],
    source: NDArray[np.int32],
    target: NDArray[np.int32],
    row_tokens: int,
    generator: np.random.Generator,
) -> Rows:
    """Pack pairs into rows. ``source`` and ``target``: tokens of every example, end tokens included.

    The longest remaining pair opens a row and sets its width, rounded up to a multiple of ``row_tokens``. The
    longest pairs that still fit fill it. With ``row_tokens=0`` every pair has a row.
    """
    examples = generator.permutation(examples)
    if not row_tokens:
        return Rows(Ragged(examples, np.arange(len(examples) + 1)), source[examples], target[examples])
    by_length = _by_length(examples, np.maximum(source, target)[examples])
    sources, excess = source.tolist(), (source.astype(np.int64) - target).tolist()
    order, starts, widths = list[int](), [0], list[tuple[int, int]]()
    longest = len(by_length) - 1
    while len(order) < len(examples):
        while not by_length[longest]:
            longest -= 1
        opening = by_length[longest][-1]
        width = [-(-side // row_tokens) * row_tokens for side in (sources[opening], sources[opening] - excess[opening])]
        order += _fill(by_length[: longest + 1], sources, excess, width)
        starts.append(len(order))
        widths.append((width[0], width[1]))
    sides = np.array(widths, np.int32)
    return Rows(Ragged(np.array(order), np.array(starts)), sides[:, 0], sides[:, 1])


def _by_length(examples: NDArray[np.int64], longer_side: NDArray[np.int32]) -> list[list[int]]:
    """``examples`` by the length of their longer side, in their order."""
    order = np.argsort(longer_side, kind="stable")
    bounds = np.searchsorted(longer_side[order], np.arange(int(longer_side.max()) + 2))
    return [examples[order[start:stop]].tolist() for start, stop in pairwise(bounds)]


def _fill(by_length: list[list[int]], sources: list[int], excess: list[int], width: list[int]) -> list[int]:
    """Take one row's pairs out of ``by_length``: always the longest that fit both sides.

    ``excess`` is the source length of an example minus its target length.
    """
    row = list[int]()
    source, target = width
    longest = len(by_length) - 1
    while True:
        while longest > 0 and not by_length[longest]:
            longest -= 1
        if longest <= 0:
            return row
        alike = by_length[longest]
        if row and len(alike) > 1:
            imbalance = [abs(source - target - excess[example]) for example in alike[-CANDIDATES:]]
            chosen = imbalance.index(min(imbalance)) - len(imbalance)
            alike[chosen], alike[-1] = alike[-1], alike[chosen]
        row.append(alike.pop())
        source, target = source - sources[row[-1]], target - sources[row[-1]] + excess[row[-1]]
        longest = min(longest, source, target)
