"""``glassformer import``: a model of Hugging Face's as a checkpoint of ours."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.io import note, read_text, say
from glassformer.cli.options import MaxLineBytes
from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from glassformer.interop.parity import Conversion


def command(
    source: Annotated[str, typer.Argument(help="Folder written by save_pretrained, or a model's name on the hub.")],
    run: Annotated[Path, typer.Argument(help="Checkpoint folder to write.")],
    text: Annotated[
        str | None, typer.Option("--text", help="File of texts, a line each, for both sides to be compared on.")
    ] = None,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
) -> None:
    """Import a model from Hugging Face (safetensors only), and check that it computes the same."""
    from glassformer.interop.huggingface import import_folder

    report(import_folder(source, run, sentences_of(text, max_line_bytes)))


def sentences_of(file: str | None, max_line_bytes: int) -> list[str] | None:
    """The lines of ``file`` that are not empty; None where none is named."""
    return None if file is None else [line for line in read_text(file, max_line_bytes) if line.strip()]


def report(found: "Conversion") -> None:
    """What was compared, as notes; the folder, as output."""
    for dtype, difference in found.parity.differences.items():
        note(f"largest difference in {dtype}: {difference:.1e}")
    for sample in found.parity.samples:
        note(f"{sample.source!r}: here {sample.our_output!r}, there {sample.their_output!r}")
    for sentence in found.notes:
        note(f"note: {sentence}")
    say(str(found.path))
