"""The explorer: pages on which people move through a run. Sessions are imported when used, as they import PyTorch."""

from typing import TYPE_CHECKING

from glassformer.lazy_imports import lazy_attributes

if TYPE_CHECKING:
    from glassformer.web.explorer.atlas_request import control_atlas
    from glassformer.web.explorer.page import ExplorerPage, export_panel, render_page
    from glassformer.web.explorer.session import Session
    from glassformer.web.explorer.traced import ViewInterruptedError

__all__ = ["ExplorerPage", "Session", "ViewInterruptedError", "control_atlas", "export_panel", "render_page"]

_HOMES = {
    "ExplorerPage": "page",
    "Session": "session",
    "ViewInterruptedError": "traced",
    "control_atlas": "atlas_request",
    "export_panel": "page",
    "render_page": "page",
}
__getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
