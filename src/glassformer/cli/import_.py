"""``glassformer import``: a model of Hugging Face as a checkpoint."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.io import read_text, say
from glassformer.cli.messages import note
from glassformer.cli.options import Device, MaxLineBytes
from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from glassformer.interop.parity import Conversion

Texts = Annotated[
    str | None, typer.Option("--text", metavar="FILE", help="Texts to compare both models on, one per line.")
]


def command(
    source: Annotated[str, typer.Argument(help="Folder written by save_pretrained, or name of a model on the hub.")],
    run: Annotated[Path, typer.Argument(help="Checkpoint folder to write.")],
    text: Texts = None,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
) -> None:
    """Import a model from Hugging Face, and check its outputs.

    It must be stored as safetensors. Nothing is written if the outputs of both models differ.
    """
    from glassformer.interop.huggingface import import_folder

    report(import_folder(source, run, read_sentences(text, max_line_bytes), device))


def read_sentences(file: str | None, max_line_bytes: int) -> list[str] | None:
    """The lines of ``file`` that are not empty; None without a file."""
    return None if file is None else [line for line in read_text(file, max_line_bytes) if line.strip()]


def report(conversion: "Conversion") -> None:
    """Print the differences as notes, and the folder as output."""
    for dtype, difference in conversion.parity.differences.items():
        note(f"largest difference in {dtype}: {difference:.1e}")
    for sample in conversion.parity.samples:
        note(f"{sample.source!r}: here {sample.our_output!r}, there {sample.their_output!r}")
    for sentence in conversion.notes:
        note(f"note: {sentence}")
    say(str(conversion.path))
