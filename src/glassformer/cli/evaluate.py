"""``glassformer evaluate``: the scores of a run on text, tables or pictures that it was not trained on."""

import json
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.io import say, write_errors
from glassformer.cli.options import (
    Device,
    MaxLineBytes,
    Run,
    SetOption,
    decoding_settings,
    renamed_option,
    split_settings,
)
from glassformer.cli.run import load
from glassformer.storage.regular_files import MAX_LINE_BYTES
from glassformer.tasks import TASKS

if TYPE_CHECKING:
    from glassformer.predict.evaluation import ClassEvaluation

_Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE|KEY=VALUE",
        help="Source and reference lines, or a .tsv or .jsonl file with both; for other tasks, files as in training. "
        "Settings of a translator, as in decoding.beam_size=8.",
    ),
]
_Metrics = Annotated[str, typer.Option(metavar="NAMES", help="From bleu,chrf,ter,wer,cer,exact. [default: bleu,chrf]")]
_Tokenize = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="For BLEU: 13a char intl none zh ja-mecab ko-mecab. [default: of the run's validation]"
    ),
]
_Comet = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="Local COMET model. It is a pickle, which can run code: use a trusted one."),
]
_Figure = Annotated[
    str | None, typer.Option(metavar="FILE", help="Draw the confusion matrix: .svg .png .pdf .csv or .tex.")
]
_Stride = Annotated[int, typer.Option(min=0, help="Stride of a language model's window; 0 is its context.")]


def command(
    run: Run,
    files: _Files = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="RUN", help="A second translator, compared by paired bootstrap.")
    ] = None,
    against: Annotated[str | None, typer.Option(hidden=True)] = None,
    setting: SetOption = None,
    metrics: _Metrics = "",
    tokenize: _Tokenize = None,
    comet: _Comet = None,
    stride: _Stride = 0,
    figure: _Figure = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print scores and signatures as JSON.")] = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
) -> None:
    """Evaluate a run by the metrics of its task.

    These are BLEU and others of translations, perplexity, accuracy by class, or the errors of forecasts. Without a
    file, a run is evaluated on its own data.test, and a forecaster on the test part of its series.
    """
    from glassformer.predict.loading import task_at

    baseline = renamed_option("--against", "--baseline", against, baseline)
    files, settings = split_settings(files or [])
    settings += setting or []
    task = task_at(run)
    _check_options(run, task, bool(baseline or settings or tokenize or metrics or comet), stride, figure)
    if task == "translation":
        from glassformer.cli.translation_report import Scoring, read_test_pairs, report
        from glassformer.generate import TranslationDecodingConfig

        options = decoding_settings(settings, TranslationDecodingConfig)
        pairs = read_test_pairs(run, files, max_line_bytes)
        say(report(run, pairs, device, baseline, options, Scoring(metrics, tokenize, comet), as_json))
        return
    scores = _evaluate(run, device, files, stride, max_line_bytes)
    if figure is not None and not isinstance(scores, dict):
        _draw(scores, figure)
    if as_json:
        say(json.dumps(scores if isinstance(scores, dict) else scores.as_json(), ensure_ascii=False))
    else:
        say(_text(scores))


def _check_options(run: str, task: str, for_translators: bool, stride: int, figure: str | None) -> None:
    """Refuse options that do not apply to the task of the run."""
    from glassformer.errors import ConfigError

    if for_translators and task != "translation":
        raise ConfigError(
            f"{run}: --baseline, --metrics, --tokenize, --comet and settings are for translators, "
            f"but this run has task={task}; leave them out"
        )
    if stride and task != "language":
        raise ConfigError(f"{run}: --stride is for language models, but this run has task={task}; leave it out")
    if figure is not None:
        from glassformer.explain.figures.view import known_suffix

        if task not in TASKS or not TASKS[task].unit:
            raise ConfigError(f"{run}: --figure draws a confusion matrix, but task={task} has no classes; leave it out")
        known_suffix(figure)


def _evaluate(
    run: str, device: str, files: list[str], stride: int, max_line_bytes: int
) -> "dict[str, float] | ClassEvaluation":
    from glassformer import predict
    from glassformer.errors import ConfigError
    from glassformer.predict.evaluation import EvaluationFiles
    from glassformer.predict.loading import task_at
    from glassformer.tasks import resolve_name

    task, load_run = task_at(run), partial(load, predict.load, run, device=device)
    if task in TASKS and not TASKS[task].evaluation:
        known = ", ".join(name for name, record in TASKS.items() if record.evaluation)
        raise ConfigError(f"{run}: a run of task={task} has no scores; evaluate a run of translation, {known}")
    if task not in TASKS:
        load_run()  # its error names the known tasks
    data = EvaluationFiles(run, files, cache(partial(_data_settings, run)), stride, max_line_bytes)
    scores: dict[str, float] | ClassEvaluation = resolve_name(TASKS[task].evaluation)(load_run, data)
    return scores


def _data_settings(run: str) -> Any:
    """The data section of the training of ``run``; None for a checkpoint elsewhere."""
    from pathlib import Path

    from glassformer.storage.run_folder import resolve
    from glassformer.train import read_config

    files = [folder / "config.toml" for folder in (Path(run), *resolve(run).absolute().parents[:2])]
    file = next((file for file in files if file.is_file()), None)
    return None if file is None else read_config(file).data


def _draw(evaluation: "ClassEvaluation", file: str) -> None:
    from glassformer.cli.class_report import confusion_view
    from glassformer.explain.figures.view import save_view

    with write_errors(file):
        save_view(confusion_view(evaluation.confusion, evaluation.unit), file)


def _text(result: "dict[str, float] | ClassEvaluation") -> str:
    if isinstance(result, dict):
        return _lines(result)
    from glassformer.cli.class_report import confusion_text, rates_table

    spans, scores = result.spans, result.scores
    if spans is not None:
        scores = {**scores, "span_f1": spans.averages["micro"].f1}
    parts = [_lines(scores), rates_table(result.confusion.report(), result.unit), confusion_text(result.confusion)]
    return "\n\n".join(parts if spans is None else [*parts, rates_table(spans, "spans")])


def _lines(scores: dict[str, float]) -> str:
    names = {"mse": "MSE", "mae": "MAE", "macro_f1": "macro F1", "span_f1": "span F1 (micro)"}
    rows = [(names.get(name, name.replace("_", " ")), value) for name, value in scores.items()]
    return "\n".join(
        f"{name:18} {value:,}" if isinstance(value, int) else f"{name:18} {value:.4f}" for name, value in rows
    )
