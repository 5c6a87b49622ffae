"""``glassformer score``: log-probabilities of existing translations."""

import json
from typing import Annotated

import typer

from glassformer.cli.io import open_output
from glassformer.cli.line_warnings import LineWarnings
from glassformer.cli.options import Device, MaxLineBytes, OutputFile, Run
from glassformer.cli.run import describe_engine, load
from glassformer.storage.regular_files import MAX_LINE_BYTES


def command(
    run: Run,
    source: Annotated[str, typer.Argument(help="File of source lines.")],
    target: Annotated[str, typer.Argument(help="File of target lines.")],
    output: OutputFile = "-",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line, with every token.")] = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
) -> None:
    """Score translations by their log-probability, in nats."""
    from glassformer.data import parallel_lines
    from glassformer.predict.translator import Translator

    sources, targets = parallel_lines(source, target, max_line_bytes)
    translator = load(Translator.load, run, device=device)
    describe_engine(translator, translator.decoding)
    unknown = LineWarnings({"source": source, "target": target})
    with open_output(output) as stream:
        with unknown.collect(len(sources)):
            scores = translator.score(sources, targets)
        for number, one in enumerate(scores, start=1):
            if as_json:
                tokens = [*translator.tokenizers.target.tokens(one.tokens), "</s>"]
                flags = unknown.flags(number)
                values = {**flags, "log_prob": one.log_prob, "score": one.score}
                result = {**values, "tokens": tokens, "token_log_probs": one.token_log_probs}
                stream.write(json.dumps(result, ensure_ascii=False) + "\n")
            else:
                stream.write(f"{one.log_prob:.4f}\n")
    unknown.summarize()
