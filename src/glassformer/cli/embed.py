"""``glassformer embed``: a vector for each text."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from glassformer.cli.io import appearing, chunks, explaining, note, writing
from glassformer.cli.line_warnings import LineWarnings
from glassformer.cli.options import Device, Engine, MaxLineBytes, Precision, renamed_option
from glassformer.cli.process import loading
from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from torch import Tensor

    from glassformer.predict.encoder import Encoder


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder of an encoder (BERT).")],
    file: Annotated[str, typer.Argument(help="Texts, one a line; - for stdin.")] = "-",
    output: Annotated[str, typer.Option("-o", "--output", help="File to write, - for stdout.")] = "-",
    form: Annotated[
        Literal["jsonl", "npy"],
        typer.Option("--format", help="A JSON list a line, or one NumPy array [texts, d_model] of float32."),
    ] = "jsonl",
    pooling: Annotated[
        Literal["mean", "cls", "max"] | None,
        typer.Option(help="Mean or maximum of token vectors, or the [CLS] vector. [default: the run's own, else mean]"),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option("--normalize/--no-normalize", help="Scale each vector to length 1. [default: the run's own]"),
    ] = None,
    npy: Annotated[Path | None, typer.Option(hidden=True)] = None,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
    engine: Engine = "auto",
    precision: Precision = "float32",
) -> None:
    """One vector a text, as JSON lines or as a NumPy array."""
    from glassformer.errors import ConfigError
    from glassformer.predict.encoder import Encoder

    renamed_option("--npy", "--format npy --output", npy, None if output == "-" else Path(output))
    if npy is not None:
        form, output = "npy", str(npy)
    if form == "npy" and output == "-":
        raise ConfigError("--format npy writes a file; name it with --output")
    options: dict[str, Any] = {"pooling": pooling, "normalize": normalize}
    with loading():
        encoder = Encoder.load(run, device=device, engine=engine, precision=precision)
    if form == "jsonl":
        with writing(output) as stream:
            for part in _vectors(encoder, chunks(file, 512, max_line_bytes), file, options):
                for vector in part.tolist():
                    stream.write(json.dumps([round(value, 6) for value in vector]) + "\n")
                stream.flush()
        return
    import numpy as np

    width = encoder.model.config.d_model
    with appearing(Path(output)) as place:
        batches = chunks(file, 512, max_line_bytes)
        parts = [part.numpy() for part in _vectors(encoder, batches, file, options)]
        array = np.concatenate([np.zeros((0, width), np.float32), *parts])
        with explaining(output), place.open("wb") as file_of_array:
            np.save(file_of_array, array, allow_pickle=False)
    note(f"{output} is written: {len(array):,} vectors of {width} numbers")


def _vectors(
    encoder: "Encoder", batches: "Iterator[list[str]]", file: str, options: dict[str, Any]
) -> "Iterator[Tensor]":
    done, unknown = 0, LineWarnings(file)
    for texts in batches:
        for index, length in encoder.too_long(texts):
            note(
                f"glassformer: warning: line {done + index + 1} has {length:,} tokens; the first {encoder.max_length} "
                "are seen"
            )
        with unknown.watched(len(texts)):
            vectors = encoder.embed(texts, **options)
        yield vectors
        done += len(texts)
    unknown.summarize()
