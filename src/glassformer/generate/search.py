"""Any number of sentences: cut into batches, searched or scored, and returned in their order."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock, Thread
from typing import TypeVar

import torch

from glassformer.generate.beam import beam
from glassformer.generate.candidates import LogitsError, counting_texts, log_softmax
from glassformer.generate.config import DecodingConfig, Hypothesis
from glassformer.generate.greedy_and_sampling import finish, greedy, sample
from glassformer.generate.protocol import Decodable, Prompt, SpecialTokens, build_prompt
from glassformer.native.execution import Execution

R = TypeVar("R")
ENOUGH_SENTENCES = 8
"""Sentences for which a core of their own is worth reading all weights once more."""
NO_THREAD = "can't start new thread"  # of Python, if the system refuses one
_LIMITING = Lock()
"""Held while the number of threads that new threads begin with is not the host's."""


def generate(
    model: Decodable,
    sources: Sequence[Sequence[int]],
    symbols: SpecialTokens,
    config: DecodingConfig,
    prefixes: Sequence[Sequence[int]] | None = None,
    device: torch.device | None = None,
    longest_target: int | None = None,
) -> list[list[Hypothesis]]:
    """For each source (ids that end with the end symbol) its ``n_best`` hypotheses, best first; samples as drawn."""
    copies = config.n_best if config.sample else 1

    @torch.inference_mode()
    def search(batch: list[int]) -> list[list[Hypothesis]]:
        rows = [index for index in batch for _ in range(copies)]
        forced = [prefixes[index] for index in rows] if prefixes else None
        prompt = build_prompt([sources[index] for index in rows], symbols, config, forced, device, longest_target)
        with counting_texts(rows):
            found = hypotheses_of(model, prompt, config, [draw for _ in batch for draw in range(copies)])
        return [[one for row in found[at : at + copies] for one in row] for at in range(0, len(found), copies)]

    lengths = [len(ids) for ids in sources]
    return search_in_batches(model, lengths, _source_tokens(model, config, copies), search, device)


@torch.inference_mode()
def score_pairs(
    model: Decodable,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    symbols: SpecialTokens,
    config: DecodingConfig,
    device: torch.device | None = None,
) -> list[Hypothesis]:
    """Each target (ids without start and end) as the hypothesis that a search would have returned for it."""
    results: list[Hypothesis | None] = [None] * len(sources)
    unlimited = config.model_copy(update={"max_length": None, "max_extra": 0})
    for batch in by_length(
        [max(len(s), len(t) + 1) for s, t in zip(sources, targets, strict=True)], config.batch_tokens
    ):
        prompt = build_prompt([sources[index] for index in batch], symbols, unlimited, device=device)
        longest = max(len(targets[index]) for index in batch)
        tokens = torch.full((len(batch), longest + 2), symbols.end)
        for row, index in enumerate(batch):
            tokens[row, 1 : len(targets[index]) + 1] = torch.tensor(targets[index], dtype=torch.long)
        tokens[:, 0] = symbols.start
        tokens = tokens.to(prompt.source.device)
        log_probs = log_softmax(model(prompt.source, tokens[:, :-1], prompt.source_mask))
        chosen = log_probs.gather(2, tokens[:, 1:, None]).squeeze(2)
        for index, values in zip(batch, chosen.tolist(), strict=True):
            own = values[: len(targets[index]) + 1]
            if not math.isfinite(sum(own)):
                raise LogitsError(index, 1 + [math.isfinite(value) for value in own].index(False), finite=False)
            results[index] = finish(list(targets[index]), own, config)
    return [result for result in results if result is not None]


def hypotheses_of(model: Decodable, prompt: Prompt, config: DecodingConfig, draws: list[int]) -> list[list[Hypothesis]]:
    """The hypotheses of each row of ``prompt``, best first; ``draws`` are the numbers of its samples."""
    if config.sample:
        return [[one] for one in sample(model, prompt, config, draws)]
    if config.beam_size == 1:
        return [[one] for one in greedy(model, prompt, config)]
    return beam(model, prompt, config)


