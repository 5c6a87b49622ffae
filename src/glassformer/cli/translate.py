"""``glassformer translate``: text in, text out."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.io import chunks, given, read_text, settings, telling_lines, writing
from glassformer.cli.line_warnings import LineWarnings
from glassformer.cli.options import Device, MaxLineBytes, renamed_option
from glassformer.cli.process import keep_freed_memory, loading
from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from glassformer.predict.translator import Translation, Translator

_Setting = Annotated[
    list[str] | None, typer.Option("-s", "--set", metavar="KEY=VALUE", help="Any decoding setting: beam_size=5")
]
_MaxSource = Annotated[
    int | None, typer.Option(help="Tokens read at once; a longer text is split. [default: the longest in training]")
]
_Truncate = Annotated[
    bool | None,
    typer.Option(
        "--truncate/--no-truncate", help="Truncate a text that is too long, or refuse it. [default: split it]"
    ),
]
_AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line: scores, tokens, finish_reason.")]


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder.")],
    file: Annotated[str, typer.Argument(help="What to translate, a sentence a line; - for stdin.")] = "-",
    output: Annotated[str, typer.Option("-o", "--output", help="File to write, - for stdout.")] = "-",
    ensemble: Annotated[list[str] | None, typer.Option(help="A further run to decode together with.")] = None,
    setting: _Setting = None,
    beam_size: Annotated[int | None, typer.Option(help="Hypotheses kept; 1 is greedy.")] = None,
    n_best: Annotated[int | None, typer.Option(help="Translations of each line.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw tokens instead of searching.")] = False,
    seed: Annotated[int | None, typer.Option(help="Random seed for sampling.")] = None,
    max_source: _MaxSource = None,
    truncate: _Truncate = None,
    refuse_long: Annotated[bool, typer.Option("--refuse-long", hidden=True)] = False,
    prefix: Annotated[str | None, typer.Option(help="File with the beginning of each translation.")] = None,
    alignments: Annotated[bool, typer.Option("--alignments", help="Add word alignments: text ||| 0-0 1-2")] = False,
    as_json: _AsJson = False,
    attention: Annotated[bool, typer.Option("--attention", help="With --json: the cross-attention of each.")] = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
) -> None:
    """Translate text, line by line."""
    from glassformer.errors import DataError

    _check(attention and not as_json, prefix == file == "-")
    truncate = renamed_option("--refuse-long", "--no-truncate", False if refuse_long else None, truncate)
    long_source = None if truncate is None else "truncate" if truncate else "refuse"
    options = settings(setting) | given(beam_size=beam_size, n_best=n_best, seed=seed, sample=sample or None)
    options |= given(max_source=max_source, long_source=long_source)
    keep_freed_memory()
    with loading():
        translator = _loaded(run, ensemble or [], device)
    with writing(output) as stream:
        reported = LineWarnings({"text": file, "prefix": prefix or ""})
        starts = None if prefix is None else read_text(prefix, max_line_bytes)
        show = _Shown(translator, as_json, alignments, attention, translator.configure(**options).n_best > 1)
        done = 0
        for lines in chunks(file, 512, max_line_bytes):
            fault = f"{prefix} has fewer lines than {file}"
            forced = None if starts is None else _beginnings(starts, len(lines), fault)
            with telling_lines(file, done), reported.watched(len(lines)):
                translations = translator.hypotheses(lines, forced, **options)
            for line, found in zip(lines, translations, strict=True):
                done += 1
                stream.write(show.text({"source": line, **reported.flags(done)}, found, done - 1) + "\n")
            stream.flush()
        if starts is not None and next(starts, None) is not None:
            raise DataError(
                f"{prefix} has more lines than the {done} of {file}; give one for each, empty where none is"
            )
    reported.summarize()


def _check(attention_alone: bool, stdin_twice: bool) -> None:
    """Refuse options that exclude each other."""
    from glassformer.errors import ConfigError, DataError

    if attention_alone:
        raise ConfigError("--attention requires --json; for a figure see glassformer figure --help")
    if stdin_twice:
        raise DataError("standard input cannot be both files; name a file for one of them")


@dataclass(frozen=True)
class _Shown:
    """Format of the output: text or JSON, with or without alignments and attention."""

    translator: "Translator"
    as_json: bool
    alignments: bool
    attention: bool
    several: bool

    def text(self, read: dict[str, Any], found: "list[Translation]", number: int) -> str:
        """Format the translations of line ``number`` (from 0) as one line or several."""
        from glassformer.alignment import write_pharaoh

        links = [write_pharaoh(self.translator.links(one)) for one in found] if self.alignments else None
        if self.as_json:
            return _json(self.translator, read, found, links, self.attention)
        return _text(found, links, number if self.several else None)


def _loaded(run: str, others: list[str], device: str) -> "Translator":
    from glassformer.predict.loading import check_task
    from glassformer.predict.translator import Translator

    for other in others:
        check_task(other, ("translation",))
    return Translator.load(run, *others, device=device)


def _beginnings(starts: Iterator[str], count: int, fault: str) -> list[str]:
    from glassformer.errors import DataError

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
    """Tokens, and weights ``[layer, head, target, source]`` to four decimals; a list of these for a split text."""
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
