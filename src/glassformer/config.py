"""Configuration: read TOML, apply ``key.sub=value``, refuse unknown keys with the nearest known one, write back.

The models themselves live beside what they configure; this file only knows how a configuration is read and refused.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from glassformer.errors import ConfigError, nearest
from glassformer.storage.regular_files import MEGABYTE, UnsuitableFileError, read_regular

LARGEST_FILE = 16 * MEGABYTE

FormerKeys = Mapping[str, str | Mapping[str | bool, dict[str, Any]]]
"""Keys of earlier versions: the present key of each, or present keys and values for each of its values.

A former key may be one of a section, as ``attention.dropout``.
"""


class Config(BaseModel):
    """Base of every configuration: immutable; an unknown key and a number that is not finite are errors."""

    # Not use_attribute_docstrings: it reads and parses the source of each class when that is defined.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    former_keys: ClassVar[FormerKeys] = {}

    @classmethod
    def parse(cls, values: dict[str, Any], origin: str = "configuration") -> Self:
        """Validate ``values``; a ``ConfigError`` says in one line what is wrong, where, and what would be right."""
        try:
            return cls._validate(values)
        except _FaultsError as error:
            raise ConfigError(f"{origin}: {error.faults[0]}") from None

    @classmethod
    def parse_stored(cls, values: dict[str, Any], origin: str) -> Self:
        """``parse`` for values stored as JSON: ``true`` is not a number, and ``"8"`` and ``8.0`` are not integers."""
        try:
            return cls._validate(values, stored=True)
        except _FaultsError as error:
            raise ConfigError(f"{origin}: {error.faults[0]}") from None

    @classmethod
    def read(cls, path: str | Path, overrides: list[str] | None = None) -> Self:
        """Default < file < ``overrides`` (``train.max_steps=200``). An error names the one that it comes with."""
        values = read_toml(path)
        for override in overrides or []:
            apply_override(values, override)
        try:
            return cls._validate(values)
        except _FaultsError as error:
            fault = error.faults[0]
            raise ConfigError(f"{cls._origin(path, overrides or [], fault)}: {fault}") from None

    @classmethod
    def _origin(cls, path: str | Path, overrides: list[str], fault: str) -> str:
        """Origin of ``fault``: the file, or the first override with which it appears."""
        values, origin = read_toml(path), str(path)
        for override in [*overrides, ""]:
            try:
                cls._validate(values)
            except _FaultsError as error:
                if fault in error.faults:
                    break
            if override:
                apply_override(values, override)
                origin = repr(override)
        return origin

    @classmethod
    def _validate(cls, values: dict[str, Any], stored: bool = False) -> Self:
        try:
            values = cls.migrate(values) if isinstance(values, dict) else values
            return cls.model_validate_json(json.dumps(values), strict=True) if stored else cls.model_validate(values)
        except ValidationError as error:
            raise _FaultsError([_describe(one, cls) for one in error.errors()]) from None

    @classmethod
    def migrate(cls, values: dict[str, Any], within: str = "") -> dict[str, Any]:
        """``values``, and those of its sections, with the present key for each former one.

        ``within``: path of these values in the whole configuration, for errors.
        """
        for key in [key for key in cls.former_keys if _holds(values, key)]:
            values, value = _without(values, key.split("."))
            for name, present in _present(key, value, cls.former_keys[key], within).items():
                if name in values:
                    fault = f"{within}{key} was replaced by {within}{name}, and both are set"
                    raise _FaultsError([f"{fault}; leave {within}{key} out"])
                values[name] = present
        for key in [key for key, value in values.items() if isinstance(value, dict) and key in cls.model_fields]:
            if section := _section(cls.model_fields[key].annotation):
                values = {**values, key: section.migrate(values[key], f"{within}{key}.")}
        return values

    def write(self, path: str | Path) -> None:
        """Write every value, defaults included, as TOML. ``None`` has no TOML form, so such keys are left out."""
        Path(path).write_bytes(to_toml(self.model_dump(mode="json")).encode())


class _FaultsError(ConfigError):
    """Errors of a configuration, one line each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(faults[0])
        self.faults = faults


def _section(annotation: Any) -> type[Config] | None:
    """The class of a field that is a section."""
    classes = [one for one in get_args(annotation) or [annotation] if isinstance(one, type) and issubclass(one, Config)]
    return classes[0] if classes else None


