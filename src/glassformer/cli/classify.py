"""``glassformer classify``: the label of texts or of pictures, by the task of the run."""

import json
import re
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.corpus import Work, check_target, predict_corpus
from glassformer.cli.inputs import LineInput, line_input
from glassformer.cli.lines import Line, warn_of_truncated
from glassformer.cli.options import Device, Engine, MaxLineBytes, OutputFile, Precision, Restart, Shard, run_argument
from glassformer.cli.run import job_of, load_with_engine
from glassformer.storage.regular_files import MAX_LINE_BYTES
from glassformer.tasks import TASKS

if TYPE_CHECKING:
    from glassformer.predict import Prediction

FILE_NAME = re.compile(r"\S+\.(txt|csv|tsv|jsonl?|parquet|gz|zst|png|jpe?g)", re.IGNORECASE)
"""The name of a file, which may not exist, rather than a text."""


def command(
    run: Annotated[str, run_argument("a classifier")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT|FILE", help="Texts, files of one text per line, or pictures. [default: lines of stdin]"
        ),
    ] = None,
    output: OutputFile = "-",
    top: Annotated[int, typer.Option(min=1, help="Number of labels to print.")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object each, with all probabilities.")
    ] = False,
    shard: Shard = None,
    restart: Restart = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
    engine: Engine = "auto",
    precision: Precision = "float32",
) -> None:
    """Classify texts or pictures.

    A tab separates a text from the second text of its pair.
    """
    from glassformer.predict.loading import predictor_class, task_at

    pictures = TASKS[task_at(run)].unit == "images"
    read = (_pictures if pictures else _texts)(inputs or [], max_line_bytes)
    target = check_target(read, output, shard, restart)
    model: Any = load_with_engine(predictor_class(run).load, run, device, engine, precision)

    def classify(lines: list[str]) -> "list[Prediction]":
        if pictures:
            return model.classify(lines)
        texts = [_text_and_pair(line) for line in lines]
        warn_of_truncated(model, texts)
        return model.classify(texts)

    def text(line: Line[str], prediction: "Prediction") -> str:
        if as_json:
            return _json({"picture" if pictures else "text": line.value, **line.flags}, prediction)
        return _text(line.value, prediction, top, pictures)

    identify = _identify_picture if pictures else str
    work = Work("classify", "classified", classify, text, job_of(model, json=as_json, top=top), identify=identify)
    predict_corpus(work, read, target)


def _texts(inputs: list[str], max_line_bytes: int) -> list[LineInput[str]]:
    """The lines of each file; anything else is one text. Consecutive texts are predicted together."""
    found = list[LineInput[str]]()
    for are_files, group in groupby(inputs or ["-"], _is_file):
        if are_files:
            found += [line_input(file, max_line_bytes) for file in group]
        else:
            found.append(LineInput(None, (), partial(iter, list(group))))
    return found


def _is_file(text: str) -> bool:
    """True for a file or standard input, False for a text; ``DataError`` for the name of a file that is missing."""
    from glassformer.errors import DataError

    try:
        exists = Path(text).is_file()
    except (OSError, ValueError):  # longer than a name may be
        exists = False
    if not exists and FILE_NAME.fullmatch(text):
        raise DataError(f"{text}: no such file; name one that exists, or give the text itself")
    return exists or text == "-"


def _pictures(inputs: list[str], max_line_bytes: int) -> list[LineInput[str]]:
    return [LineInput(None, (), partial(iter, inputs)) if inputs else line_input("-", max_line_bytes)]


def _identify_picture(name: str) -> str:
    """The name of a picture, with its size in bytes and its time; a missing one is an error of its prediction."""
    try:
        status = Path(name).stat()
    except (OSError, ValueError):
        return name
    return f"{name}\0{status.st_size}\0{status.st_mtime_ns}"


def _text_and_pair(line: str) -> str | tuple[str, str]:
    text, tab, pair = line.partition("\t")
    return (text, pair) if tab else text


def _json(source: dict[str, Any], prediction: "Prediction") -> str:
    answer = {
        "label": prediction.label,
        "probability": prediction.probability,
        "probabilities": prediction.probabilities,
    }
    return json.dumps({**source, **answer}, ensure_ascii=False)


def _text(line: str, prediction: "Prediction", top: int, picture: bool) -> str:
    best = list(prediction.probabilities.items())[:top]
    labels = "  ".join(f"{label} {probability:.4f}" for label, probability in best)
    return f"{line}\t{labels}" if picture else labels
