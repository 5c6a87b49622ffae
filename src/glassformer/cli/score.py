"""``glassformer score``: log-probabilities of existing translations."""

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.corpus import Work, check_target, predict_corpus
from glassformer.cli.inputs import LineInput
from glassformer.cli.lines import Line
from glassformer.cli.options import Device, MaxLineBytes, OutputFile, Restart, Run, Shard, SourceLines, TargetLines
from glassformer.cli.run import describe_engine, job_of, load
from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from glassformer.generate import Hypothesis


def command(
    run: Run,
    source: SourceLines,
    target: TargetLines,
    output: OutputFile = "-",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line, with every token.")] = False,
    shard: Shard = None,
    restart: Restart = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
) -> None:
    """Score translations by their log-probability, in nats."""
    from glassformer.data import paired_lines
    from glassformer.errors import DataError
    from glassformer.predict.translator import Translator

    if source == target == "-":
        raise DataError("standard input cannot be both files; name a file for one of them")
    inputs = [LineInput(source, (source, target), partial(paired_lines, source, target, max_line_bytes))]
    destination = check_target(inputs, output, shard, restart)
    translator = load(Translator.load, run, device=device)
    describe_engine(translator, translator.decoding)

    def score(pairs: list[tuple[str, str]]) -> "list[Hypothesis]":
        sources, targets = zip(*pairs, strict=True)
        return translator.score(sources, targets)

    def text(line: Line[tuple[str, str]], hypothesis: "Hypothesis") -> str:
        if not as_json:
            return f"{hypothesis.log_prob:.4f}"
        values = {**line.flags, "log_prob": hypothesis.log_prob, "score": hypothesis.score}
        tokens = [*translator.tokenizers.target.tokens(hypothesis.tokens), "</s>"]
        return json.dumps(
            values | {"tokens": tokens, "token_log_probs": hypothesis.token_log_probs}, ensure_ascii=False
        )

    work = Work(
        "score",
        "scored",
        score,
        text,
        job_of(translator, translator.decoding, json=as_json),
        count=lambda hypothesis: len(hypothesis.token_log_probs),
        files={"source": source, "target": target},
        checks_input=True,
    )
    predict_corpus(work, inputs, destination)