def _present(key: str, value: Any, now: str | Mapping[str | bool, dict[str, Any]], within: str) -> dict[str, Any]:
    """Present keys and values of a former key."""
    if isinstance(now, str):
        return {now: value}
    if isinstance(value, str | bool) and value in now:
        return now[value]
    keys = " and ".join(f"{within}{name}" for name in next(iter(now.values())))
    raise _FaultsError([f"{within}{key}={value!r}: {within}{key} was replaced by {keys}; set these"])


def _holds(values: Any, key: str) -> bool:
    first, _, rest = key.partition(".")
    return isinstance(values, dict) and first in values and (not rest or _holds(values[first], rest))


def _without(values: dict[str, Any], path: list[str]) -> tuple[dict[str, Any], Any]:
    """A copy of nested ``values`` without the key at ``path``, and the value of that key."""
    first, *rest = path
    others = {key: value for key, value in values.items() if key != first}
    if not rest:
        return others, values[first]
    section, value = _without(values[first], rest)
    return others | {first: section}, value


def to_toml(values: dict[str, Any]) -> str:
    """TOML of nested values; what is ``None`` is left out."""

    def without_none(values: dict[str, Any]) -> dict[str, Any]:
        return {k: without_none(v) if isinstance(v, dict) else v for k, v in values.items() if v is not None}

    return tomli_w.dumps(without_none(values))


def read_toml(path: str | Path) -> dict[str, Any]:
    path = Path(path)
    try:
        return tomllib.loads(read_regular(path, LARGEST_FILE).decode("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; name a configuration file in TOML") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder; name a configuration file in TOML") from None
    except PermissionError:
        raise ConfigError(
            f"{path}: cannot be read (permission denied); make it readable, or name another file"
        ) from None
    except UnsuitableFileError as error:
        raise ConfigError(f"{path}: {error}; name a configuration file in TOML") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {_place(error)}; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {_lowered(str(error))}; correct it there") from None
    except RecursionError:
        raise ConfigError(f"{path}: not valid TOML: brackets are nested too deeply; close them") from None


def apply_override(values: dict[str, Any], override: str) -> None:
    """Set one ``key.sub=value`` in nested ``values``. The value is read as TOML; what is not TOML is taken as text."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"{override!r} is not key=value; write for example train.max_steps=200")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = text
    *parents, last = key.split(".")
    for depth, parent in enumerate(parents, start=1):
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise ConfigError(
                f"{override!r}: {'.'.join(parents[:depth])} is a value, not a section; set it without .{last}"
            )
    values[last] = value


def _describe(error: ErrorDetails, cls: type[BaseModel]) -> str:
    """One problem, as one line. A key that is known in another section is pointed to there."""
    where = [str(part) for part in error["loc"]]
    path = ".".join(where)
    if error["type"] == "extra_forbidden":
        return f"unknown key {path}; {_hint(where, cls)}"
    if error["type"] == "missing":
        return f"{path} is not given, and it has no default; add it"
    if error["type"] == "model_type":
        return f"{path}={error['input']!r}: {path} is a section, not a value; set the keys in it"
    message = error["msg"].removeprefix("Value error, ").partition(", unable")[0].replace(" after validation", "")
    value = error.get("input")
    if not where or isinstance(value, dict | BaseModel):
        return f"{path}: {message}" if where else message
    return f"{path}={value!r}: {_lowered(message)}"


def _lowered(message: str) -> str:
    return message[:1].lower() + message[1:]


def _place(error: UnicodeDecodeError) -> str:
    line = error.object.count(b"\n", 0, error.start) + 1
    return f"byte 0x{error.object[error.start]:02x} in line {line} is not UTF-8"


def _hint(where: list[str], cls: type[BaseModel]) -> str:
    section: type[BaseModel] = cls
    for part in where[:-1]:
        annotation = section.model_fields[part].annotation if part in section.model_fields else None
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            section = annotation
    prefix = "".join(f"{part}." for part in where[:-1])
    elsewhere = [
        f"{name}.{where[-1]}"
        for name, field in cls.model_fields.items()
        if isinstance(field.annotation, type)
        and issubclass(field.annotation, BaseModel)
        and where[-1] in field.annotation.model_fields
    ]
    if elsewhere:
        return f"did you mean {elsewhere[0]}?"
    return nearest(where[-1], list(section.model_fields), prefix)
