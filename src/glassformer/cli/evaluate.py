"""``glassformer evaluate``: how good a run is on text, tables or pictures that it has not seen."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.advice import WITHOUT_SETTINGS, in_words
from glassformer.cli.io import say, settings
from glassformer.cli.options import Device, MaxLineBytes
from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from glassformer.config import Config
    from glassformer.evaluate.class_report import ClassReport, Confusion


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
            metavar="[FILE]...",
            help="Source and reference lines, or a .tsv or .jsonl with both; other tasks: files as for training.",
        ),
    ] = None,
    against: Annotated[str | None, typer.Option(help="A second translator, compared by paired bootstrap.")] = None,
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
    from glassformer.predict.opening import task_at

    task = task_at(run)
    _check_options(run, task, bool(against or setting or tokenize or metrics or comet), stride, figure)
    if task == "translation":
        from glassformer.cli.translation_report import Scoring, read_test_pairs, report

        scoring = Scoring(metrics, tokenize, comet)
        pairs = read_test_pairs(run, files or [], max_line_bytes)
        say(report(run, pairs, device, against, settings(setting), scoring, as_json))
        return
    with in_words(WITHOUT_SETTINGS):
        found = _scores(run, device, task, files or [], stride, max_line_bytes)
    if isinstance(found, dict):
        say(json.dumps(found, ensure_ascii=False) if as_json else _lines(found))
        return
    if figure is not None:
        found.draw(figure)
    say(json.dumps(found.as_json(), ensure_ascii=False) if as_json else found.text())


def _check_options(run: str, task: str, for_translators: bool, stride: int, figure: str | None) -> None:
    """Refuse options that do not apply to the task of the run."""
    from glassformer.errors import ConfigError

    if for_translators and task != "translation":
        raise ConfigError(
            f"{run}: --against, --set, --metrics, --tokenize and --comet are for translators, "
            f"but this run has task={task}; leave them out"
        )
    if stride and task != "language":
        raise ConfigError(f"{run}: --stride is for language models, but this run has task={task}; leave it out")
    if figure is not None:
        from glassformer.explain.view import known_suffix

        if task not in BY_CLASS:
            raise ConfigError(f"{run}: --figure draws a confusion matrix, but task={task} has no classes; leave it out")
        known_suffix(figure)


BY_CLASS = {"classification": "texts", "tagging": "words", "images": "images"}
"""Tasks that predict classes, and the unit that each of them classifies."""


@dataclass(frozen=True)
class _Classes:
    """Evaluation of a classifier or tagger: the confusion of its classes, and its span scores."""

    confusion: "Confusion"
    unit: str
    spans: "ClassReport | None" = None

    @property
    def scores(self) -> dict[str, float]:
        macro = self.confusion.report().averages["macro"].f1
        return {"accuracy": self.confusion.accuracy, "macro_f1": macro, self.unit: int(self.confusion.counts.sum())}

    def as_json(self) -> dict[str, Any]:
        by_class = {**self.scores, **self.confusion.report().as_json(), "confusion": self.confusion.as_json()}
        return by_class if self.spans is None else {**by_class, "spans": self.spans.as_json()}

    def text(self) -> str:
        from glassformer.cli.class_report import confusion_text, rates_table

        scores = self.scores if self.spans is None else {**self.scores, "span_f1": self.spans.averages["micro"].f1}
        parts = [_lines(scores), rates_table(self.confusion.report(), self.unit), confusion_text(self.confusion)]
        return "\n\n".join(parts if self.spans is None else [*parts, rates_table(self.spans, "spans")])

    def draw(self, file: str) -> None:
        from glassformer.cli.class_report import confusion_view
        from glassformer.cli.io import explaining

        with explaining(file):
            confusion_view(self.confusion, self.unit).save(file)


def _scores(
    run: str, device: str, task: str, files: list[str], stride: int, max_line_bytes: int
) -> "dict[str, float] | _Classes":
    from glassformer import predict
    from glassformer.errors import DataError
    from glassformer.evaluate.class_report import Confusion
    from glassformer.predict import evaluation

    if task == "forecasting":
        return _forecasts(run, device, files)
    own = None if files else _config(run)
    files = files or list(getattr(own and own.data, "test", []))
    if not files:
        raise DataError(f"no file is named; give one like those that {run} was trained on")
    model: Any = predict.load(run, device=device)
    if task == "language":
        from glassformer.data.token_stream_config import StreamConfig

        return evaluation.language_scores(model, _data(run, StreamConfig, files, max_line_bytes), files, stride)
    if task == "masked":
        from glassformer.data.masking_config import MaskedConfig

        return evaluation.masked_scores(model, _data(run, MaskedConfig, files, max_line_bytes), files)
    spans = None
    if task == "classification":
        from glassformer.data.classification_config import LabeledConfig

        labels, names = (
            evaluation.classified(model, _data(run, LabeledConfig, files, max_line_bytes), files),
            model.labels,
        )
    elif task == "tagging":
        from glassformer.data.classification_config import TaggedConfig
        from glassformer.evaluate.spans import mark_spans, span_report

        sentences, names = evaluation.tagged(model, _data(run, TaggedConfig, files, max_line_bytes), files), model.tags
        labels = evaluation.of_words(sentences)
        spans = span_report(*sentences) if mark_spans(names) else None
    else:
        labels, names = evaluation.classified_images(model, files), model.format.classes
    return _Classes(Confusion.of(*labels, names), BY_CLASS[task], spans)


def _data(run: str, config: "type[Config]", files: list[str], max_line_bytes: int) -> Any:
    """How the run's own data are read (columns, keys, documents), for ``files``; the defaults where it is not known."""
    own = _config(run)
    values = {} if own is None else own.data.model_dump()
    kept = {name: value for name, value in values.items() if name in config.model_fields}
    unseen = {"train": files, "validation": [], "test": [], "weights": [], "validation_share": 0.0}
    if max_line_bytes != MAX_LINE_BYTES:  # else the value from training
        unseen["max_line_bytes"] = max_line_bytes
    return config.parse(kept | {name: value for name, value in unseen.items() if name in config.model_fields}, "files")


