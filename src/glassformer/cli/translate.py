"""``glassformer translate``: text in, text out."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.lifetime import loading
from glassformer.cli.options import Device
from glassformer.cli.streams import chunks, given, note, read_text, settings, writing
from glassformer.cli.unknown import UnknownText

if TYPE_CHECKING:
    from glassformer.translator import Translation, Translator


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder.")],
    file: Annotated[str, typer.Argument(help="What to translate, a sentence a line; - for stdin.")] = "-",
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
    attention: Annotated[bool, typer.Option("--attention", help="With --json: the cross-attention of each.")] = False,
    device: Device = "cpu",
) -> None:
    """Translate text, line by line."""
    from glassformer.allocator import keep_freed_memory
    from glassformer.config import ConfigError, DataError

    if attention and not as_json:
        raise ConfigError("--attention goes with --json; for a picture see glassformer figure --help")
    if prefix == file == "-":
        raise DataError("standard input cannot be both files; name a file for one of them")
    options = settings(setting) | given(beam_size=beam_size, n_best=n_best, seed=seed, sample=sample or None)
    keep_freed_memory()
    with loading():
        translator = _loaded(run, ensemble or [], device)
    several = translator.configure(**options).n_best > 1
    starts = None if prefix is None else read_text(prefix)
    done, unknown = 0, UnknownText(file)
    with writing(output) as stream:
        for lines in chunks(file, 512):
            _warn_of_length(translator, lines, done)
            fault = f"{prefix} has fewer lines than {file}"
            forced = None if starts is None else _beginnings(starts, len(lines), fault)
            with unknown.watched(len(lines)):
                translations = translator.hypotheses(lines, forced, **options)
            for line, found in zip(lines, translations, strict=True):
                links = _alignments(translator, line, found) if alignments else None
                number, done = done if several else None, done + 1
                read = {"source": line, **unknown.flags(done)}
                text = _json(translator, read, found, links, attention) if as_json else _text(found, links, number)
                stream.write(text + "\n")
            stream.flush()
        if starts is not None and next(starts, None) is not None:
            raise DataError(
                f"{prefix} has more lines than the {done} of {file}; give one for each, empty where none is"
            )
    unknown.summarize()


def _loaded(run: str, others: list[str], device: str) -> "Translator":
    from glassformer.predict.opening import check_task
    from glassformer.translator import Translator

    for other in others:
        check_task(other, ("translation",))
    return Translator.load(run, *others, device=device)


def _alignments(translator: "Translator", line: str, found: "list[Translation]") -> list[str]:
    from glassformer.evaluate import write_pharaoh
    from glassformer.text.faults import without_text_warnings

    with without_text_warnings():  # the line has been reported
        return [write_pharaoh(translator.align(line, one.text)) for one in found]


def _beginnings(starts: Iterator[str], count: int, fault: str) -> list[str]:
    from glassformer.config import DataError

    taken = list(islice(starts, count))
    if len(taken) < count:
        raise DataError(f"{fault}; give one for each, empty where none is")
    return taken


def _warn_of_length(translator: "Translator", lines: list[str], done: int) -> None:
    for index, length in translator.too_long(lines):
        limit = min(model.config.max_length for model in translator.models)
        note(
            f"glassformer: warning: line {done + index + 1} has {length:,} tokens, more than max_length={limit}; "
            "it is translated as one sentence, which takes long; split it to be faster"
        )


def _json(
    translator: "Translator", read: dict[str, Any], found: "list[Translation]", links: list[str] | None, attention: bool
) -> str:
    results = [
        {
            "text": one.text,
            "score": one.score,
            "log_prob": one.hypothesis.log_prob,
            "tokens": translator.tokenizers.target.tokens(one.hypothesis.tokens),
            "token_log_probs": one.hypothesis.token_log_probs,
            **({} if links is None else {"alignment": links[rank]}),
            **({"cross_attention": _attention(translator, read["source"], one.text)} if attention else {}),
        }
        for rank, one in enumerate(found)
    ]
    return json.dumps({**read, "translations": results}, ensure_ascii=False)


def _attention(translator: "Translator", source: str, target: str) -> dict[str, Any]:
    """Who looks at whom: tokens, and ``[layer, head, target, source]`` to four decimals."""
    seen = translator.cross_attention(source, target)
    return {"source": seen.source, "target": seen.target, "weights": (seen.weights * 1e4).round().div(1e4).tolist()}


def _text(found: "list[Translation]", links: list[str] | None, number: int | None) -> str:
    """One translation as it is; of several, each with the ``number`` of its line before it and its score after it."""
    rows = []
    for rank, one in enumerate(found):
        columns = [one.text] if number is None else [str(number), one.text, f"{one.score:.4f}"]
        rows.append(" ||| ".join([*columns, *([] if links is None else [links[rank]])]))
    return "\n".join(rows)
