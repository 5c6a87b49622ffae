"""Python lines that give the numbers of a view: the run, the trace with its interventions, and the index."""

from collections.abc import Sequence
from pprint import pformat

from glassformer.web.explorer.exports.content import ExportContent
from glassformer.web.explorer.interventions import HeadOff, Intervention
from glassformer.web.explorer.traced import TracedSelection

HEADS = "from glassformer.explain.analysis.interventions import Inputs, in_turn, switch_off"
EVERY_KIND = "from glassformer.web.explorer.interventions import edits_of, parse_interventions"


def write_script(traced: TracedSelection, content: ExportContent) -> str:
    """A script that loads the checkpoint, traces the example, and ends with the lines of ``content``.

    Texts are Python literals, so none of their characters can end one.
    """
    named = [*content.imports]
    if traced.interventions:
        named.append(EVERY_KIND if _heads_of(traced.interventions) is None else HEADS)
    if not traced.explored.translates:
        named.append("from glassformer.explain import ExampleInput, examine_run")
    parts = [
        f'"""{content.title}: the numbers of a view of glassformer explore."""',
        "\n".join(["import glassformer", *(["", *sorted(named)] if named else [])]),
        "\n".join(_trace_lines(traced)),
        "\n".join(content.code),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _trace_lines(traced: TracedSelection) -> list[str]:
    """Lines that give ``example``, first without interventions, since those need its numbers."""
    if traced.explored.translates:
        target, first = traced.example.target, f"translator = glassformer.load({str(traced.checkpoint)!r})"

        def call(text: str, edits: str = "") -> str:
            return f"glassformer.examine(translator, {text!r}, {target!r}{edits})"
    else:
        first = f"run = {str(traced.checkpoint)!r}"
        second = f", {traced.selection.target!r}" if _has_second_text(traced) else ""

        def call(text: str, edits: str = "") -> str:
            return f"examine_run(run, ExampleInput({text!r}{second}{edits}))"

    source, donor_text = traced.selection.source, traced.selection.donor  # an example joins two texts into one
    lines = [first, f"example = {call(source)}"]
    if not traced.interventions:
        return lines
    heads = _heads_of(traced.interventions)
    if heads is None:
        texts = pformat([one.text for one in traced.interventions], width=100)
        donor = "None" if traced.donor is None else "donor.trace"
        lines += [f"donor = {call(donor_text)}"] if traced.donor is not None else []
        lines += [
            f"found = parse_interventions({texts}, example, [], {donor})",
            f"edits = edits_of(found, example, {donor})",
        ]
    else:
        lines += _edit_lines(heads)
    return [*lines, f"example = {call(source, ', edits=edits')}"]


def _has_second_text(traced: TracedSelection) -> bool:
    return traced.example.task == "classification" and bool(traced.selection.target)


def _heads_of(interventions: Sequence[Intervention]) -> list[HeadOff] | None:
    """The heads that are off; None if there are interventions of other kinds."""
    heads = [one for one in interventions if isinstance(one, HeadOff)]
    return heads if len(heads) == len(interventions) else None


def _edit_lines(heads: Sequence[HeadOff]) -> list[str]:
    """Lines that give ``edits``, which switch the heads off."""
    groups: dict[str, dict[str, list[int]]] = {}
    for one in heads:
        groups.setdefault(one.by, {}).setdefault(one.path, []).append(one.head)
    lines = ["edits = {}"]
    for by, paths in groups.items():
        chosen = pformat(paths, width=100, sort_dicts=False)
        lines += [
            f"heads = {chosen}",
            f'for name, edit in switch_off(example.model, heads, "{by}", Inputs.of(example)).items():',
            "    edits[name] = in_turn(edits[name], edit) if name in edits else edit",
        ]
    return lines
