"""``glassformer translate``: text in, text out."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.lifetime import loading
from glassformer.cli.line_warnings import LineWarnings
from glassformer.cli.options import Device, MaxLineBytes
from glassformer.cli.streams import chunks, given, read_text, settings, telling_lines, writing
from glassformer.regular_files import MAX_LINE_BYTES

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
    max_source: Annotated[
        int | None, typer.Option(help="Tokens read at once; a longer text is cut. [default: the longest in training]")
    ] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Leave out the rest of a text that is too long.")
    ] = False,
    refuse_long: Annotated[bool, typer.Option("--refuse-long", help="A text that is too long is an error.")] = False,
    prefix: Annotated[str | None, typer.Option(help="File with the beginning of each translation.")] = None,
    alignments: Annotated[bool, typer.Option("--alignments", help="Add word alignments: text ||| 0-0 1-2")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line: scores, tokens, finish_reason.")
    ] = False,
    attention: Annotated[bool, typer.Option("--attention", help="With --json: the cross-attention of each.")] = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
) -> None:
    """Translate text, line by line."""
    from glassformer.allocator import keep_freed_memory
    from glassformer.config import ConfigError, DataError
    from glassformer.evaluate import write_pharaoh

    if attention and not as_json:
        raise ConfigError("--attention goes with --json; for a picture see glassformer figure --help")
    if prefix == file == "-":
        raise DataError("standard input cannot be both files; name a file for one of them")
    if truncate and refuse_long:
        raise ConfigError("--truncate and --refuse-long exclude each other; leave out one")
    long_source = "truncate" if truncate else "refuse" if refuse_long else None
    options = settings(setting) | given(beam_size=beam_size, n_best=n_best, seed=seed, sample=sample or None)
    options |= given(max_source=max_source, long_source=long_source)
    keep_freed_memory()
    with loading():
        translator = _loaded(run, ensemble or [], device)
    several = translator.configure(**options).n_best > 1
    starts = None if prefix is None else read_text(prefix, max_line_bytes)
    done, reported = 0, LineWarnings({"text": file, "prefix": prefix or ""})
    with writing(output) as stream:
        for lines in chunks(file, 512, max_line_bytes):
            fault = f"{prefix} has fewer lines than {file}"
            forced = None if starts is None else _beginnings(starts, len(lines), fault)
            with telling_lines(file, done), reported.watched(len(lines)):
                translations = translator.hypotheses(lines, forced, **options)
            for line, found in zip(lines, translations, strict=True):
                links = [write_pharaoh(translator.links(one)) for one in found] if alignments else None
                number, done = done if several else None, done + 1
                read = {"source": line, **reported.flags(done)}
                text = _json(translator, read, found, links, attention) if as_json else _text(found, links, number)
                stream.write(text + "\n")
            stream.flush()
        if starts is not None and next(starts, None) is not None:
            raise DataError(
                f"{prefix} has more lines than the {done} of {file}; give one for each, empty where none is"
            )
    reported.summarize()


def _loaded(run: str, others: list[str], device: str) -> "Translator":
    from glassformer.predict.opening import check_task
    from glassformer.translator import Translator

    for other in others:
        check_task(other, ("translation",))
    return Translator.load(run, *others, device=device)


def _beginnings(starts: Iterator[str], count: int, fault: str) -> list[str]:
    from glassformer.config import DataError

    taken = list(islice(starts, count))
    if len(taken) < count:
        raise DataError(f"{fault}; give one for each, empty where none is")
    return taken


def _json(
    translator: "Translator", read: dict[str, Any], found: "list[Translation]", links: list[str] | None, attention: bool
) -> str:
    results = [
        {
            "text": one.text,
            "score": one.score,
            "log_prob": one.hypothesis.log_prob,
            "tokens": translator.tokenizers.target.tokens(one.hypothesis.predicted(translator.symbols.end)),
            "token_log_probs": one.hypothesis.token_log_probs,
            "finish_reason": one.hypothesis.finish_reason,
            **({"pieces": [piece.text for piece in one.pieces]} if one.pieces else {}),
            **(
                {"copied": [{"token": place, "text": text} for place, text in one.copied.items()]} if one.copied else {}
            ),
            **({} if links is None else {"alignment": links[rank]}),
            **({"cross_attention": _attention(translator, one)} if attention else {}),
        }
        for rank, one in enumerate(found)
    ]
    return json.dumps({**read, "translations": results}, ensure_ascii=False)


def _attention(translator: "Translator", found: "Translation") -> dict[str, Any] | list[Any]:
    """Tokens, and weights ``[layer, head, target, source]`` to four decimals; of each piece where there are several."""
    if found.pieces:
        return [_attention(translator, piece) for piece in found.pieces]
    seen = translator.cross_attention(found.source, found.text)
    return {"source": seen.source, "target": seen.target, "weights": (seen.weights * 1e4).round().div(1e4).tolist()}


def _text(found: "list[Translation]", links: list[str] | None, number: int | None) -> str:
    """One translation as it is; of several, each with the ``number`` of its line before it and its score after it."""
    rows = []
    for rank, one in enumerate(found):
        columns = [one.text] if number is None else [str(number), one.text, f"{one.score:.4f}"]
        rows.append(" ||| ".join([*columns, *([] if links is None else [links[rank]])]))
    return "\n".join(rows)
