"""``glassformer classify``: the label of texts or of pictures, as the run's task is."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.io import chunks, note, telling_lines, writing
from glassformer.cli.line_warnings import LineWarnings
from glassformer.cli.options import Device, Engine, MaxLineBytes, Precision
from glassformer.cli.process import loading
from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from glassformer.predict import Prediction

FILE_NAME = re.compile(r"\S+\.(txt|csv|tsv|jsonl?|gz|png|jpe?g)", re.IGNORECASE)
"""What is no text, but the name of a file that may not be there."""
Given = tuple[str | None, int, list[str]]
"""Texts or paths, with the file whose lines they are and how many of its lines went before."""


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder of a classifier.")],
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT|FILE", help="A text, or a file of texts, one a line; or pictures."),
    ] = None,
    output: Annotated[str, typer.Option("-o", "--output", help="File to write, - for stdout.")] = "-",
    top: Annotated[int, typer.Option(min=1, help="Number of labels to report.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object each, with all probabilities.")] = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
    engine: Engine = "auto",
    precision: Precision = "float32",
) -> None:
    """Label texts (a tab parts a text from its pair) or pictures; without any, each line of stdin."""
    from glassformer.predict import Classifier, ImageClassifier
    from glassformer.predict.loading import task_at

    pictures = task_at(run) == "images"
    with loading():
        model: Any = (ImageClassifier if pictures else Classifier).load(
            run, device=device, engine=engine, precision=precision
        )
    reports: list[LineWarnings] = []
    with writing(output) as stream:
        for file, done, lines in (_pictures if pictures else _given)(what or [], max_line_bytes):
            if not pictures:
                _warn_of_length(model, lines)
            read: list[Any] = lines if pictures else [_text_and_pair(line) for line in lines]
            if file is None or done == 0:  # the same file may appear twice
                reports.append(LineWarnings(file))
            report = reports[-1]
            with telling_lines(file, done), report.watched(len(lines)):
                predictions = model.classify(read)
            for number, (line, found) in enumerate(zip(lines, predictions, strict=True), start=done + 1):
                read_as = {"picture" if pictures else "text": line, **report.flags(number)}
                stream.write((_json(read_as, found) if as_json else _text(line, found, top, pictures)) + "\n")
            stream.flush()
    for report in reports:
        report.summarize()


def _given(what: list[str], max_line_bytes: int) -> Iterator[Given]:
    """A file of texts line by line, anything else as one text."""
    for one in what or ["-"]:
        if one == "-" or _is_file(one):
            yield from _lines(one, 512, max_line_bytes)
        elif FILE_NAME.fullmatch(one):
            from glassformer.errors import DataError

            raise DataError(f"{one}: no such file; name one that exists, or give the text itself")
        else:
            yield None, 0, [one]


def _lines(file: str, size: int, max_line_bytes: int) -> Iterator[Given]:
    done = 0
    for lines in chunks(file, size, max_line_bytes):
        yield file, done, lines
        done += len(lines)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # longer than a name may be
        return False


def _pictures(what: list[str], max_line_bytes: int) -> Iterator[Given]:
    if what:
        yield None, 0, what
    else:
        yield from _lines("-", 64, max_line_bytes)


def _text_and_pair(line: str) -> str | tuple[str, str]:
    text, tab, pair = line.partition("\t")
    return (text, pair) if tab else text


def _warn_of_length(model: Any, lines: list[str]) -> None:
    for index, length in model.too_long([_text_and_pair(line) for line in lines]):
        note(f"glassformer: warning: {lines[index][:40]!r}… has {length:,} tokens; {model.max_length} are seen")


def _json(read: dict[str, Any], found: "Prediction") -> str:
    answer = {"label": found.label, "probability": found.probability, "probabilities": found.probabilities}
    return json.dumps({**read, **answer}, ensure_ascii=False)


def _text(line: str, found: "Prediction", top: int, picture: bool) -> str:
    best = list(found.probabilities.items())[:top]
    shown = "  ".join(f"{label} {probability:.4f}" for label, probability in best)
    return f"{line}\t{shown}" if picture else shown
