"""The explored runs: their checkpoints, loaded models, and the traces of what was looked at last."""

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from glassformer.demo_corpus.grammar import DEMO_SENTENCE
from glassformer.errors import DataError
from glassformer.explain.example import Example
from glassformer.explain.page.sheets import stylesheet
from glassformer.predict.filler import MASK
from glassformer.taps import Edit
from glassformer.web.explorer.atlas_job import AtlasJob, AtlasJobs
from glassformer.web.explorer.interventions import edits_of, parse_interventions
from glassformer.web.explorer.models import (
    ExploredModel,
    ExploredText,
    ExploredTranslator,
    bytes_of,
    load_explored,
    with_mask,
)
from glassformer.web.explorer.panels.beam_tree import MAX_BEAM, BeamSearch, search_of
from glassformer.web.explorer.panels.canvas import region_bytes
from glassformer.web.explorer.places import resolve_selection
from glassformer.web.explorer.run_text import RunSentence, RunText
from glassformer.web.explorer.runs import CheckpointChoice, ExploredRun, choose_run, explored_runs, version_of
from glassformer.web.explorer.selection import EMPTY_SOURCE, Selection, parse_address
from glassformer.web.explorer.snapshots import SnapshotStore
from glassformer.web.explorer.traced import AnalysisResults, ResultStore, TracedSelection
from glassformer.web.settings import WebSettings

MODELS_IN_MEMORY = 3
FIRST_LINES = 200
"""Lines of the validation text among which the first sentence is chosen."""
WORDS = range(4, 10)
"""Length of a sentence that fits a first view."""