def search_in_batches(
    model: Decodable,
    lengths: list[int],
    batch_tokens: int,
    search: Callable[[list[int]], list[list[Hypothesis]]],
    device: torch.device | None,
) -> list[list[Hypothesis]]:
    """The results of ``search``, which takes the indices of a batch, for rows of these ``lengths``, in their order."""
    threads = runs_in_threads(model, device)
    batches = split_batches(list(by_length(lengths, batch_tokens)), threads)
    results: list[list[Hypothesis]] = [[] for _ in lengths]
    for batch, hypotheses_of_batch in zip(batches, map_in_threads(search, batches, threads), strict=True):
        for index, hypotheses in zip(batch, hypotheses_of_batch, strict=True):
            results[index] = hypotheses
    return results


def _source_tokens(model: Decodable, config: DecodingConfig, copies: int) -> int:
    """Maximum source tokens of a batch: as many as ``config`` allows for all hypotheses, and ``model`` can use.

    ``copies`` of each sentence are read where they are drawn.
    """
    allowed = config.batch_tokens // (copies if config.sample else config.beam_size)
    limit = Execution.of(model).max_source_tokens if config.use_cache else None
    return max(1, allowed if limit is None else min(allowed, limit // copies))


def runs_in_threads(model: object, device: torch.device | None) -> bool:
    """True for an accelerated form on a CPU."""
    return Execution.of(model).in_threads and (device is None or device.type == "cpu")


def split_batches(batches: list[list[int]], threads: bool) -> list[list[int]]:
    """Split batches until every core has one, with ``threads``: two halves on a core each are faster than one batch."""
    batches = list(batches)
    while threads and len(batches) < torch.get_num_threads():
        largest = max(range(len(batches)), key=lambda index: len(batches[index]), default=None)
        if largest is None or len(batches[largest]) < 2 * ENOUGH_SENTENCES:
            break
        batch = batches.pop(largest)
        batches += [batch[::2], batch[1::2]]
    return batches


def map_in_threads(compute: Callable[[list[int]], R], batches: list[list[int]], threads: bool) -> Iterable[R]:
    """``compute`` each batch, with ``threads`` one batch on each core at a time.

    Between the matrix products there are many small operations, which one core does nearly as fast as several. If the
    system refuses a thread, the batches are computed one after the other.
    """
    cores = torch.get_num_threads()
    workers = min(cores, max(1, len(batches))) if threads else 1
    if workers == 1:
        return map(compute, batches)
    with ThreadPoolExecutor(workers, initializer=_limit_this_thread, initargs=(cores // workers,)) as pool:
        futures = list[Future[R]]()
        try:
            for batch in batches:
                futures.append(pool.submit(compute, batch))
            return [future.result() for future in futures]
        except RuntimeError as error:
            if str(error) != NO_THREAD or len(futures) == len(batches):
                raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return map(compute, batches)


def _limit_this_thread(threads: int) -> None:
    """Set the number of threads of the calling thread only, which has not computed yet.

    ``torch.set_num_threads`` sets the number of the calling thread and the initial number of new threads. Another new
    thread restores the latter (0.15 ms), because restoring it here would also change this thread. A host thread that
    begins to compute within that time has ``threads``. One effect remains, as after any ``torch.set_num_threads``: MKL
    no longer chooses fewer threads itself (``mkl_set_dynamic``), which PyTorch cannot restore.
    """
    with _LIMITING:
        default = torch.get_num_threads()
        torch.set_num_threads(threads)
        restoring = Thread(target=torch.set_num_threads, args=(default,))
        try:
            restoring.start()
        except RuntimeError:  # the system refuses it: this thread computes with the host's number
            torch.set_num_threads(default)
        else:
            restoring.join()


def by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Indices, longest first, in batches of at most ``batch_tokens`` padded tokens (one sentence at least)."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batch: list[int] = []
    for index in order:
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
