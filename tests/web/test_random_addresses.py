"""Random addresses: each answer is a page, a file, numbers, or an error of the user, for every kind of model."""

import random
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from glassformer.errors import GlassformerError
from glassformer.explain.analysis.interventions import attentions
from glassformer.explain.analysis.patching import patch_groups
from glassformer.web.explorer.atlas_request import control_atlas
from glassformer.web.explorer.exports.formats import FORMATS
from glassformer.web.explorer.page import export_panel, render_page
from glassformer.web.explorer.selection import KEYS, MODES, Selection
from glassformer.web.explorer.session import Session
from glassformer.web.explorer.views import VIEWS
from glassformer.web.settings import WebSettings
from tiny_run import made as made_translator
from tiny_tasks import EXAMPLES, made

TEXTS = [
    "",
    " ",
    "the old cat sleeps",
    "the [MASK] runs.",
    "a",
    "3",
    "99",
    "low",
    "\0",
    "<b>&\"'",
    "=1",
    "é 🙂",
    "\u2028x",
]
TEXTS += ["the dog " * 30, "a cat ||| un chat", "0-0 1?2", "x\n\ny", "-entropy", "1.mean.shifted", "../x"]
NUMBERS = ["0", "1", "2", "7", "200", "9999999", "x", "-1", ""]


class Addresses:
    """Addresses of a run, of names that its model has and of others."""

    def __init__(self, session: Session, seed: int) -> None:
        example = session.examine(Selection(), []).example
        self.random = random.Random(seed)
        self.runs = [*session.runs, "x"]
        self.checkpoints = [one.name for one in session.checkpoints()] + ["x"]
        self.names = [*example.trace, *(name for name, _ in example.model.named_modules() if name)]
        self.groups = patch_groups(example.model)
        self.patched = [name for names in self.groups.values() for name in names] or ["x"]
        weights = {path: f"{path}.weights" for path in attentions(example.model)}
        self.keys = {path: example.trace[name].size(-1) for path, name in weights.items() if name in example.trace}

    def query(self) -> str:
        pairs = self.place() if self.random.random() < 0.7 else []
        for field, key in KEYS.items():
            if key.name not in dict(pairs) and self.random.random() < (0.5 if field == "panel" else 0.2):
                count = self.random.randrange(1, 4) if field == "interventions" else 1
                pairs += [(key.name, self.value(field)) for _ in range(count)]
        return urlencode(pairs)

    def place(self) -> list[tuple[str, str]]:
        """A module or a tensor, and a number in it."""
        parts = self.random.choice(self.names).split(".")
        place = {"part": parts.pop(0)}
        if parts[:1] == ["layers"] and len(parts) > 1:
            place["layer"] = parts[1]
            parts = parts[2:]
        if len(parts) > 1:
            place["sublayer"] = parts.pop(0)
        if parts:
            place["stage"] = ".".join(parts)
        indices = [name for name in ("head", "row", "column", "step") if self.random.random() < 0.5]
        return [*place.items(), *((name, self.random.choice(NUMBERS)) for name in indices)]

    def value(self, field: str) -> str:
        choices = {
            "run": self.runs,
            "other_run": self.runs,
            "checkpoint": self.checkpoints,
            "other_checkpoint": self.checkpoints,
            "mode": [*MODES, "x"],
            "panel": [*VIEWS, "x"],
            "grid": [*self.groups, "x"],
            "side": ["source", "target", "text", "x"],
        }
        if field == "interventions":
            return self.intervention()
        if field in choices:
            return self.random.choice(choices[field])
        if isinstance(getattr(Selection(), field), str):
            return self.random.choice(TEXTS)
        return self.random.choice(NUMBERS)

    def intervention(self) -> str:
        path, head = self.random.choice(list(self.keys) or ["x"]), self.random.randrange(3)
        units = "-".join(self.random.choice(["0", "1", "500"]) for _ in range(self.keys.get(path, 3)))
        off = f"{path}.{head}:{self.random.choice(['zero', 'mean', 'x'])}"
        row = f"{path}.{head}.{self.random.randrange(4)}:{units}"
        patch = f"{self.random.choice(self.patched)}@{self.random.choice(['all', '0', '1', '99'])}"
        return self.random.choice([off, row, patch, patch, self.random.choice(TEXTS)])


@pytest.mark.parametrize("task", ["translation", *EXAMPLES])
def test_random_addresses_have_answers(task: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    def run(name: str) -> Any:
        return (made_translator(tmp_path_factory) if name == "translation" else made(tmp_path_factory, name)).run

    session = Session(run(task), WebSettings(max_tokens=64), [run("language" if task != "language" else "masked")])
    addresses = Addresses(session, 7)
    of = ["stage", "cell", "output", "timeline", "map", "tensors", "report", "x"]
    region = "&top=0&left=1&height=4&width=4"
    choose = addresses.random.choice
    kinds: list[Callable[[str], Any]] = [
        lambda query: render_page(session, query, addresses.random.random() < 0.5),
        lambda query: b"".join(export_panel(session, f"{query}&of={choose(of)}", choose([*FORMATS])).pieces),
        lambda query: session.logits(query),
        lambda query: session.matrix(query + region),
        lambda query: control_atlas(session, query, choose(["cancel", "resume", "x"])),
    ]
    pages = refused = 0
    for number in range(60):
        query = addresses.query()
        kind = kinds[0] if number % 2 else choose(kinds)
        try:
            answer = kind(query)
        except GlassformerError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"?{query} has no answer") from error
        else:
            pages += kind is kinds[0] and answer.status == 200
        session.jobs.step()
    assert pages > 5
    assert refused > 0