class Session:
    """The run at ``path``, and others beside it. Folders are read anew for each request, so new checkpoints appear."""

    def __init__(
        self,
        path: Path,
        settings: WebSettings,
        others: Sequence[Path] = (),
        is_waited_for: Callable[[], bool] = lambda: False,
    ) -> None:
        """``is_waited_for`` is true while another view waits; a long analysis then ends, and is computed later."""
        self.settings = settings
        self.runs = explored_runs([path, *others])
        self.texts = {name: RunText(run.path) for name, run in self.runs.items()}
        self.jobs = AtlasJobs()
        self._models: OrderedDict[tuple[object, ...], ExploredModel] = OrderedDict()
        self._traces: OrderedDict[tuple[object, ...], Example] = OrderedDict()
        self._results = ResultStore(is_waited_for)
        self.snapshots = SnapshotStore()
        self._searches: OrderedDict[tuple[object, ...], BeamSearch] = OrderedDict()

    def checkpoints(self, run: str = "") -> list[CheckpointChoice]:
        """Checkpoints of a run, of the first one by default."""
        return choose_run(self.runs, run, [])[1].checkpoints()

    def examine(self, selection: Selection, notes: list[str]) -> TracedSelection:
        """The example of a selection. Errors of the user are ``GlassformerError``; warnings become notes.

        A warning names words of the text, which must not be written to a terminal or a log.
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            traced = self._examine(selection, notes)
        notes += [f"{warning.message}." for warning in caught if issubclass(warning.category, UserWarning)]
        return replace(traced, notes=notes)

    def _examine(self, selection: Selection, notes: list[str]) -> TracedSelection:
        name, run = choose_run(self.runs, selection.run, notes)
        checkpoint, path = run.choose(selection.checkpoint, notes)
        selection = replace(selection, run=name, checkpoint=checkpoint)
        explored = self._load(path)
        selection = explored.choose(selection, notes)
        if not selection.source.strip():
            if selection.source:
                notes.append(EMPTY_SOURCE)
            selection = replace(selection, source=self._first_sentence(explored, run))
        self._check_length(explored, selection)
        if selection.mode == "forced" and not selection.target.strip() and explored.translates:
            selection = replace(selection, mode="beam")
            notes.append("A forced target needs a text; this is the model's own translation.")
        if selection.mode != "forced" and explored.translates:
            selection = replace(selection, target="")
        original = self._trace(explored, path, replace(selection, interventions=()))
        donor = self._donor(explored, path, selection, original, notes)
        recorded = None if donor is None else donor.trace
        found = tuple(parse_interventions(selection.interventions, original, notes, recorded))
        selection = replace(selection, interventions=tuple(one.text for one in found))
        example = original
        if found:
            example = self._trace(explored, path, selection, original.target, edits_of(found, original, recorded))
        key = (*version_of(path), *replace(selection, interventions=()).input_key)
        return TracedSelection(
            selection, example, original, found, explored, run, path, donor, AnalysisResults(self._results, key)
        )

    def _donor(
        self, explored: ExploredModel, path: Path, selection: Selection, original: Example, notes: list[str]
    ) -> Example | None:
        """The example of the second sentence, with the same target; None where there is none, or none is needed."""
        patches = any("@" in text for text in selection.interventions)
        if not patches and selection.panel != "lab":
            return None
        if not selection.donor.strip():
            if selection.donor:
                notes.append("The second sentence was empty; patching needs one.")
            return None
        target = original.target if explored.translates else selection.target
        chosen = replace(selection, source=selection.donor, target=target, mode="forced", interventions=())
        chosen = explored.choose(chosen, notes)
        try:
            self._check_length(explored, chosen)
            return self._trace(explored, path, chosen)
        except DataError as error:
            notes.append(f"The second sentence cannot be used: {error}.")
            return None

    def suggestion(self, traced: TracedSelection) -> str:
        """Another sentence of the validation text, with as many tokens if there is one."""
        explored, selection = traced.explored, traced.selection
        if not traced.original.translated:
            return ""
        lines = self._validation_lines(explored, traced.run)
        others = [line for line in lines if explored.knows(line) and line != selection.source]
        count = [explored.lengths(replace(selection, source=line))[0][0] for line in others]
        same = len(traced.original.source_ids) - 1
        return next((line for line, size in zip(others, count, strict=True) if size == same), next(iter(others), ""))

    def _first_sentence(self, explored: ExploredModel, run: ExploredRun) -> str:
        """A sentence of the run's validation text, or one that the demo knows, as far as the model can read one."""
        lines = self._validation_lines(explored, run)
        known = [line for line in lines if explored.knows(line)]
        texts = [with_mask(line) if _masks(explored) else line for line in (*known, DEMO_SENTENCE, *lines)]
        return next((text for text in texts if self._is_readable(explored, text)), texts[len(known)])

    def _is_readable(self, explored: ExploredModel, text: str) -> bool:
        with suppress(DataError):
            self._check_length(explored, Selection(source=text))
            return True
        return False

    def _validation_lines(self, explored: ExploredModel, run: ExploredRun) -> list[str]:
        """Short lines of the validation text, if the configuration names one that is here; very short ones last."""
        task = explored.run.task if isinstance(explored, ExploredText) else "translation"
        found = self.texts[run.name].validation(task, FIRST_LINES)
        lines = islice((line.strip() for one in found for line in one.source.splitlines()), FIRST_LINES)
        short = [line for line in lines if line and len(line.split()) < WORDS.stop]
        return sorted(short, key=lambda line: len(line.split()) not in WORDS)

    def search(self, traced: TracedSelection) -> BeamSearch:
        """The beam search of the source, with every hypothesis that it considered."""
        explored = traced.explored
        assert isinstance(explored, ExploredTranslator)
        selection = replace(traced.selection, mode="beam")
        own = explored.settings(selection)["beam_size"]
        size = own if selection.beam is None else min(max(selection.beam, 1), MAX_BEAM)
        if selection.beam not in (None, size):
            traced.notes.append(f"beam={selection.beam:,} is outside 1 to {MAX_BEAM}; this is a beam of {size}.")
        key = (explored.translator, selection.source, size)
        if key not in self._searches:
            self._searches[key] = search_of(explored.translator, selection.source, size)
        self._searches.move_to_end(key)
        while len(self._searches) > self.settings.max_traces:
            self._searches.popitem(last=False)
        return self._searches[key]

    def atlas(self, explored: ExploredModel, sentences: tuple[RunSentence, ...]) -> AtlasJob:
        """The job that measures every head on ``sentences``; a second request for the same joins the first."""
        key = id(explored.model), sentences  # the job refers to the model, so no other has its number
        return self.jobs.find(
            key, lambda: AtlasJob(sentences, lambda one: self._measured(explored, one), self.jobs.clock)
        )

    def _measured(self, explored: ExploredModel, sentence: RunSentence) -> Example:
        """A sentence with the attention weights of every head; without a target, its greedy translation."""
        masks = _masks(explored) and MASK not in sentence.source
        text = with_mask(sentence.source) if masks else sentence.source
        selection = Selection(source=text, target=sentence.target, mode="forced" if sentence.target else "greedy")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they name words of the text
            self._check_length(explored, selection)
            return explored.example(selection, explored.output(selection), None, "*.weights")

    def logits(self, query: str) -> bytes:
        """Logits of the selected step, little-endian float32."""
        selection, notes = parse_address(query)
        traced = self.examine(selection, notes)
        selection = resolve_selection(traced.selection, traced.example, notes)
        names = [name for name in traced.example.trace if name.endswith(".logits")]
        if not names:
            raise DataError("this model has no logits; choose another view")
        rows = traced.example.trace[names[-1]][0].float().cpu().numpy()
        row = rows[min(selection.step or 0, len(rows) - 1)] if rows.ndim > 1 else rows
        return row.astype("<f4").tobytes()

    def matrix(self, query: str) -> bytes:
        """Numbers of a region of the selected tensor, little-endian float32."""
        selection, notes = parse_address(query)
        traced = self.examine(selection, notes)
        return region_bytes(traced.example, resolve_selection(traced.selection, traced.example, notes), query)

    @staticmethod
    def shades() -> str:
        """Style sheet of the colors of numbers."""
        return stylesheet()

    def _load(self, path: Path) -> ExploredModel:
        key = version_of(path)
        if key not in self._models:
            self._models[key] = load_explored(path, self.settings.inputs, self._models.values())
        self._models.move_to_end(key)
        while len(self._models) > MODELS_IN_MEMORY:
            self._forget(self._models.popitem(last=False)[1])
        return self._models[key]

    def _forget(self, explored: ExploredModel) -> None:
        """Drop what keeps a model in memory that is no longer loaded: its traces and its searches."""
        for key in [key for key, one in self._traces.items() if one.model is explored.model]:
            del self._traces[key]
        if isinstance(explored, ExploredTranslator):
            for key in [key for key in self._searches if key[0] is explored.translator]:
                del self._searches[key]

    def _check_length(self, explored: ExploredModel, selection: Selection) -> None:
        longest, limit = max(len(selection.source), len(selection.target)), self.settings.max_characters
        if longest > limit:
            raise DataError(f"the text has {longest:,} characters; this page reads at most {limit:,}: shorten it")
        for tokens, readable in explored.lengths(selection):
            most = min(self.settings.max_tokens, readable)
            if tokens > most:
                raise DataError(f"the text has {tokens:,} tokens; this page shows at most {most:,}: shorten it")

    def _trace(
        self,
        explored: ExploredModel,
        path: Path,
        selection: Selection,
        output: str | None = None,
        edits: Mapping[str, Edit] | None = None,
    ) -> Example:
        """The example from memory, or traced now, of the target ``output``; that of the selection if it is None."""
        key = (*version_of(path), *selection.input_key)
        if key not in self._traces:
            target = explored.output(selection) if output is None else output
            self._traces[key] = explored.example(selection, target, edits)
        self._traces.move_to_end(key)
        self._drop_old_traces()
        return self._traces[key]

    def _drop_old_traces(self) -> None:
        sizes = [bytes_of(example) for example in self._traces.values()]
        while len(sizes) > 1 and (len(sizes) > self.settings.max_traces or sum(sizes) > self.settings.max_trace_bytes):
            self._traces.popitem(last=False)
            sizes.pop(0)


def _masks(explored: ExploredModel) -> bool:
    return isinstance(explored, ExploredText) and explored.run.task == "masked"
