"""``glassformer export``: a trained model in the files of another library."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from glassformer.cli.import_ import report, sentences_of
from glassformer.cli.options import MaxLineBytes
from glassformer.storage.regular_files import MAX_LINE_BYTES


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder.")],
    folder: Annotated[Path, typer.Argument(help="Folder to write.")],
    to: Annotated[Literal["huggingface", "ctranslate2", "onnx"], typer.Option("--to", help="Whose files.")],
    quantization: Annotated[
        Literal["float32", "int8"], typer.Option("--quantization", help="Of the weights, with --to ctranslate2.")
    ] = "float32",
    text: Annotated[
        str | None, typer.Option("--text", help="File of texts, a line each, for both sides to be compared on.")
    ] = None,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
) -> None:
    """Export a model, and check that it computes the same there.

    To Hugging Face: all but series and recurrent ones; to CTranslate2 and ONNX: a Transformer that translates.
    """
    from glassformer.errors import ConfigError

    if quantization != "float32" and to != "ctranslate2":
        raise ConfigError(f"--quantization {quantization}: goes with --to ctranslate2; leave it out")
    texts = sentences_of(text, max_line_bytes)
    if to == "huggingface":
        from glassformer.interop.huggingface import export_folder

        report(export_folder(run, folder, texts))
    elif to == "ctranslate2":
        from glassformer.interop.to_ctranslate2 import export_ctranslate2

        report(export_ctranslate2(run, folder, quantization, texts))
    else:
        from glassformer.interop.to_onnx import export_onnx

        report(export_onnx(run, folder, texts))
