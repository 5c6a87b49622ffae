"""``glassformer tag``: a tag for every word."""

import json
from typing import Annotated

import typer

from glassformer.cli.io import chunks, telling_lines, writing
from glassformer.cli.line_warnings import LineWarnings
from glassformer.cli.options import Device, Engine, MaxLineBytes, Precision
from glassformer.cli.process import loading
from glassformer.storage.regular_files import MAX_LINE_BYTES


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder of a tagger.")],
    file: Annotated[str, typer.Argument(help="Sentences, one a line, words between spaces; - for stdin.")] = "-",
    output: Annotated[str, typer.Option("-o", "--output", help="File to write, - for stdout.")] = "-",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a sentence: tokens and tags.")] = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
    engine: Engine = "auto",
    precision: Precision = "float32",
) -> None:
    """Tag the words of sentences: a word and its tag a line, a blank line behind each sentence."""
    from glassformer.predict import Tagger

    with loading():
        tagger, done = Tagger.load(run, device=device, engine=engine, precision=precision), 0
    unknown = LineWarnings(file)
    with writing(output) as stream:
        for lines in chunks(file, 512, max_line_bytes):
            sentences = [line.split() for line in lines]
            with telling_lines(file, done), unknown.watched(len(lines)):
                found = tagger.tag(sentences)
            for words, tags in zip(sentences, found, strict=True):
                done += 1
                if as_json:
                    result = {"tokens": words, **unknown.flags(done), "tags": tags}
                    stream.write(json.dumps(result, ensure_ascii=False) + "\n")
                else:
                    stream.write("".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True)) + "\n")
            stream.flush()
    unknown.summarize()
