"""``glassformer tokenize``: what a model sees of a text."""

import json
from typing import Annotated

import typer

from glassformer.cli.io import read_text, writing
from glassformer.cli.options import MaxLineBytes
from glassformer.storage.regular_files import MAX_LINE_BYTES


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder.")],
    file: Annotated[str, typer.Argument(help="Text, - for stdin.")] = "-",
    output: Annotated[str, typer.Option("-o", "--output", help="File to write, - for stdout.")] = "-",
    target: Annotated[bool, typer.Option("--target", help="Use the target side's tokenizer.")] = False,
    ids: Annotated[bool, typer.Option("--ids", help="Ids instead of tokens.")] = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    as_json: Annotated[bool, typer.Option("--json", help="Tokens and ids, a JSON object a line.")] = False,
) -> None:
    """Show the tokens of each line, as the run's tokenizer cuts it."""
    from glassformer.predict.loading import load_checked
    from glassformer.storage.run_folder import resolve
    from glassformer.text import TokenizerPair

    path = resolve(run)
    pair = TokenizerPair.from_json(load_checked(path).tokenizer, str(path))
    tokenizer = pair.target if target else pair.source
    with writing(output) as stream:
        for line in read_text(file, max_line_bytes):
            numbers = tokenizer.encode(line)
            tokens = tokenizer.tokens(numbers)
            if as_json:
                stream.write(json.dumps({"tokens": tokens, "ids": numbers}, ensure_ascii=False) + "\n")
            else:
                stream.write(" ".join(map(str, numbers) if ids else tokens) + "\n")
