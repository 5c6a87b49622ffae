"""``glassformer tag``: one tag per word."""

import json
from typing import Annotated

import typer

from glassformer.cli.io import chunks, open_output
from glassformer.cli.line_warnings import LineWarnings, name_lines
from glassformer.cli.options import Device, Engine, MaxLineBytes, OutputFile, Precision, run_argument
from glassformer.cli.run import describe_engine, load
from glassformer.storage.regular_files import MAX_LINE_BYTES


def command(
    run: Annotated[str, run_argument("a tagger")],
    file: Annotated[
        str, typer.Argument(help="One sentence per line, words separated by spaces; - is standard input.")
    ] = "-",
    output: OutputFile = "-",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per sentence: tokens and tags.")
    ] = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
    engine: Engine = "auto",
    precision: Precision = "float32",
) -> None:
    """Tag the words of sentences.

    The output has one word and its tag per line, and a blank line after each sentence.
    """
    from glassformer.predict import Tagger

    tagger = load(Tagger.load, run, device=device, engine=engine, precision=precision)
    describe_engine(tagger)
    unknown, done = LineWarnings(file), 0
    with open_output(output) as stream:
        for lines in chunks(file, 512, max_line_bytes):
            sentences = [line.split() for line in lines]
            with name_lines(file, done), unknown.collect(len(lines)):
                tagged = tagger.tag(sentences)
            for words, tags in zip(sentences, tagged, strict=True):
                done += 1
                if as_json:
                    result = {"tokens": words, **unknown.flags(done), "tags": tags}
                    stream.write(json.dumps(result, ensure_ascii=False) + "\n")
                else:
                    stream.write("".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True)) + "\n")
            stream.flush()
    unknown.summarize()
