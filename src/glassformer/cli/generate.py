"""``glassformer generate``: text that goes on."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.io import chunks, given, settings, telling_lines, writing
from glassformer.cli.line_warnings import LineWarnings
from glassformer.cli.options import Device, MaxLineBytes, renamed_option
from glassformer.cli.process import keep_freed_memory, loading
from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glassformer.cli.io import Output
    from glassformer.predict import Generated, Generator

_AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per prompt: scores, tokens, finish_reason.")]
_Setting = Annotated[
    list[str] | None, typer.Option("-s", "--set", metavar="KEY=VALUE", help="Any decoding setting: min_p=0.1")
]
_Stop = Annotated[
    list[str] | None, typer.Option(metavar="TEXT", help="Stop the text before this string; may be repeated.")
]
_Sample = Annotated[bool | None, typer.Option("--sample/--no-sample", help="Draw tokens, or search for them.")]
_Truncate = Annotated[
    bool | None,
    typer.Option(
        "--truncate/--no-truncate",
        help="Keep the end of a prompt longer than the context, or refuse it. [default: truncate]",
    ),
]


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder of a language model.")],
    prompt: Annotated[str | None, typer.Argument(help="How the text begins; none: a prompt a line from stdin.")] = None,
    output: Annotated[str, typer.Option("-o", "--output", help="File to write, - for stdout.")] = "-",
    setting: _Setting = None,
    max_length: Annotated[int | None, typer.Option(help="New tokens at most.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Softmax temperature for sampling; 0: greedy.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k most probable.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the smallest set with this probability.")] = None,
    stop: _Stop = None,
    seed: Annotated[int | None, typer.Option(help="Random seed for sampling.")] = None,
    sample: _Sample = None,
    beam_size: Annotated[int | None, typer.Option(help="Hypotheses kept; more than 1 is a search.")] = None,
    n_best: Annotated[int | None, typer.Option(help="Continuations of each prompt.")] = None,
    truncate: _Truncate = None,
    refuse_long: Annotated[bool, typer.Option("--refuse-long", hidden=True)] = False,
    search: Annotated[bool, typer.Option("--search", hidden=True)] = False,
    as_json: _AsJson = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
) -> None:
    """Continue text: the prompt and what follows it, as it comes."""
    from glassformer.predict import Generator

    refuse = renamed_option("--refuse-long", "--no-truncate", False if refuse_long else None, truncate) is False
    sample = renamed_option("--search", "--no-sample", False if search else None, sample)
    drawing = given(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, sample=sample, stop=stop or None)
    options = settings(setting) | drawing | given(max_length=max_length, beam_size=beam_size, n_best=n_best)
    keep_freed_memory()
    with loading():
        generator = Generator.load(run, device=device)
    unknown = LineWarnings("-" if prompt is None else None)
    done, several = 0, generator.configure(**options).n_best > 1
    with writing(output) as stream:
        if prompt is not None and not several and not as_json:
            with unknown.watched(1):
                _stream(stream, prompt, generator.stream(prompt, refuse, **options))
            return
        for prompts in chunks("-", 64, max_line_bytes) if prompt is None else [[prompt]]:
            with telling_lines("-" if prompt is None else None, done), unknown.watched(len(prompts)):
                continued = generator.continuations(prompts, refuse, **options)
            for line, found in zip(prompts, continued, strict=True):
                number, done = done if several else None, done + 1
                flags = unknown.flags(done)
                text = _json(generator, line, found, flags) if as_json else _text(line, found, number)
                stream.write(text + "\n")
            stream.flush()
    unknown.summarize()


def _stream(stream: "Output", prompt: str, pieces: "Iterator[str]") -> None:
    stream.write(prompt + next(pieces, ""))  # after the first step: what is refused writes nothing
    for piece in pieces:
        stream.write(piece)
        stream.flush()
    stream.write("\n")


def _text(prompt: str, found: "list[Generated]", number: int | None) -> str:
    """The whole text; of several, each with the ``number`` of its prompt before it and its score after it."""
    if number is None:
        return prompt + found[0].text
    return "\n".join(f"{number} ||| {prompt}{one.text} ||| {one.score:.4f}" for one in found)


def _json(generator: "Generator", prompt: str, found: "list[Generated]", flags: dict[str, list[str]]) -> str:
    results: list[dict[str, Any]] = [
        {
            "text": one.text,
            "score": one.score,
            "log_prob": one.hypothesis.log_prob,
            "tokens": generator.tokenizer.tokens(one.hypothesis.predicted(generator.tokenizer.end_id)),
            "token_log_probs": one.hypothesis.token_log_probs,
            "finish_reason": one.hypothesis.finish_reason,
        }
        for one in found
    ]
    return json.dumps({"prompt": prompt, **flags, "continuations": results}, ensure_ascii=False)
