"""``glassformer evaluate``: how good a run is on text, tables or pictures that it has not seen."""

import json
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.advice import WITHOUT_SETTINGS, in_words
from glassformer.cli.io import say, settings
from glassformer.cli.options import Device, MaxLineBytes, renamed_option
from glassformer.storage.regular_files import MAX_LINE_BYTES
from glassformer.tasks import TASKS

if TYPE_CHECKING:
    from glassformer.predict.evaluation import ClassEvaluation

_Metrics = Annotated[str, typer.Option(metavar="NAMES", help="From bleu,chrf,ter,wer,cer,exact. [default: bleu,chrf]")]
_Tokenize = Annotated[
    str | None,
    typer.Option(help="For BLEU: 13a char intl none zh ja-mecab ko-mecab. [default: as in the run's validation]"),
]
_Comet = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="Local COMET model. A pickle, which can run code: use only one you trust."),
]
_Figure = Annotated[
    str | None, typer.Option(metavar="FILE", help="Draw the confusion matrix: .svg .png .pdf .csv or .tex.")
]


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Source and reference lines, or a .tsv or .jsonl with both; other tasks: files as for training.",
        ),
    ] = None,
    baseline: Annotated[str | None, typer.Option(help="A second translator, compared by paired bootstrap.")] = None,
    against: Annotated[str | None, typer.Option(hidden=True)] = None,
    setting: Annotated[
        list[str] | None, typer.Option("-s", "--set", metavar="KEY=VALUE", help="Any decoding setting: beam_size=5")
    ] = None,
    metrics: _Metrics = "",
    tokenize: _Tokenize = None,
    comet: _Comet = None,
    stride: Annotated[int, typer.Option(min=0, help="Of a language model's window; 0 is its context.")] = 0,
    figure: _Figure = None,
    as_json: Annotated[bool, typer.Option("--json", help="Scores and signatures as JSON.")] = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
) -> None:
    """Measure a run: BLEU and other metrics, perplexity, accuracy by class, or the errors of forecasts.

    Without a file, a run is measured on its own data.test, a forecaster on the test part of its series.
    """
    from glassformer.predict.loading import task_at

    baseline = renamed_option("--against", "--baseline", against, baseline)
    task = task_at(run)
    _check_options(run, task, bool(baseline or setting or tokenize or metrics or comet), stride, figure)
    if task == "translation":
        from glassformer.cli.translation_report import Scoring, read_test_pairs, report

        scoring = Scoring(metrics, tokenize, comet)
        pairs = read_test_pairs(run, files or [], max_line_bytes)
        say(report(run, pairs, device, baseline, settings(setting), scoring, as_json))
        return
    with in_words(WITHOUT_SETTINGS):
        found = _evaluated(run, device, files or [], stride, max_line_bytes)
    if figure is not None and not isinstance(found, dict):
        _draw(found, figure)
    if as_json:
        say(json.dumps(found if isinstance(found, dict) else found.as_json(), ensure_ascii=False))
    else:
        say(_text(found))


def _check_options(run: str, task: str, for_translators: bool, stride: int, figure: str | None) -> None:
    """Refuse options that do not apply to the task of the run."""
    from glassformer.errors import ConfigError

    if for_translators and task != "translation":
        raise ConfigError(
            f"{run}: --baseline, --set, --metrics, --tokenize and --comet are for translators, "
            f"but this run has task={task}; leave them out"
        )
    if stride and task != "language":
        raise ConfigError(f"{run}: --stride is for language models, but this run has task={task}; leave it out")
    if figure is not None:
        from glassformer.explain.figures.view import known_suffix

        if task not in TASKS or not TASKS[task].unit:
            raise ConfigError(f"{run}: --figure draws a confusion matrix, but task={task} has no classes; leave it out")
        known_suffix(figure)


def _evaluated(
    run: str, device: str, files: list[str], stride: int, max_line_bytes: int
) -> "dict[str, float] | ClassEvaluation":
    from glassformer import predict
    from glassformer.errors import ConfigError
    from glassformer.predict.evaluation import EvaluationFiles
    from glassformer.predict.loading import task_at
    from glassformer.tasks import resolve_name

    task, load = task_at(run), partial(predict.load, run, device=device)
    if task in TASKS and not TASKS[task].evaluation:
        known = ", ".join(name for name, record in TASKS.items() if record.evaluation)
        raise ConfigError(f"{run}: a run of task={task} has no scores; evaluate a run of translation, {known}")
    if task not in TASKS:
        load()  # its error names the known tasks
    data = EvaluationFiles(run, files, cache(partial(_data_settings, run)), stride, max_line_bytes)
    found: dict[str, float] | ClassEvaluation = resolve_name(TASKS[task].evaluation)(load, data)
    return found


def _data_settings(run: str) -> Any:
    """The data section of the training of ``run``; None for a checkpoint elsewhere."""
    from pathlib import Path

    from glassformer.storage.run_folder import resolve
    from glassformer.train import read_config

    places = [Path(run), *resolve(run).absolute().parents[:2]]
    found = next((place / "config.toml" for place in places if (place / "config.toml").is_file()), None)
    return None if found is None else read_config(found).data


def _draw(found: "ClassEvaluation", file: str) -> None:
    from glassformer.cli.class_report import confusion_view
    from glassformer.cli.io import explaining

    with explaining(file):
        confusion_view(found.confusion, found.unit).save(file)


def _text(found: "dict[str, float] | ClassEvaluation") -> str:
    if isinstance(found, dict):
        return _lines(found)
    from glassformer.cli.class_report import confusion_text, rates_table

    scores = found.scores if found.spans is None else {**found.scores, "span_f1": found.spans.averages["micro"].f1}
    parts = [_lines(scores), rates_table(found.confusion.report(), found.unit), confusion_text(found.confusion)]
    return "\n\n".join(parts if found.spans is None else [*parts, rates_table(found.spans, "spans")])


def _lines(scores: dict[str, float]) -> str:
    names = {"mse": "MSE", "mae": "MAE", "macro_f1": "macro F1", "span_f1": "span F1 (micro)"}
    rows = [(names.get(name, name.replace("_", " ")), value) for name, value in scores.items()]
    return "\n".join(
        f"{name:18} {value:,}" if isinstance(value, int) else f"{name:18} {value:.4f}" for name, value in rows
    )
