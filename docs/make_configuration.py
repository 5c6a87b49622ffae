"""Write docs/configuration.md from the configuration models: ``make docs``. A test holds the page against the code."""

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from glassformer.train import RunConfig

PAGE = Path(__file__).parent / "configuration.md"
HEAD = """# Configuration

A run is configured by a TOML file with the sections below, and by `key.sub=value` on the command line over it.
Every key has a default unless the table says *required*; an unknown key is refused with the nearest known one.
The configuration that a run really had is in its folder, `config.toml`.
"""


def render() -> str:
    """The page: a table for each section, its keys in the order of the code."""
    parts = [HEAD]
    for section, field in RunConfig.model_fields.items():
        model = field.annotation
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
    name = (
        annotation.__name__ if isinstance(annotation, type) and not hasattr(annotation, "__args__") else str(annotation)
    )
    name = name.replace("typing.", "").replace(" | None", "")
    if name.startswith("Literal["):
        return " ".join(f"`{choice}`" for choice in re.findall(r"'([^']+)'", name))
    return name.replace("|", "or")


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
