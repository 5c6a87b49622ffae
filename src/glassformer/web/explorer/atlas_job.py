"""The atlas of heads as a job: one sentence at a time, between the requests of pages."""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Literal

from glassformer.errors import GlassformerError
from glassformer.explain.analysis.head_atlas import HeadAtlas
from glassformer.explain.example import Example
from glassformer.web.explorer.panels.alignment import parse_gold
from glassformer.web.explorer.run_text import RunSentence

PATIENCE_SECONDS = 10.0
"""A job pauses this long after the last request of a page, and continues at the next one."""
MAX_SECONDS = 300.0
"""Computing time of a job."""
MAX_JOBS = 4
"""Atlases in memory; the least recently used one is dropped."""

State = Literal["running", "done", "cancelled", "expired"]


class AtlasJob:
    """Sentences to measure, and the measures so far. ``examine`` traces a sentence."""

    def __init__(
        self, sentences: Sequence[RunSentence], examine: Callable[[RunSentence], Example], clock: Callable[[], float]
    ) -> None:
        self.sentences = tuple(sentences)
        self.atlas = HeadAtlas()
        self.done = 0
        """Sentences that were measured or left out."""
        self.skipped: list[str] = []
        """Reason for each sentence that was left out."""
        self.state: State = "running"
        self.seconds = 0.0
        self._examine, self._clock = examine, clock
        self._last_request = clock()

    @property
    def resting(self) -> bool:
        """True while no page asks."""
        return self._clock() - self._last_request > PATIENCE_SECONDS

    def ask(self) -> None:
        """Note that a page asks for the state."""
        self._last_request = self._clock()

    def cancel(self) -> None:
        """Keep what was measured, and go no further until ``resume``."""
        if self.state == "running":
            self.state = "cancelled"

    def resume(self) -> None:
        """Go on where a cancelled job stopped."""
        if self.state == "cancelled":
            self.state = "running"

    def step(self) -> None:
        """Measure the next sentence. One that the model cannot read is left out, with its reason."""
        start = self._clock()
        sentence = self.sentences[self.done]
        try:
            example = self._examine(sentence)
            words = tuple(len(side.words) for side in example.sides) if sentence.gold else (0, 0)
            gold = parse_gold(sentence.gold, (words[0], words[-1]), []) if sentence.gold else None
            self.atlas.add(example, gold)
        except GlassformerError as error:
            self.skipped.append(str(error))
        self.done += 1
        self.seconds += self._clock() - start
        if self.done == len(self.sentences):
            self.state = "done"
        elif self.seconds > MAX_SECONDS:
            self.state = "expired"


class AtlasJobs:
    """Jobs by what they compute, so that a second page with the same request joins the first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._jobs: OrderedDict[object, AtlasJob] = OrderedDict()

    def find(self, key: object, make: Callable[[], AtlasJob]) -> AtlasJob:
        """The job of ``key``, made if there is none yet."""
        if key not in self._jobs:
            self._jobs[key] = make()
        self._jobs.move_to_end(key)
        while len(self._jobs) > MAX_JOBS:
            self._jobs.popitem(last=False)
        self._jobs[key].ask()
        return self._jobs[key]

    @property
    def active(self) -> list[AtlasJob]:
        """Jobs that have something to compute and a page that asks."""
        return [job for job in self._jobs.values() if job.state == "running" and not job.resting]

    def step(self) -> bool:
        """Compute one sentence of each active job; True if there is more to do."""
        for job in self.active:
            job.step()
        return bool(self.active)
