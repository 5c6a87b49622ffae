"""Arguments and options that several commands have, their shell completion, settings, and former spellings."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from glassformer.cli.messages import warn

if TYPE_CHECKING:
    from glassformer.config import Config

T = TypeVar("T")

SECTION = "decoding"
"""The section of the settings of commands that use a trained run."""


MARKS_OF_RUNS = ("checkpoints", "manifest.json")
"""Entries of a run folder and of a checkpoint folder. ``storage`` defines them, but imports PyTorch."""
LARGEST_FOLDER = 1000
"""Entries to read of a folder: completion must not wait for a large one."""


def complete_devices(incomplete: str) -> list[str]:
    return [name for name in ("auto", "cpu", "cuda") if name.startswith(incomplete)]


def complete_runs(incomplete: str) -> list[str]:
    """Runs and checkpoints at most two folders below the word so far."""
    folder = incomplete.rpartition("/")[0]
    return sorted(
        path for path in _runs_in(folder + "/" if "/" in incomplete else "", 2) if path.startswith(incomplete)
    )


def _runs_in(folder: str, depth: int) -> Iterator[str]:
    names: list[str] = []
    with suppress(OSError), os.scandir(folder or ".") as entries:
        for _, entry in zip(range(LARGEST_FOLDER), entries, strict=False):
            if entry.is_dir() and not entry.name.startswith("."):
                names.append(entry.name)
    for name in names:
        path = folder + name
        if any(Path(path, mark).exists() for mark in MARKS_OF_RUNS):
            yield path
        elif depth:
            yield from _runs_in(f"{path}/", depth - 1)


def run_argument(kind: str = "") -> Any:
    """Argument for a run of some ``kind``."""
    return typer.Argument(help=f"Run or checkpoint folder{kind and ' of '}{kind}.", autocompletion=complete_runs)


def _check_form(settings: list[str] | None) -> list[str] | None:
    for setting in settings or []:
        if "=" not in setting:
            raise typer.BadParameter(f"{setting!r} has no '='; write for example {SECTION}.beam_size=8")
    return settings


Configuration = Annotated[Path, typer.Argument(help="Configuration in TOML, as in configs/.", show_default=False)]
Run = Annotated[str, run_argument()]
SourceLines = Annotated[str, typer.Argument(help="File of source lines.")]
TargetLines = Annotated[str, typer.Argument(help="File of target lines.")]
SecondText = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Translation, or second text of a pair. [default: the model's translation]"),
]


def refuse_zstd(output: Any) -> Any:
    """Return ``output``; raise ``ConfigError`` before any work for ``.zst``, which no command writes."""
    if str(output).endswith(".zst"):
        from glassformer.errors import ConfigError

        raise ConfigError(f"{output}: an output is not compressed by zstd; name it .gz, or without .zst")
    return output


OutputFile = Annotated[
    str,
    typer.Option(
        "-o", "--output", metavar="FILE", callback=refuse_zstd, help="Output file, .gz or plain; - is standard output."
    ),
]


def _settings(example: str, **options: Any) -> Any:
    help = f"Settings, as in {example}."
    return typer.Argument(metavar="KEY=VALUE", help=help, show_default=False, **options)


def _set_option(help: str, **options: Any) -> Any:
    return typer.Option("-s", "--set", metavar="KEY=VALUE", help=help, **options)


Overrides = Annotated[list[str] | None, _settings("train.max_steps=200")]
SetOverride = Annotated[list[str] | None, _set_option("The same as an option; may be repeated.")]
Settings = Annotated[list[str] | None, _settings(f"{SECTION}.beam_size=8", callback=_check_form)]
SetOption = Annotated[
    list[str] | None,
    _set_option(f"The same as an option; {SECTION}. may be left out: -s beam_size=8.", callback=_check_form),
]
Device = Annotated[
    str,
    typer.Option(help="Device: cpu, cuda, or auto, a GPU if there is one.", autocompletion=complete_devices),
]
Seed = Annotated[int | None, typer.Option(help="Random seed for sampling.")]
RefuseLong = Annotated[bool, typer.Option("--refuse-long", hidden=True)]
"""Former spelling of ``--no-truncate``."""
Engine = Annotated[
    Literal["auto", "torch", "native"], typer.Option(help="Code that computes the model; auto picks the fastest.")
]
Precision = Annotated[
    Literal["float32", "bfloat16", "int8"], typer.Option(help="Type of matrix products; bfloat16 is for GPUs.")
]
MaxLineBytes = Annotated[
    int, typer.Option(min=1, metavar="BYTES", help="Maximum size of a line; a longer line is an error.")
]
Shard = Annotated[
    str | None,
    typer.Option("--shard", metavar="I/N", help="Take part I of N of the input, such as 1/4; cat joins the outputs."),
]
Restart = Annotated[
    bool, typer.Option("--restart", help="Begin again instead of continuing an interrupted output (FILE.part).")
]


def present(**options: Any) -> dict[str, Any]:
    """The options that have a value."""
    return {name: value for name, value in options.items() if value is not None}


def split_settings(arguments: Iterable[str]) -> tuple[list[str], list[str]]:
    """Divide arguments into texts or files, and settings, which begin with ``decoding.`` and have a ``=``."""
    others: list[str] = []
    settings: list[str] = []
    for argument in arguments:
        (settings if argument.startswith(f"{SECTION}.") and "=" in argument else others).append(argument)
    return others, settings


def text_and_settings(
    text: str | None, settings: list[str] | None, set_options: list[str] | None, config: "type[Config]", **options: Any
) -> tuple[str | None, dict[str, Any]]:
    """The text or file of a command, and its decoding settings: arguments, then ``-s``, then ``options``.

    ``text`` is the first argument, which may be a setting: ``translate RUN decoding.beam_size=8``.
    """
    texts, first = split_settings([] if text is None else [text])
    values = decoding_settings([*first, *(settings or []), *(set_options or [])], config)
    return (texts[0] if texts else None), values | present(**options)


def decoding_settings(settings: list[str], config: "type[Config]") -> dict[str, Any]:
    """Settings of decoding by key: ``["decoding.beam_size=5"]`` and ``["beam_size=5"]`` mean the same.

    ``ConfigError`` for an unknown key. Values are checked where they are used, together with the stored ones.
    """
    from pydantic import ValidationError

    from glassformer.config import apply_override
    from glassformer.errors import ConfigError, nearest

    values: dict[str, Any] = {}
    for setting in settings:
        apply_override(values, setting.removeprefix(f"{SECTION}."))
        section, dot, _ = setting.partition("=")[0].partition(".")
        if dot and section != SECTION and section not in config.model_fields:
            raise ConfigError(f"{setting!r}: only keys of {SECTION} can be set for a trained run; leave it out")
    values = config.migrate(values)
    for key, value in values.items():
        try:
            config.model_validate({key: value})
        except ValidationError as error:
            if error.errors()[0]["type"] == "extra_forbidden":
                hint = nearest(key, list(config.model_fields), f"{SECTION}.")
                raise ConfigError(f"unknown key {SECTION}.{key}; {hint}") from None
    return values


def renamed_option(former: str, current: str, former_value: T | None, value: T | None) -> T | None:
    """The value of a renamed option, from its current or its former spelling.

    The former spelling is a hidden option. It keeps working for a release, with a note on stderr. ``ConfigError`` if
    both are used.
    """
    if former_value is None:
        return value
    if value is not None:
        from glassformer.errors import ConfigError

        raise ConfigError(f"{former} is now {current}; give one of them")
    warn(f"{former} is now {current}; the former spelling will be removed")
    return former_value
