"""Menus of the exports: which panels a view has, their formats, and the address of each file."""

from collections.abc import Mapping
from typing import NamedTuple

from glassformer.explain.example import Example
from glassformer.layers.attention import MultiHeadAttention
from glassformer.web.explorer.exports.content import PanelExport
from glassformer.web.explorer.exports.formats import FORMATS
from glassformer.web.explorer.exports.tables import BEFORE_AFTER, MAP, PATCHES, REPORT, TIMELINE
from glassformer.web.explorer.exports.tensors import ATTENTION, CELL, EVERY_TENSOR, MATRIX, MODULE, OUTPUT
from glassformer.web.explorer.selection import Selection
from glassformer.web.explorer.views import VIEWS

PANEL = "of"
"""Key of the panel in the address of a file."""


class ExportLink(NamedTuple):
    """A file of a panel. ``format`` is ``png`` for one that the page draws itself from the SVG at ``address``."""

    label: str
    address: str
    format: str


class ExportGroup(NamedTuple):
    """The files of one panel: to download, and those that can be copied."""

    title: str
    downloads: tuple[ExportLink, ...]
    copies: tuple[ExportLink, ...]


def panel_exports(example: Example, selection: Selection) -> dict[str, PanelExport]:
    """The panels of a view by their key in the address; Python lines only for texts, which a script can contain."""
    found = _panels_of(example, selection)
    if example.task in ("images", "forecasting"):
        return {key: one._replace(formats=tuple(f for f in one.formats if f != "py")) for key, one in found.items()}
    return found


def _panels_of(example: Example, selection: Selection) -> dict[str, PanelExport]:
    found = {"stage": _stage(example, selection)}
    if selection.level == "cell":
        found["cell"] = CELL
    if selection.panel == "lab":
        found |= {"before": BEFORE_AFTER} if selection.interventions else {}
        found |= {"patches": PATCHES} if selection.donor else {}
    if any(name.endswith(".probabilities") for name in example.trace):
        found["output"] = OUTPUT
    tensors = {} if found["stage"] is EVERY_TENSOR else {"tensors": EVERY_TENSOR}
    return {**found, "timeline": TIMELINE, "map": MAP, **tensors, "report": REPORT}


def _stage(example: Example, selection: Selection) -> PanelExport:
    if selection.panel:
        return VIEWS[selection.panel].export or EVERY_TENSOR
    if selection.stage:
        return MATRIX
    attends = isinstance(example.model.get_submodule(selection.path), MultiHeadAttention)
    return ATTENTION if attends or not selection.path else MODULE


def menus_of(example: Example, selection: Selection) -> Mapping[str, tuple[ExportGroup, ...]]:
    """The menus by the panel where they stand: those without a place of their own are in that of the stage."""
    groups = {key: _group(key, one, example, selection) for key, one in panel_exports(example, selection).items()}
    own = [key for key in ("cell", "output") if key in groups]
    menus: dict[str, tuple[ExportGroup, ...]] = {key: (groups.pop(key),) for key in own}
    return {**menus, "stage": tuple(groups.values())}


def _group(key: str, export: PanelExport, example: Example, selection: Selection) -> ExportGroup:
    downloads = []
    for name in export.formats:
        drawn = name == "png"
        address = f"export/{'svg' if drawn else name}{selection.address}&{PANEL}={key}"
        downloads.append(ExportLink("PNG" if drawn else FORMATS[name].label, address, name))
    copies = tuple(one for one in downloads if one.format != "png" and FORMATS[one.format].text)
    return ExportGroup(export.title(example, selection), tuple(downloads), copies)
