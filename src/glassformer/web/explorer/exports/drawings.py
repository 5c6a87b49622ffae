"""Drawings of the page as files of their own: the same markup, with the rules of the style sheets that it needs.

The page's colors are variables that differ on light and on dark. A file has the light ones in full, since other
programs know no variables.
"""

import re
from collections.abc import Iterator
from functools import cache
from html import escape
from importlib.resources import files

from jinja2 import Environment

from glassformer.web.explorer.exports.content import PanelDrawing

MARGIN, HEAD = 16, 44
"""Pixels around a drawing, and above it, where its title stands."""
FONT = "system-ui, 'Noto Sans', sans-serif"


def standalone(drawing: PanelDrawing, title: str, templates: Environment) -> str:
    """The first ``<svg>`` of the template as a file: light, with a title, without links."""
    html = templates.get_template(drawing.template).render(drawing.values)
    found = re.search(r"<svg\b[^>]*\bviewBox=\"0 0 ([0-9.]+) ([0-9.]+)\"[^>]*>(.*?)</svg>", html, re.DOTALL)
    assert found is not None, drawing.template
    inner = _without_links(_without_controls(found[3]))
    width = max(float(found[1]), 7.5 * len(title)) + 2 * MARGIN
    height = float(found[2]) + HEAD + MARGIN
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    classes = set(" ".join([drawing.classes, *re.findall(r'class="([^"]*)"', inner)]).split())
    text = _without_controls(escape(title))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}" font-size="13" role="img">\n'
        f"<title>{text}</title>\n<style>\n{chr(10).join(_rules(classes))}\n</style>\n"
        f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>\n'
        f'<text x="{MARGIN}" y="27" font-size="15" font-weight="bold" fill="#1c2230">{text}</text>\n'
        f'<g class="{escape(drawing.classes)}" transform="translate({MARGIN} {HEAD})">{inner}</g>\n</svg>\n'
    )


def _without_links(markup: str) -> str:
    """Links become groups; what scripts of the page read is left out."""
    markup = re.sub(r"<a\b", "<g", markup).replace("</a>", "</g>")
    return re.sub(r'\s(?:href="(?!data:)|data-[\w-]+="|tabindex=")[^"]*"', "", markup)


def _without_controls(text: str) -> str:
    """``text`` with the characters replaced that XML does not allow."""
    return re.sub(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)


def _rules(classes: set[str]) -> Iterator[str]:
    """Rules whose selectors name these classes, and at least one of them."""
    for selectors, body in _style_rules():
        chosen = [one for one in selectors if (named := set(re.findall(r"\.([\w-]+)", one))) and named <= classes]
        if chosen:
            yield f"{', '.join(chosen)} {{ {body} }}"


@cache
def _style_rules() -> tuple[tuple[tuple[str, ...], str], ...]:
    """Selectors and declarations of every rule of the page that is not of a medium or a state, in light colors."""
    static = files("glassformer.web.explorer") / "static"
    palette = (files("glassformer") / "explain" / "page" / "palette.css").read_text(encoding="utf-8")
    sheets = sorted((one for one in static.iterdir() if one.name.endswith(".css")), key=lambda one: one.name)
    text = _light(palette + "\n".join(one.read_text(encoding="utf-8") for one in sheets))
    colors = dict(re.findall(r"(--[\w-]+):\s*([^;]+);", text))
    found = []
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", _without_blocks(text)):
        names = (re.sub(r"(?<![\w.#-])a(?![\w-])", "g", one.strip()) for one in selectors.split(","))
        filled = re.sub(r"var\((--[\w-]+)\)", lambda match: colors.get(match[1], "currentColor"), body)
        found.append((tuple(one for one in names if ":" not in one), filled.strip()))
    return tuple(found)


def _light(css: str) -> str:
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    return re.sub(r"light-dark\(([^,()]+),[^()]*\)", r"\1", css)


def _without_blocks(css: str) -> str:
    """``css`` without ``@media``, ``@keyframes`` and their like."""
    return re.sub(r"@[^{;]+\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", css)
