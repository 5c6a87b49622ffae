"""``glassformer tokenize``: the tokens of a text."""

import json
from typing import Annotated

import typer

from glassformer.cli.io import open_output, read_text
from glassformer.cli.options import MaxLineBytes, OutputFile, Run
from glassformer.storage.regular_files import MAX_LINE_BYTES


def command(
    run: Run,
    file: Annotated[str, typer.Argument(help="Text file; - is standard input.")] = "-",
    output: OutputFile = "-",
    target: Annotated[bool, typer.Option("--target", help="Use the target side's tokenizer.")] = False,
    ids: Annotated[bool, typer.Option("--ids", help="Print ids instead of tokens.")] = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, with tokens and ids.")
    ] = False,
) -> None:
    """Print the tokens of each line."""
    from glassformer.predict.loading import load_checked
    from glassformer.storage.run_folder import resolve
    from glassformer.text import TokenizerPair

    path = resolve(run)
    pair = TokenizerPair.from_json(load_checked(path).tokenizer, str(path))
    tokenizer = pair.target if target else pair.source
    with open_output(output) as stream:
        for line in read_text(file, max_line_bytes):
            numbers = tokenizer.encode(line)
            tokens = tokenizer.tokens(numbers)
            if as_json:
                stream.write(json.dumps({"tokens": tokens, "ids": numbers}, ensure_ascii=False) + "\n")
            else:
                stream.write(" ".join(map(str, numbers) if ids else tokens) + "\n")
