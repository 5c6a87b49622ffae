"""``glassformer embed``: one vector per text."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from glassformer.cli.io import chunks, open_output, replace_at_end, write_errors
from glassformer.cli.lines import LineWarnings
from glassformer.cli.messages import note, warn
from glassformer.cli.options import (
    Device,
    Engine,
    MaxLineBytes,
    OutputFile,
    Precision,
    renamed_option,
    run_argument,
)
from glassformer.cli.run import load_with_engine
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
    if format == "npy" and output == "-":
        raise ConfigError("--format npy writes a file; name it with --output")
    options: dict[str, Any] = {"pooling": pooling, "normalize": normalize}
    encoder = load_with_engine(Encoder.load, run, device, engine, precision)
    batches = _vectors(encoder, chunks(file, 512, max_line_bytes), file, options)
    if format == "npy":
        _write_array(batches, encoder.model.config.d_model, output)
        return
    with open_output(output) as stream:
        for vectors in batches:
            for vector in vectors.tolist():
                stream.write(json.dumps([round(value, 6) for value in vector]) + "\n")
            stream.flush()


def _write_array(batches: "Iterator[Tensor]", width: int, output: str) -> None:
    import numpy as np

    with replace_at_end(Path(output)) as path:
        array = np.concatenate([np.zeros((0, width), np.float32), *(vectors.numpy() for vectors in batches)])
        with write_errors(output), path.open("wb") as file:
            np.save(file, array, allow_pickle=False)
    note(f"{output} is written: {len(array):,} vectors of {width} numbers")


def _vectors(
    encoder: "Encoder", batches: "Iterator[list[str]]", file: str, options: dict[str, Any]
) -> "Iterator[Tensor]":
    done, unknown = 0, LineWarnings(file)
    for texts in batches:
        for index, length in encoder.too_long(texts):
            warn(f"line {done + index + 1} has {length:,} tokens; the first {encoder.max_length} are seen")
        with unknown.collect(len(texts)):
            vectors = encoder.embed(texts, **options)
        yield vectors
        done += len(texts)
    unknown.summarize()
