"""``glassformer export``: a trained model in the files of another library."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from glassformer.cli.import_ import Texts, read_sentences, report
from glassformer.cli.options import Device, MaxLineBytes, Run
from glassformer.storage.regular_files import MAX_LINE_BYTES


def command(
    run: Run,
    folder: Annotated[Path, typer.Argument(help="Folder to write.")],
    to: Annotated[Literal["huggingface", "ctranslate2", "onnx"], typer.Option("--to", help="Library to write for.")],
    quantization: Annotated[
        Literal["float32", "int8"], typer.Option("--quantization", help="Type of the weights with --to ctranslate2.")
    ] = "float32",
    text: Texts = None,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
) -> None:
    """Export a model to another library, and check its outputs.

    To Hugging Face: every model except forecasters and recurrent ones. To CTranslate2 and ONNX: Transformers that
    translate. Nothing is written if the outputs of both models differ.
    """
    from glassformer.errors import ConfigError

    if quantization != "float32" and to != "ctranslate2":
        raise ConfigError(f"--quantization {quantization}: goes with --to ctranslate2; leave it out")
    if device not in ("auto", "cpu") and to != "huggingface":
        raise ConfigError(f"--device {device}: --to {to} is compared on the CPU; leave it out")
    texts = read_sentences(text, max_line_bytes)
    if to == "huggingface":
        from glassformer.interop.huggingface import export_folder

        report(export_folder(run, folder, texts, device))
    elif to == "ctranslate2":
        from glassformer.interop.to_ctranslate2 import export_ctranslate2

        report(export_ctranslate2(run, folder, quantization, texts))
    else:
        from glassformer.interop.to_onnx import export_onnx

        report(export_onnx(run, folder, texts))
