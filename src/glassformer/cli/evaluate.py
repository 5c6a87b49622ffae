"""``glassformer evaluate``: how good a run is on text, tables or pictures that it has not seen."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from glassformer.cli.advice import WITHOUT_SETTINGS, in_words
from glassformer.cli.options import Device
from glassformer.cli.streams import say, settings
from glassformer.cli.unknown import UnknownText

if TYPE_CHECKING:
    from glassformer.config import Config
    from glassformer.evaluate.class_report import ClassReport, Confusion
    from glassformer.evaluate.corpus_metrics import CorpusMetric


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Source and reference lines, or a .tsv or .jsonl of both; else files like those of training.",
        ),
    ] = None,
    against: Annotated[str | None, typer.Option(help="A second translator, compared by paired bootstrap.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("-s", "--set", metavar="KEY=VALUE", help="Any decoding setting: beam_size=5")
    ] = None,
    metrics: Annotated[
        str, typer.Option(metavar="NAMES", help="Of bleu,chrf,ter,wer,cer,exact. [default: bleu,chrf]")
    ] = "",
    tokenize: Annotated[
        str | None,
        typer.Option(help="BLEU's: 13a char intl none zh ja-mecab ko-mecab. [default: that of the run's validation]"),
    ] = None,
    comet: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="COMET by this local model; a pickle, which can run code: trust it."),
    ] = None,
    stride: Annotated[int, typer.Option(min=0, help="Of a language model's window; 0 is its context.")] = 0,
    figure: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Picture of the confusion matrix: .svg .png .pdf .csv or .tex."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Scores and signatures as JSON.")] = False,
    device: Device = "cpu",
) -> None:
    """Measure a run: BLEU and other metrics, perplexity, accuracy by class, or the errors of forecasts.

    Without a file, a run is measured on its own data.test, a forecaster on the test part of its series.
    """
    from glassformer.config import ConfigError
    from glassformer.predict.opening import task_at

    task = task_at(run)
    translates = task == "translation"
    if not translates and (against or setting or tokenize or metrics or comet):
        raise ConfigError(
            f"{run}: --against, --set, --metrics, --tokenize and --comet are for translators, "
            f"and this is a run of task={task}; leave them out"
        )
    if stride and task != "language":
        raise ConfigError(f"{run}: --stride is for language models, and this is a run of task={task}; leave it out")
    if figure is not None:
        _check_figure(run, task, figure)
    if translates:
        scoring = _Scoring(metrics, tokenize, comet)
        _translation(run, files or [], device, against, settings(setting), scoring, as_json)
        return
    with in_words(WITHOUT_SETTINGS):
        found = _scores(run, device, task, files or [], stride)
    if isinstance(found, dict):
        say(json.dumps(found, ensure_ascii=False) if as_json else _lines(found))
        return
    if figure is not None:
        found.draw(figure)
    say(json.dumps(found.as_json(), ensure_ascii=False) if as_json else found.text())


def _check_figure(run: str, task: str, figure: str) -> None:
    from glassformer.config import ConfigError
    from glassformer.explain.view import known_suffix

    if task not in BY_CLASS:
        raise ConfigError(f"{run}: --figure draws the confusion of classes, and task={task} has none; leave it out")
    known_suffix(figure)


BY_CLASS = {"classification": "texts", "tagging": "words", "images": "images"}
"""Tasks whose answers are classes, and what has one."""


@dataclass(frozen=True)
class _Classes:
    """The answers of a classifier or tagger beside the true ones."""

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
        from glassformer.cli.streams import explaining

        with explaining(file):
            confusion_view(self.confusion, self.unit).save(file)


def _scores(run: str, device: str, task: str, files: list[str], stride: int) -> "dict[str, float] | _Classes":
    from glassformer import predict
    from glassformer.config import DataError
    from glassformer.evaluate.class_report import Confusion
    from glassformer.predict import measuring

    if task == "forecasting":
        return _forecasts(run, device, files)
    own = None if files else _config(run)
    files = files or list(getattr(own and own.data, "test", []))
    if not files:
        raise DataError(f"no file is named; give one like those that {run} was trained on")
    model: Any = predict.load(run, device=device)
    if task == "language":
        from glassformer.data.stream_config import StreamConfig

        return measuring.language_scores(model, _data(run, StreamConfig, files), files, stride)
    if task == "masked":
        from glassformer.data.masking_config import MaskedConfig

        return measuring.masked_scores(model, _data(run, MaskedConfig, files), files)
    spans = None
    if task == "classification":
        from glassformer.data.labelled_config import LabelledConfig

        labels, names = measuring.classified(model, _data(run, LabelledConfig, files), files), model.labels
    elif task == "tagging":
        from glassformer.data.labelled_config import TaggedConfig
        from glassformer.evaluate.spans import mark_spans, span_report

        sentences, names = measuring.tagged(model, _data(run, TaggedConfig, files), files), model.tags
        labels = measuring.of_words(sentences)
        spans = span_report(*sentences) if mark_spans(names) else None
    else:
        labels, names = measuring.classified_images(model, files), model.format.classes
    return _Classes(Confusion.of(*labels, names), BY_CLASS[task], spans)


def _data(run: str, config: "type[Config]", files: list[str]) -> Any:
    """How the run's own data are read (columns, keys, documents), for ``files``; the defaults where it is not known."""
    own = _config(run)
    values = {} if own is None else own.data.model_dump()
    kept = {name: value for name, value in values.items() if name in config.model_fields}
    unseen = {"train": files, "validation": [], "test": [], "weights": [], "validation_share": 0.0}
    return config.parse(kept | {name: value for name, value in unseen.items() if name in config.model_fields}, "files")