def _config(run: str) -> Any:
    """The configuration of the run; None for a checkpoint elsewhere."""
    from pathlib import Path

    from glassformer.storage.run_folder import resolve
    from glassformer.train import read_config

    places = [Path(run), *resolve(run).absolute().parents[:2]]
    found = next((place / "config.toml" for place in places if (place / "config.toml").is_file()), None)
    return None if found is None else read_config(found)


def _forecasts(run: str, device: str, files: list[str]) -> dict[str, float]:
    from glassformer.data.time_series import prepare_series
    from glassformer.errors import ConfigError, DataError
    from glassformer.predict import Forecaster

    if len(files) > 1:
        raise DataError(f"{len(files)} tables are named; a forecaster is measured on one; name that")
    forecaster, own = Forecaster.load(run, device=device), _config(run)
    if files:
        data = own and own.data
        known = data is not None and not data.date
        errors = forecaster.errors_in_file(files[0], "" if known else None, data.missing if data else "refuse")
    elif own is None:
        raise ConfigError(f"{run}: is a checkpoint without its run's config.toml; name a table to measure it on")
    else:
        series = prepare_series(own.data)
        if not len(series.windows("test")):
            raise ConfigError(f"{run}: its data.split leaves no rows for a test; name a table to measure it on")
        errors = forecaster.errors(series)
    return {"mse": errors.mse, "mae": errors.mae, "windows": errors.windows}


def _lines(scores: dict[str, float]) -> str:
    names = {"mse": "MSE", "mae": "MAE", "macro_f1": "macro F1", "span_f1": "span F1 (micro)"}
    rows = [(names.get(name, name.replace("_", " ")), value) for name, value in scores.items()]
    return "\n".join(
        f"{name:18} {value:,}" if isinstance(value, int) else f"{name:18} {value:.4f}" for name, value in rows
    )
