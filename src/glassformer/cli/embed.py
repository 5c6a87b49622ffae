"""``glassformer embed``: one vector per text."""

import io
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from glassformer.cli.corpus import Work, check_target, predict_corpus
from glassformer.cli.inputs import line_input
from glassformer.cli.lines import Line, warn_of_truncated
from glassformer.cli.options import (
    Device,
    Engine,
    MaxLineBytes,
    OutputFile,
    Precision,
    Restart,
    Shard,
    renamed_option,
    run_argument,
)
from glassformer.cli.run import job_of, load_with_engine
from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from torch import Tensor

    from glassformer.predict.encoder import Encoder

_Format = Annotated[
    Literal["jsonl", "npy"],
    typer.Option("--format", help="One JSON list per line, or a NumPy array [texts, d_model] of float32."),
]
_Pooling = Annotated[
    Literal["mean", "cls", "max"] | None,
    typer.Option(help="Mean or maximum of token vectors, or the [CLS] vector. [default: of the run, else mean]"),
]
_Normalize = Annotated[
    bool | None,
    typer.Option("--normalize/--no-normalize", help="Scale each vector to length 1. [default: of the run]"),
]


def command(
    run: Annotated[str, run_argument("an encoder (BERT)")],
    file: Annotated[str, typer.Argument(help="File of one text per line; - is standard input.")] = "-",
    output: OutputFile = "-",
    format: _Format = "jsonl",
    pooling: _Pooling = None,
    normalize: _Normalize = None,
    npy: Annotated[Path | None, typer.Option(hidden=True)] = None,
    shard: Shard = None,
    restart: Restart = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
    engine: Engine = "auto",
    precision: Precision = "float32",
) -> None:
    """Embed texts: one vector per line of the input."""
    from glassformer.errors import ConfigError
    from glassformer.predict.encoder import Encoder

    renamed_option("--npy", "--format npy --output", npy, None if output == "-" else Path(output))
    if npy is not None:
        format, output = "npy", str(npy)
    array, inputs = format == "npy", [line_input(file, max_line_bytes)]
    if array and output == "-":
        raise ConfigError("--format npy writes a file; name it with --output")
    target = check_target(inputs, output, shard, restart)
    if array and target.path is None:
        raise ConfigError(f"{output}: is not a regular file, which --format npy needs; name one with --output")
    if array and target.compressed:
        raise ConfigError(f"{output}: --format npy is not compressed; name the output .npy, or use --format jsonl")
    options: dict[str, Any] = {"pooling": pooling, "normalize": normalize}
    encoder = load_with_engine(Encoder.load, run, device, engine, precision)
    width = encoder.model.config.d_model

    def embed(texts: list[str]) -> "list[Tensor]":
        warn_of_truncated(encoder, texts)
        return list(encoder.embed(texts, **options))

    work = Work(
        "embed",
        "embedded",
        embed,
        _numbers if array else _json,
        job_of(encoder, format=format, pooling=pooling or encoder.pooling, normalize=_chosen(normalize, encoder)),
        head=partial(_header, width) if array else None,
        content=(lambda count: f"{count:,} vectors of {width} numbers") if array else None,
    )
    predict_corpus(work, inputs, target)


def _chosen(normalize: bool | None, encoder: "Encoder") -> bool:
    return encoder.normalize if normalize is None else normalize


def _json(line: Line[str], vector: "Tensor") -> str:
    return json.dumps([round(value, 6) for value in vector.tolist()])


def _numbers(line: Line[str], vector: "Tensor") -> bytes:
    return vector.numpy().astype("<f4").tobytes()


def _header(width: int, count: int) -> bytes:
    """Header of a NumPy file of ``[count, width]`` float32; it has space for any count."""
    from numpy.lib import format

    stream = io.BytesIO()
    format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (count, width)})
    return stream.getvalue()
