"""``glassformer score``: how probable given translations are."""

import json
from typing import Annotated

import typer

from glassformer.cli.io import writing
from glassformer.cli.line_warnings import LineWarnings
from glassformer.cli.options import Device, MaxLineBytes
from glassformer.cli.process import loading
from glassformer.storage.regular_files import MAX_LINE_BYTES


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder.")],
    source: Annotated[str, typer.Argument(help="File of source lines.")],
    target: Annotated[str, typer.Argument(help="File of target lines.")],
    output: Annotated[str, typer.Option("-o", "--output", help="File to write, - for stdout.")] = "-",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with every token.")] = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
) -> None:
    """Log-probability of given translations, in nats, a line each."""
    from glassformer.data import parallel_lines
    from glassformer.predict.translator import Translator

    sources, targets = parallel_lines(source, target, max_line_bytes)
    with loading():
        translator = Translator.load(run, device=device)
    unknown = LineWarnings({"source": source, "target": target})
    with writing(output) as stream:
        with unknown.watched(len(sources)):
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