def _config(run: str) -> Any:
    """The configuration of the run; None for a checkpoint elsewhere."""
    from pathlib import Path

    from glassformer.run_folder import resolve
    from glassformer.train import read_config

    places = [Path(run), *resolve(run).absolute().parents[:2]]
    found = next((place / "config.toml" for place in places if (place / "config.toml").is_file()), None)
    return None if found is None else read_config(found)


def _forecasts(run: str, device: str, files: list[str]) -> dict[str, float]:
    from glassformer.config import ConfigError, DataError
    from glassformer.data.series import prepare_series
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


class _Scoring(NamedTuple):
    """How translations are scored."""

    metrics: str  # names parted by commas; empty: BLEU and chrF
    tokenize: str | None
    comet: str | None

    def table(self, sources: list[str], bleu_tokenize: str, device: str) -> "dict[str, CorpusMetric]":
        """The metrics, ready to be computed; what one of them lacks is an error before anything is translated."""
        from glassformer.config import ConfigError
        from glassformer.evaluate.corpus_metrics import METRICS, corpus_metrics

        names = list(dict.fromkeys(name.strip() for name in self.metrics.split(",") if name.strip()))
        if self.metrics and not names:
            raise ConfigError(f"--metrics {self.metrics!r} names none; choose from {', '.join(METRICS)}")
        names = names or ["bleu", "chrf"]
        if self.tokenize and "bleu" not in names:
            raise ConfigError(f"--tokenize is for BLEU, and --metrics has {', '.join(names)}; add bleu or leave it out")
        found = corpus_metrics(names, self.tokenize or bleu_tokenize)
        if self.comet is not None:
            from glassformer.evaluate.comet import Comet

            found["comet"] = Comet(self.comet, sources, device)
        return found


def _pairs(run: str, files: list[str]) -> tuple[list[str], list[str]]:
    """Sources and references: of two files of lines, or as training reads them (a prefix, .tsv or .jsonl)."""
    from pathlib import Path

    from glassformer.config import DataError
    from glassformer.data import DataConfig, parallel_lines, read_pairs
    from glassformer.predict.opening import stored_languages

    tables = [file for file in files if file.removesuffix(".gz").endswith((".tsv", ".jsonl"))]
    others = [file for file in files if file not in tables]
    if len(files) == 2 and not tables:
        sources, references = parallel_lines(*files)
        if not sources:
            raise DataError(f"{files[0]} and {files[1]} have no line; give at least one of each")
        return sources, references
    if not files or (others and (len(files) > 1 or Path(others[0]).is_file())):
        named = "1 file is" if len(files) == 1 else f"{len(files) or 'no'} files are"
        raise DataError(
            f"{named} named; give two, of source lines and of reference translations, or a .tsv or .jsonl with both"
        )
    languages = stored_languages(run)
    codes = {} if languages is None else {"source": languages[0], "target": languages[1]}
    return read_pairs(DataConfig.parse({"train": files, **codes}, "files"), files)


def _translation(
    run: str,
    files: list[str],
    device: str,
    against: str | None,
    options: dict[str, Any],
    scoring: _Scoring,
    as_json: bool,
) -> None:
    import time

    from glassformer.allocator import keep_freed_memory
    from glassformer.evaluate import corpus_scores, paired_bootstrap
    from glassformer.predict.opening import check_task
    from glassformer.text.faults import without_text_warnings
    from glassformer.translator import Translator

    if against is not None:
        check_task(against, ("translation",))
    sources, references = _pairs(run, files)
    keep_freed_memory()
    translator = Translator.load(run, device=device)
    translator.configure(**options)
    metrics = scoring.table(sources, translator.bleu_tokenize, device)
    began = time.perf_counter()
    unknown = UnknownText(files[0])
    with unknown.watched(len(sources)):
        translations = translator.translate(sources, **options)
    seconds = time.perf_counter() - began
    scores = corpus_scores(metrics, translations, references)
    report: dict[str, Any] = {name: score._asdict() for name, score in scores.items()}
    report |= {"sentences": len(sources), "seconds": round(seconds, 3)}
    if against is not None:
        with without_text_warnings():
            others = Translator.load(against, device=device).translate(sources, **options)
        compared = paired_bootstrap(references, translations, others, metrics=metrics)
        report["against"] = {name: comparison._asdict() for name, comparison in compared.items()}
    say(json.dumps(report, ensure_ascii=False) if as_json else _text(report))
    unknown.summarize()


_NAMES = {
    "bleu": "BLEU ",
    "chrf": "chrF2",
    "ter": "TER  ",
    "wer": "WER  ",
    "cer": "CER  ",
    "exact": "exact",
    "comet": "COMET",
}


def _text(report: dict[str, Any]) -> str:
    lines = [
        f"{name} {report[key]['score']:6.{_decimals(key)}f}   {report[key]['signature']}"
        for key, name in _NAMES.items()
        if key in report
    ]
    sentences = report["sentences"]
    lines.append(f"{sentences:,} {'sentence' if sentences == 1 else 'sentences'} in {report['seconds']:.1f} s")
    for key, one in report.get("against", {}).items():
        low, high = one["interval"]
        places = _decimals(key)
        lines.append(
            f"{_NAMES[key]} {one['first']:.{places}f} → {one['second']:.{places}f}: "
            f"{one['second'] - one['first']:+.{places}f}, "
            f"95 % in [{low:+.{places}f}, {high:+.{places}f}], p = {one['p_value']:.4f}"
        )
    return "\n".join(lines)


def _decimals(metric: str) -> int:
    return 4 if metric == "comet" else 2
