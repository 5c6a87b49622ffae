"""``glassformer translate``: text in, text out."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.streams import chunks, note, read_text, writing

if TYPE_CHECKING:
    from glassformer.translator import Translation, Translator


def command(
    run: Annotated[list[str], typer.Argument(help="Run or checkpoint folder. [FILE]: what to translate, - for stdin.")],
    output: Annotated[str, typer.Option("-o", "--output", help="File to write, - for stdout.")] = "-",
    ensemble: Annotated[list[str] | None, typer.Option(help="A further run to decode together with.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("-s", "--set", metavar="KEY=VALUE", help="Any decoding setting: beam_size=5")
    ] = None,
    beam_size: Annotated[int | None, typer.Option(help="Hypotheses kept; 1 is greedy.")] = None,
    n_best: Annotated[int | None, typer.Option(help="Translations of each line.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw tokens instead of searching.")] = False,
    seed: Annotated[int | None, typer.Option(help="Of the drawing.")] = None,
    prefix: Annotated[str | None, typer.Option(help="File with the beginning of each translation.")] = None,
    alignments: Annotated[bool, typer.Option("--alignments", help="Add word alignments: text ||| 0-0 1-2")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with scores and tokens.")] = False,
) -> None:
    """Translate text, line by line."""
    from glassformer.config import ConfigError, apply_override
    from glassformer.translator import Translator

    if len(run) > 2:
        raise ConfigError(f"translate takes RUN and FILE, not {len(run)} names; join files before, or call it for each")
    options: dict[str, Any] = {}
    for text in setting or []:
        apply_override(options, text)
    given = {"beam_size": beam_size, "n_best": n_best, "seed": seed, "sample": sample or None}
    options |= {name: value for name, value in given.items() if value is not None}
    translator = Translator.load(run[0], *(ensemble or []))
    translator.configure(**options)
    starts = None if prefix is None else read_text(prefix)
    done = 0
    with writing(output) as stream:
        for lines in chunks(read_text(run[1] if len(run) == 2 else "-"), 512):
            _warn_of_length(translator, lines, done)
            forced = None if starts is None else [next(starts, "") for _ in lines]
            for line, found in zip(lines, translator.hypotheses(lines, forced, **options), strict=True):
                stream.write(_format(translator, line, found, alignments, as_json, done) + "\n")
                done += 1
            stream.flush()


def _warn_of_length(translator: "Translator", lines: list[str], done: int) -> None:
    for index, length in translator.too_long(lines):
        limit = translator.models[0].config.max_length
        note(f"glassformer: warning: line {done + index + 1} has {length} tokens, more than max_length={limit}")


def _format(
    translator: "Translator", line: str, found: "list[Translation]", alignments: bool, as_json: bool, number: int
) -> str:
    from glassformer.evaluate import write_pharaoh

    linked = [write_pharaoh(translator.align(line, one.text)) if alignments else None for one in found]
    if as_json:
        results = [
            {
                "text": one.text,
                "score": one.score,
                "log_prob": one.hypothesis.log_prob,
                "tokens": translator.tokenizers.target.tokens(one.hypothesis.tokens),
                "token_log_probs": one.hypothesis.token_log_probs,
                **({} if links is None else {"alignment": links}),
            }
            for one, links in zip(found, linked, strict=True)
        ]
        return json.dumps({"source": line, "translations": results}, ensure_ascii=False)
    if len(found) == 1:
        return found[0].text + ("" if linked[0] is None else f" ||| {linked[0]}")
    rows = [
        f"{number} ||| {one.text} ||| {one.score:.4f}" + ("" if links is None else f" ||| {links}")
        for one, links in zip(found, linked, strict=True)
    ]
    return "\n".join(rows)
