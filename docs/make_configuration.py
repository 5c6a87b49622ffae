"""Write docs/configuration.md from the configuration models: ``make docs``. A test holds the page against the code."""

import ast
import inspect
import textwrap
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from glassformer.config import Config
from glassformer.generate import DecodingConfig
from glassformer.tasks import TASKS, resolve_name
from glassformer.text import TextConfig
from glassformer.train import OptimizerConfig, TrainConfig

PAGE = Path(__file__).parent / "configuration.md"
HEAD = """# Configuration

A TOML file with the sections below configures a run; `key.sub=value` on the command line overrides it. `task` defaults
to the task of `model.kind`. Sections that several tasks share are listed once; a task lists only its own keys and those
that differ. Every key has a default unless the table says *required*. An unknown key is an error that names the nearest
known one. The folder of a run contains its complete configuration, `config.toml`.
"""


def render() -> str:
    """The page: sections of every run, then the sections of each task, with keys in the order of the code."""
    parts = [HEAD, "## Sections of every run\n"]
    shared = {"optimizer": OptimizerConfig, "train": TrainConfig, "text": TextConfig, "decoding": DecodingConfig}
    parts += [_section(name, model, model.model_fields) for name, model in shared.items()]
    shown = set(shared.values())
    for task, record in TASKS.items():
        for kind, name_of_run in record.settings.items():
            run = resolve_name(name_of_run)
            parts.append(f'## `task = "{task}"`, `model.kind = "{kind}"`\n\n{_about(run)}\n')
            for name, field in run.model_fields.items():
                if name != "task" and field.annotation not in shown:
                    parts += _differing(name, field.annotation, shared.get(name))
                    shown.add(field.annotation)
    return "\n".join(parts)


def _differing(name: str, model: Any, shared: type[BaseModel] | None) -> list[str]:
    """The section as a table; for a section of every run, only the keys that differ."""
    assert isinstance(model, type) and issubclass(model, BaseModel)
    known = {} if shared is None else _rows(shared)
    rows = _rows(model)
    fields = {key: field for key, field in model.model_fields.items() if key not in known or rows[key] != known[key]}
    return [_section(name, model, fields)] if fields else []


def _section(name: str, model: type[BaseModel], fields: dict[str, FieldInfo]) -> str:
    head = f"### `[{name}]`\n\n{_about(model)}\n\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n"
    inner = [
        _section(f"{name}.{key}", field.annotation, field.annotation.model_fields)
        for key, field in fields.items()
        if _is_section(field)
    ]
    rows = "\n".join(row for key, row in _rows(model).items() if key in fields and not _is_section(fields[key]))
    return "\n".join([f"{head}{rows}\n", *inner])


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _about(model: type[BaseModel]) -> str:
    text = _plain(" ".join((model.__doc__ or "").split()))
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _rows(model: type[BaseModel]) -> dict[str, str]:
    """The row of each key."""
    docstrings = _docstrings(model)
    return {name: _row(name, field, docstrings.get(name, "")) for name, field in model.model_fields.items()}


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The string literal below each attribute of ``model``, inherited ones included."""
    found = {}
    for base in reversed([base for base in model.__mro__ if issubclass(base, Config)]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for attribute, text in pairwise([*definition.body, None]):
            match attribute, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                    found[name] = meaning
                case ast.AnnAssign(target=ast.Name(id=name)), _:
                    found[name] = ""
    return found


def _row(name: str, field: FieldInfo, docstring: str) -> str:
    default = "*required*" if field.default is PydanticUndefined else f"`{_toml(field.default)}`"
    if field.default is None:
        default = "none"
    return f"| `{name}` | {_type(field.annotation)} | {default} | {_plain(field.description or docstring)} |"


def _type(annotation: Any) -> str:
    """The type as its values are written in TOML."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " ".join(f"`{choice}`" for choice in parts)
    if origin is Annotated:
        return _type(parts[0])
    if origin in (Union, UnionType):
        return " or ".join(_type(part) for part in parts if part is not NoneType)
    if origin in (list, tuple):
        items = [part for part in parts if part is not Ellipsis]
        return f"[{', '.join(map(_type, items))}{', …' if origin is list or len(items) < len(parts) else ''}]"
    if origin is dict:
        return f"{{{_type(parts[0])} = {_type(parts[1])}, …}}"
    return str(annotation.__name__)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return str(list(value)) if isinstance(value, tuple) else str(value)


def _plain(text: str) -> str:
    return " ".join(text.replace("``", "`").replace("|", "\\|").split())


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
