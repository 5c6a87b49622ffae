"""Write docs/tensor-names.md from the table of taps: ``make docs``. A test compares the page with the code."""

import re
from collections import defaultdict
from pathlib import Path
from textwrap import fill
from typing import Any

from torch import nn

from glassformer.explain.formula.table import TAPS, Tap, find_row
from glassformer.models.registry import build_model

PAGE = Path(__file__).parent / "tensor-names.md"
HEAD = """# The names of tensors

`with glassformer.trace(model) as t:` records what a forward pass computes. A name is the path of a module and the name
of its tap: `t["decoder.layers.1.cross_attention.weights"]`. `keep="*.weights"` records only what matches;
`edits={name: function}` replaces a tensor by what the function makes of it. These names are public: they change with a
major version only.

`t.axes(name)` names the axes of a tensor, `t.at(name, head=1, query=2)` fixes some. With fewer heads of keys and values
than of queries, the `head` of `k` and `v` counts those. Of a series model every variable is a row of the `batch`.
A search records each tensor once a step; `t.all(name)` is the list. `t[name] = tensor` replaces a recorded tensor;
nothing is computed again. `glassformer.explain(t, name, …)` gives the formula of a number with its operands; taps
marked † have none. ° marks what is recorded only to be seen: nothing is computed from it, so an edit of it is refused.

The tables follow the classes of modules. Formulas are those of the default settings, references without a name those of
"Attention Is All You Need". N is the number of a layer.
"""
STACK = {"d_model": 8, "n_heads": 2, "d_ff": 8, "n_layers": 1}
LLAMA = {"norm": "rms", "positions": "rotary", "gated": True}
PAIR = {"kind": "encoder_decoder", "vocab_size": 8, "d_model": 8, "n_heads": 2, "d_ff": 8}
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("encoder–decoder", PAIR),
    ("encoder–decoder", {**PAIR, "norm_order": "pre"}),
    ("encoder–decoder", {**PAIR, "positions": "rotary", "norm_embeddings": True}),
    ("GPT", {"kind": "gpt", "vocab_size": 8, **STACK}),
    ("GPT", {"kind": "gpt", "vocab_size": 8, **STACK, **LLAMA}),
    ("BERT", {"kind": "bert", "vocab_size": 8, **STACK, "n_classes": 3, "n_tags": 4}),
    ("ViT", {"kind": "vit", "n_classes": 5, "image_size": (4, 6), "patch_size": 2, "n_channels": 3, **STACK}),
    ("series", {"kind": "series", "context": 12, "horizon": 5, "patch_length": 4, "patch_stride": 3, **STACK}),
    ("recurrent", {"kind": "recurrent", "vocab_size": 8, "d_model": 8, "d_hidden": 8, "n_heads": 2}),
]
"""Models that together have every class of module in every place, and every setting that adds a tap."""

Row = tuple[type[nn.Module], str]


def render() -> str:
    """The page: a table for each class of module, in the order of the code."""
    places = find_places()
    sections = []
    for module, taps in TAPS.items():
        models = defaultdict(set)
        for tap in taps:
            for path, model in places[module, tap]:
                models[path].add(model)
        everywhere = ", ".join(f"{_path(path)}\u00a0({', '.join(_ordered(names))})" for path, names in models.items())
        lines = fill(everywhere, 120, break_long_words=False, break_on_hyphens=False).replace("\u00a0", " ")
        rows = [_row(tap, record, places[module, tap], set(models)) for tap, record in taps.items()]
        head = "| tap | axes | formula | reference | recorded |\n| --- | --- | --- | --- | --- |"
        sections.append("\n".join([f"\n## `{module.__name__}`\n\n{lines}\n\n{head}", *rows, ""]))
    return HEAD + "".join(sections)


def find_places() -> dict[Row, list[tuple[str, str]]]:
    """Paths of the modules that record each row of the table, each with the name of a model that has it there."""
    places: dict[Row, list[tuple[str, str]]] = defaultdict(list)
    for name, values in FORMS:
        model = build_model(values, name)
        for path, module in model.named_modules():
            for kind in type(module).__mro__:
                for tap, record in TAPS.get(kind, {}).items():
                    place = re.sub(r"\.\d+", ".N", path), name
                    row = find_row(model, f"{path}.{tap}".removeprefix("."))
                    if row == (kind, tap) and holds(record, module) and place not in places[row]:
                        places[row].append(place)
    return places


def holds(tap: Tap, module: nn.Module) -> bool:
    """True if nothing about ``module`` keeps it from recording ``tap``."""
    return tap.condition is None or tap.condition.holds is None or tap.condition.holds(module)


def _row(name: str, tap: Tap, places: list[tuple[str, str]], everywhere: set[str]) -> str:
    marks = "°" * tap.read_only + "†" * (tap.derive is None)
    paths = list(dict.fromkeys(path for path, _ in places))
    only = "" if set(paths) == everywhere else "in " + " ".join(map(_path, paths))
    condition = "" if tap.condition is None else tap.condition.text
    recorded = "; ".join(filter(None, (condition, only)))
    return f"| `{name}`{marks} | {' '.join(tap.axes)} | $`{tap.formula}`$ | {tap.reference} | {recorded} |"


def _path(path: str) -> str:
    return f"`{path}`" if path else "the model"


def _ordered(models: set[str]) -> list[str]:
    return [name for name in dict.fromkeys(name for name, _ in FORMS) if name in models]


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
