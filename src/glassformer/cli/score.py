"""``glassformer score``: log-probabilities of existing translations."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.io import open_output
from glassformer.cli.lines import Line, predict_lines
from glassformer.cli.options import Device, MaxLineBytes, OutputFile, Run, SourceLines, TargetLines
from glassformer.cli.run import describe_engine, load
from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from glassformer.generate import Hypothesis


def command(
    run: Run,
    source: SourceLines,
    target: TargetLines,
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

    def text(line: Line[tuple[str, str]], hypothesis: "Hypothesis") -> str:
        if not as_json:
            return f"{hypothesis.log_prob:.4f}"
        values = {**line.flags, "log_prob": hypothesis.log_prob, "score": hypothesis.score}
        tokens = [*translator.tokenizers.target.tokens(hypothesis.tokens), "</s>"]
        return json.dumps(
            values | {"tokens": tokens, "token_log_probs": hypothesis.token_log_probs}, ensure_ascii=False
        )

    pairs = list(zip(sources, targets, strict=True))
    with open_output(output) as stream:
        files = {"source": source, "target": target}
        unknown = predict_lines(stream, [pairs], lambda _: translator.score(sources, targets), text, files=files)
    unknown.summarize()
