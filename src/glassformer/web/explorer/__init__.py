"""The explorer: pages on which people move through a run. Sessions are imported when used, as they import PyTorch."""

from typing import TYPE_CHECKING

from glassformer.lazy_imports import lazy_attributes

if TYPE_CHECKING:
    from glassformer.web.explorer.page import ExplorerPage, render_page
    from glassformer.web.explorer.session import Session

__all__ = ["ExplorerPage", "Session", "render_page"]

__getattr__, __dir__ = lazy_attributes(__name__, {"ExplorerPage": "page", "Session": "session", "render_page": "page"})
