"""``glassformer translate``: translation of text, line by line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.corpus import Work, check_target, predict_corpus
from glassformer.cli.inputs import LineInput
from glassformer.cli.io import read_text
from glassformer.cli.lines import Line
from glassformer.cli.options import (
    Device,
    MaxLineBytes,
    OutputFile,
    RefuseLong,
    Restart,
    Run,
    Seed,
    SetOption,
    Settings,
    Shard,
    complete_runs,
    present,
    renamed_option,
    text_and_settings,
)
from glassformer.cli.process import keep_freed_memory
from glassformer.cli.run import describe_engine, job_of, load
from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from glassformer.generate import TranslationDecodingConfig
    from glassformer.predict.translator import Translation, Translator

Row = tuple[str, ...]
"""A text, with its prefix if there is a file of them."""

_Ensemble = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RUN", help="Another run to decode together with; may be repeated.", autocompletion=complete_runs
    ),
]
_MaxSource = Annotated[
    int | None,
    typer.Option(help="Maximum tokens of a text; a longer one is split. [default: the longest in training]"),
]
_Truncate = Annotated[
    bool | None,
    typer.Option("--truncate/--no-truncate", help="Truncate a long text, or refuse it. [default: split it]"),
]
_Prefix = Annotated[
    str | None, typer.Option(metavar="FILE", help="File with the beginning of each translation, line by line.")
]
_Alignments = Annotated[bool, typer.Option("--alignments", help="Add word alignments: text ||| 0-0 1-2.")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line: scores, tokens, finish_reason.")]
_Attention = Annotated[bool, typer.Option("--attention", help="Add the cross-attention; requires --json.")]


def command(
    run: Run,
    file: Annotated[str, typer.Argument(help="File of one sentence per line; - is standard input.")] = "-",
    overrides: Settings = None,
    output: OutputFile = "-",
    ensemble: _Ensemble = None,
    setting: SetOption = None,
    beam_size: Annotated[int | None, typer.Option(help="Number of hypotheses; 1 is greedy.")] = None,
    n_best: Annotated[int | None, typer.Option(help="Number of translations per line.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Sample tokens instead of searching.")] = False,
    seed: Seed = None,
    max_source: _MaxSource = None,
    truncate: _Truncate = None,
    refuse_long: RefuseLong = False,
    prefix: _Prefix = None,
    alignments: _Alignments = False,
    as_json: _AsJson = False,
    attention: _Attention = False,
    shard: Shard = None,
    restart: Restart = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
) -> None:
    """Translate text, line by line.

    An interrupted output continues with the same command; an output named .gz is compressed.
    """
    from glassformer.generate import TranslationDecodingConfig

    truncate = renamed_option("--refuse-long", "--no-truncate", False if refuse_long else None, truncate)
    long_source = None if truncate is None else "truncate" if truncate else "refuse"
    options = present(beam_size=beam_size, n_best=n_best, seed=seed, sample=sample or None)
    options |= present(max_source=max_source, long_source=long_source)
    text, options = text_and_settings(file, overrides, setting, TranslationDecodingConfig, **options)
    file = text or "-"
    _check(attention and not as_json, prefix == file == "-")
    inputs = [_rows(file, prefix, max_line_bytes)]
    target = check_target(inputs, output, shard, restart)
    keep_freed_memory()
    translator = _load_ensemble(run, ensemble or [], device)
    config = translator.configure(**options)
    describe_engine(translator, config)

    form = _Format(translator, as_json, alignments, attention, config.n_best > 1)
    predict_corpus(_work(translator, config, options, form, file, prefix), inputs, target)


def _work(
    translator: "Translator",
    config: "TranslationDecodingConfig",
    options: dict[str, Any],
    form: "_Format",
    file: str,
    prefix: str | None,
) -> Work:
    """Job that translates rows; ``config`` is the configuration with ``options`` applied."""

    def translate(rows: list[Row]) -> "list[list[Translation]]":
        if prefix is None:
            return translator.hypotheses([text for text, *_ in rows], None, **options)
        texts, prefixes = zip(*rows, strict=True)
        return translator.hypotheses(texts, prefixes, **options)

    forms = {"json": form.as_json, "alignments": form.alignments, "attention": form.attention}
    end = translator.symbols.end
    return Work(
        "translate",
        "translated",
        translate,
        form.text,
        job_of(translator, config, **config.model_dump(mode="json"), **forms, prefix=prefix is not None),
        count=lambda hypotheses: sum(
            id != end for id in hypotheses[0].hypothesis.tokens
        ),  # each part of a long line has an end
        files={"text": file, "prefix": prefix or ""},
    )


def _rows(file: str, prefix: str | None, max_line_bytes: int) -> LineInput[Row]:
    """Lines of ``file``, each alone or with its line of the file ``prefix``."""

    def read() -> Iterator[Row]:
        texts = read_text(file, max_line_bytes)
        if prefix is None:
            return ((text,) for text in texts)
        return _with_prefixes(texts, read_text(prefix, max_line_bytes), prefix, file)

    return LineInput(file, (file,) if prefix is None else (file, prefix), read)


def _with_prefixes(texts: Iterator[str], prefixes: Iterator[str], name: str, file: str) -> Iterator[Row]:
    """Pair each text with its prefix; ``DataError`` if one file has more lines."""
    from glassformer.errors import DataError

    remedy = "give one for each, empty where none is"
    for number, (text, prefix) in enumerate(zip_longest(texts, prefixes)):
        if prefix is None:
            raise DataError(f"{name} has fewer lines than {file}", remedy=remedy)
        if text is None:
            raise DataError(f"{name} has more lines than the {number} of {file}", remedy=remedy)
        yield text, prefix


def _check(attention_alone: bool, stdin_twice: bool) -> None:
    """Refuse options that exclude each other."""
    from glassformer.errors import ConfigError, DataError

    if attention_alone:
        raise ConfigError("--attention requires --json; for a figure see glassformer figure --help")
    if stdin_twice:
        raise DataError("standard input cannot be both files; name a file for one of them")


@dataclass(frozen=True)
class _Format:
    """Format of the output: text or JSON, with or without alignments and attention."""

    translator: "Translator"
    as_json: bool
    alignments: bool
    attention: bool
    several: bool

    def text(self, line: Line[Row], hypotheses: "list[Translation]") -> str:
        """Format the translations of ``line`` as one line or several, which are numbered from 0."""
        from glassformer.alignment import write_pharaoh

        links = [write_pharaoh(self.translator.links(one)) for one in hypotheses] if self.alignments else None
        if self.as_json:
            source = {"source": line.value[0], **line.flags}
            return _json(self.translator, source, hypotheses, links, self.attention)
        return _text(hypotheses, links, line.number - 1 if self.several else None)


def _load_ensemble(run: str, others: list[str], device: str) -> "Translator":
    from glassformer.predict.loading import check_task
    from glassformer.predict.translator import Translator

    for other in others:
        check_task(other, ("translation",))
    return load(Translator.load, run, *others, device=device)


def _json(
    translator: "Translator",
    source: dict[str, Any],
    hypotheses: "list[Translation]",
    links: list[str] | None,
    attention: bool,
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
        for rank, one in enumerate(hypotheses)
    ]
    return json.dumps({**source, "translations": results}, ensure_ascii=False)


def _attention(translator: "Translator", translation: "Translation") -> dict[str, Any] | list[Any]:
    """Tokens, and weights ``[layer, head, target, source]`` to four decimals; a list of these for a split text."""
    if translation.pieces:
        return [_attention(translator, piece) for piece in translation.pieces]
    attention = translator.cross_attention(translation.source, translation.text)
    weights = (attention.weights * 1e4).round().div(1e4).tolist()
    return {"source": attention.source, "target": attention.target, "weights": weights}


def _text(hypotheses: "list[Translation]", links: list[str] | None, number: int | None) -> str:
    """One translation alone; several are between the ``number`` of their line and their scores."""
    rows = []
    for rank, one in enumerate(hypotheses):
        columns = [one.text] if number is None else [str(number), one.text, f"{one.score:.4f}"]
        rows.append(" ||| ".join([*columns, *([] if links is None else [links[rank]])]))
    return "\n".join(rows)
