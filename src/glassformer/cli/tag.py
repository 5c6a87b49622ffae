"""``glassformer tag``: one tag per word."""

import json
from typing import Annotated

import typer

from glassformer.cli.corpus import Work, check_target, predict_corpus
from glassformer.cli.inputs import line_input
from glassformer.cli.lines import Line
from glassformer.cli.options import Device, Engine, MaxLineBytes, OutputFile, Precision, Restart, Shard, run_argument
from glassformer.cli.run import job_of, load_with_engine
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
    shard: Shard = None,
    restart: Restart = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
    engine: Engine = "auto",
    precision: Precision = "float32",
) -> None:
    """Tag the words of sentences.

    The output has one word and its tag per line, and a blank line after each sentence.
    """
    from glassformer.predict import Tagger

    inputs = [line_input(file, max_line_bytes)]
    target = check_target(inputs, output, shard, restart)
    tagger = load_with_engine(Tagger.load, run, device, engine, precision)

    def tag(lines: list[str]) -> list[list[str]]:
        return tagger.tag([line.split() for line in lines])

    def text(line: Line[str], tags: list[str]) -> str:
        words = line.value.split()
        if as_json:
            return json.dumps({"tokens": words, **line.flags, "tags": tags}, ensure_ascii=False)
        return "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True))

    work = Work("tag", "tagged", tag, text, job_of(tagger, json=as_json), count=len, unit="words")
    predict_corpus(work, inputs, target)
