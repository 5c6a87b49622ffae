"""Write docs/configuration.md from the configuration models: ``make docs``. A test holds the page against the code."""

from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from glassformer.train.tasks.translation import TranslationRun

PAGE = Path(__file__).parent / "configuration.md"
HEAD = """# Configuration

A run is configured by a TOML file with the sections below, and by `key.sub=value` on the command line over it.
Every key has a default unless the table says *required*; an unknown key is refused with the nearest known one.
The configuration that a run really had is in its folder, `config.toml`.
"""


def render() -> str:
    """The page: a table for each section, its keys in the order of the code."""
    parts = [HEAD]
    for section, field in TranslationRun.model_fields.items():
        model = field.annotation
        if section == "task":
            continue
        assert isinstance(model, type) and issubclass(model, BaseModel)
        about = " ".join((model.__doc__ or "").split())
        parts.append(
            f"## `[{section}]`\n\n{_plain(about)}\n\n| key | type | default | meaning |\n| --- | --- | --- | --- |"
        )
        parts.append("\n".join(_row(name, one) for name, one in model.model_fields.items()) + "\n")
    return "\n".join(parts)


def _row(name: str, field: FieldInfo) -> str:
    default = "*required*" if field.default is PydanticUndefined else f"`{_toml(field.default)}`"
    if field.default is None:
        default = "not given"
    return f"| `{name}` | {_type(field.annotation)} | {default} | {_plain(field.description or '')} |"


def _type(annotation: Any) -> str:
    """As a value of it is written in TOML."""
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
