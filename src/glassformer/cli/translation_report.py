"""Evaluation of a translator: reading the pairs, computing the metrics, and printing the scores."""

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from glassformer.cli.lines import LineWarnings
from glassformer.cli.process import keep_freed_memory
from glassformer.cli.run import describe_engine, load

if TYPE_CHECKING:
    from glassformer.metrics.corpus_metrics import CorpusMetric


class Scoring(NamedTuple):
    """Options for the metrics of translations."""

    metrics: str  # comma-separated names; empty: BLEU and chrF
    tokenize: str | None
    comet: str | None

    def table(self, sources: list[str], bleu_tokenize: str, device: str) -> "dict[str, CorpusMetric]":
        """The metrics by name. A missing package or model is an error here, before anything is translated."""
        from glassformer.errors import ConfigError
        from glassformer.metrics.corpus_metrics import METRICS, corpus_metrics

        names = list(dict.fromkeys(name.strip() for name in self.metrics.split(",") if name.strip()))
        if self.metrics and not names:
            raise ConfigError(f"--metrics {self.metrics!r} names no metric; choose from {', '.join(METRICS)}")
        names = names or ["bleu", "chrf"]
        if self.tokenize and "bleu" not in names:
            raise ConfigError(f"--tokenize is for BLEU, but --metrics has {', '.join(names)}; add bleu or leave it out")
        values = corpus_metrics(names, self.tokenize or bleu_tokenize)
        if self.comet is not None:
            from glassformer.metrics.comet import Comet

            values["comet"] = Comet(self.comet, sources, device)
        return values


class EvaluationPairs(NamedTuple):
    """Sources to translate, with their references; ``file`` is the name of the source file."""

    sources: list[str]
    references: list[str]
    file: str


def read_test_pairs(run: str, files: list[str], max_line_bytes: int) -> EvaluationPairs:
    """Read pairs from two files of lines, or from files as for training (a prefix, .tsv or .jsonl)."""
    from pathlib import Path

    from glassformer.data import DataConfig, parallel_lines, read_pairs
    from glassformer.errors import DataError
    from glassformer.predict.loading import stored_languages

    tables = [file for file in files if file.removesuffix(".gz").endswith((".tsv", ".jsonl"))]
    others = [file for file in files if file not in tables]
    if len(files) == 2 and not tables:
        sources, references = parallel_lines(files[0], files[1], max_line_bytes)
        if not sources:
            raise DataError(f"{files[0]} and {files[1]} are empty; give at least one line in each")
        return EvaluationPairs(sources, references, files[0])
    if not files or (others and (len(files) > 1 or Path(others[0]).is_file())):
        count = "1 file is" if len(files) == 1 else f"{len(files) or 'no'} files are"
        raise DataError(f"{count} given; give a source and a reference file, or a .tsv or .jsonl with both")
    languages = stored_languages(run)
    codes = {} if languages is None else {"source": languages[0], "target": languages[1]}
    config = DataConfig.parse({"train": files, "max_line_bytes": max_line_bytes, **codes}, "files")
    return EvaluationPairs(*read_pairs(config, files), " + ".join(files))


def report(
    run: str,
    pairs: EvaluationPairs,
    device: str,
    baseline: str | None,
    options: dict[str, Any],
    scoring: Scoring,
    as_json: bool,
) -> str:
    """Score a run on ``pairs``, and compare it with the run ``baseline``, as text or as JSON."""
    import time

    from glassformer.metrics import corpus_scores, paired_bootstrap
    from glassformer.predict.loading import check_task
    from glassformer.predict.translator import Translator
    from glassformer.text.errors import without_text_warnings

    if baseline is not None:
        check_task(baseline, ("translation",))
    sources, references, file = pairs
    keep_freed_memory()
    translator = load(Translator.load, run, device=device)
    describe_engine(translator, translator.configure(**options))
    metrics = scoring.table(sources, translator.bleu_tokenize, device)
    began = time.perf_counter()
    unknown = LineWarnings(file)
    with unknown.collect(len(sources)):
        translations = translator.translate(sources, **options)
    unknown.summarize()
    seconds = time.perf_counter() - began
    scores = corpus_scores(metrics, translations, references)
    values: dict[str, Any] = {name: score._asdict() for name, score in scores.items()}
    values |= {"sentences": len(sources), "seconds": round(seconds, 3)}
    if baseline is not None:
        with without_text_warnings():
            others = load(Translator.load, baseline, device=device).translate(sources, **options)
        compared = paired_bootstrap(references, translations, others, metrics=metrics)
        values["against"] = {name: comparison._asdict() for name, comparison in compared.items()}
    return json.dumps(values, ensure_ascii=False) if as_json else _text(values)


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
