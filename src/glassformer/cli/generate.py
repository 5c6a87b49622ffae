"""``glassformer generate``: continuations of a prompt."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.io import chunks, open_output
from glassformer.cli.lines import Line, LineWarnings, predict_lines
from glassformer.cli.options import (
    Device,
    MaxLineBytes,
    OutputFile,
    RefuseLong,
    Seed,
    SetOption,
    Settings,
    present,
    renamed_option,
    run_argument,
    text_and_settings,
)
from glassformer.cli.process import keep_freed_memory
from glassformer.cli.run import describe_engine, load
from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glassformer.cli.io import Output
    from glassformer.predict import Generated, Generator

_Run = Annotated[str, run_argument("a language model")]
_Prompt = Annotated[
    str | None, typer.Argument(help="Beginning of the text. [default: each line of stdin]", show_default=False)
]
_BeamSize = Annotated[int | None, typer.Option(help="Number of hypotheses; more than 1 is a beam search.")]
_AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per prompt: scores, tokens, finish_reason.")
]
_Stop = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="End before this string; may be repeated.")]
_Sample = Annotated[
    bool | None, typer.Option("--sample/--no-sample", help="Sample tokens, or search. [default: of the run]")
]
_Truncate = Annotated[
    bool | None,
    typer.Option(
        "--truncate/--no-truncate",
        help="Keep the end of a prompt longer than the context, or refuse it. [default: truncate]",
    ),
]


def command(
    run: _Run,
    prompt: _Prompt = None,
    overrides: Settings = None,
    output: OutputFile = "-",
    setting: SetOption = None,
    max_length: Annotated[int | None, typer.Option(help="Maximum number of new tokens.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Softmax temperature for sampling; 0 is greedy.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample from the k most probable tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample from the smallest set with this probability.")] = None,
    stop: _Stop = None,
    seed: Seed = None,
    sample: _Sample = None,
    beam_size: _BeamSize = None,
    n_best: Annotated[int | None, typer.Option(help="Number of continuations per prompt.")] = None,
    truncate: _Truncate = None,
    refuse_long: RefuseLong = False,
    search: Annotated[bool, typer.Option("--search", hidden=True)] = False,
    as_json: _AsJson = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
) -> None:
    """Continue text. A prompt from the command line is streamed."""
    from glassformer.generate import LanguageDecodingConfig
    from glassformer.predict import Generator

    refuse = renamed_option("--refuse-long", "--no-truncate", False if refuse_long else None, truncate) is False
    sample = renamed_option("--search", "--no-sample", False if search else None, sample)
    options = present(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, sample=sample, stop=stop or None)
    options |= present(max_length=max_length, beam_size=beam_size, n_best=n_best)
    prompt, options = text_and_settings(prompt, overrides, setting, LanguageDecodingConfig, **options)
    keep_freed_memory()
    generator = load(Generator.load, run, device=device)
    describe_engine(generator, config := generator.configure(**options))
    several = config.n_best > 1

    def continuations(prompts: list[str]) -> "list[list[Generated]]":
        return generator.continuations(prompts, refuse, **options)

    def text(line: Line[str], results: "list[Generated]") -> str:
        return _json(generator, line, results) if as_json else _text(line, results, several)

    with open_output(output) as stream:
        if prompt is not None and not several and not as_json:
            with LineWarnings(None).collect(1):
                _stream(stream, prompt, generator.stream(prompt, refuse, **options))
            return
        file, batches = ("-", chunks("-", 64, max_line_bytes)) if prompt is None else (None, iter([[prompt]]))
        unknown = predict_lines(stream, batches, continuations, text, file)
    unknown.summarize()


def _stream(stream: "Output", prompt: str, pieces: "Iterator[str]") -> None:
    stream.write(prompt + next(pieces, ""))  # after the first step, so that an error writes nothing
    for piece in pieces:
        stream.write(piece)
        stream.flush()
    stream.write("\n")


def _text(line: Line[str], results: "list[Generated]", several: bool) -> str:
    """The text with its prompt; several texts are between the number of the prompt, from 0, and their scores."""
    if not several:
        return line.value + results[0].text
    return "\n".join(f"{line.number - 1} ||| {line.value}{one.text} ||| {one.score:.4f}" for one in results)


def _json(generator: "Generator", line: Line[str], results: "list[Generated]") -> str:
    continuations: list[dict[str, Any]] = [
        {
            "text": one.text,
            "score": one.score,
            "log_prob": one.hypothesis.log_prob,
            "tokens": generator.tokenizer.tokens(one.hypothesis.predicted(generator.tokenizer.end_id)),
            "token_log_probs": one.hypothesis.token_log_probs,
            "finish_reason": one.hypothesis.finish_reason,
        }
        for one in results
    ]
    return json.dumps({"prompt": line.value, **line.flags, "continuations": continuations}, ensure_ascii=False)
