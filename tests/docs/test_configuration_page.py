"""docs/configuration.md is what the code says."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_up_to_date() -> None:
    made = runpy.run_path(str(DOCS / "make_configuration.py"))["render"]()
    assert (DOCS / "configuration.md").read_text(encoding="utf-8") == made, "run make docs"
