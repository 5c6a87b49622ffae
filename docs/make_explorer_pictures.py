"""The pictures of ``docs/explorer/``, and of every view of the explorer in every width and theme.

    python docs/make_explorer_pictures.py RUN [--all FOLDER]

RUN is a run of the demo that has kept checkpoints from its beginning (``docs/explorer.md``, "Over training"). ``--all``
writes the views into FOLDER instead: 1,440, 1,024 and 390 pixels wide, light and dark. Needs the extra ``web``,
playwright, Pillow and Chromium.
"""

import argparse
import io
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
SOURCE, DONOR = "every young sister always buys them here", "every old sister always buys them here"
HEAD = {"part": "decoder", "layer": 1, "sublayer": "cross_attention", "head": 0}
PICTURES: dict[str, tuple[int, dict[str, Any]]] = {
    "model": (900, {}),
    "number": (900, {**HEAD, "stage": "weights", "row": 3, "column": 5}),
    "beam": (900, {"panel": "beam"}),
    "alignment": (1200, {"panel": "alignment"}),
    "lab": (1690, {"panel": "lab", "donor": DONOR, "edit": "decoder.layers.1.cross_attention.0:zero", "step": 1}),
    "compare": (1180, {"panel": "compare", "other_checkpoint": "step_00000100"}),
    "over-training": (1240, {**HEAD, "panel": "training"}),
}
"""Height of a picture in the guide, and the address of its view."""
FURTHER: dict[str, dict[str, Any]] = {
    "layer": {"part": "decoder", "layer": 1},
    "head": HEAD,
    "matrix": {**HEAD, "stage": "weights"},
    "tour": {"panel": "tour"},
    "vectors": {"panel": "vectors"},
    "lens": {"panel": "lens"},
    "atlas": {"panel": "atlas"},
}
COLORS = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="write every view, width and theme there instead")
    options = parser.parse_args()
    command = [sys.executable, "-m", "glassformer", "--quiet", "explore", str(options.run), "--no-browser"]
    with sync_playwright() as playwright, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_context(reduced_motion="reduce").new_page()
        page.set_default_timeout(120_000)
        page.goto(address)
        page.wait_for_selector("#stage-title")
        origin = address.partition("?")[0]
        if options.all is None:
            for name, (height, fields) in PICTURES.items():
                save(page, origin, fields, (1440, height), "light", HERE / "explorer" / f"{name}.png")
        else:
            options.all.mkdir(parents=True, exist_ok=True)
            for name, fields in ({name: fields for name, (_, fields) in PICTURES.items()} | FURTHER).items():
                for width in (1440, 1024, 390):
                    for theme in ("light", "dark"):
                        save(page, origin, fields, (width, 900), theme, options.all / f"{name}-{width}-{theme}.png")
        browser.close()
        server.terminate()


def save(page: Page, origin: str, fields: dict[str, Any], size: tuple[int, int], theme: Any, path: Path) -> None:
    """Write the picture of a view once all its parts are there."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme=theme)
    page.goto(f"{origin}?{urlencode({'source': SOURCE, **fields})}")
    page.wait_for_selector("#stage-title")
    while page.evaluate("() => document.querySelector('[data-pending], [data-again], progress') !== null"):
        page.wait_for_timeout(100)
    page.wait_for_timeout(300)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
