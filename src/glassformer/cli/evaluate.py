"""``glassformer evaluate``: how good a run is on text, tables or pictures that it has not seen."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.advice import WITHOUT_SETTINGS, in_words
from glassformer.cli.options import Device
from glassformer.cli.streams import say, settings

if TYPE_CHECKING:
    from glassformer.config import Config


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="Source and reference lines; or what the run was trained on, unseen."),
    ] = None,
    against: Annotated[str | None, typer.Option(help="A second translator, compared by paired bootstrap.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("-s", "--set", metavar="KEY=VALUE", help="Any decoding setting: beam_size=5")
    ] = None,
    tokenize: Annotated[
        str | None, typer.Option(help="sacreBLEU's tokenizer. [default: that of the run's validation]")
    ] = None,
    stride: Annotated[int, typer.Option(min=0, help="Of a language model's window; 0 is its context.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Scores and signatures as JSON.")] = False,
    device: Device = "cpu",
) -> None:
    """BLEU and chrF, perplexity, accuracy, or the errors of forecasts, as the run's task is.

    Without a file, a run is measured on its own data.test, a forecaster on the test part of its series.
    """
    from glassformer.config import ConfigError
    from glassformer.predict.opening import task_at

    task = task_at(run)
    translates = task == "translation"
    if not translates and (against or setting or tokenize):
        raise ConfigError(
            f"{run}: --against, --set and --tokenize are for translators, and this is a run of task={task}; "
            "leave them out"
        )
    if stride and task != "language":
        raise ConfigError(f"{run}: --stride is for language models, and this is a run of task={task}; leave it out")
    if translates:
        _translation(run, files or [], device, against, settings(setting), tokenize, as_json)
        return
    with in_words(WITHOUT_SETTINGS):
        scores = _scores(run, device, task, files or [], stride)
    say(json.dumps(scores, ensure_ascii=False) if as_json else _lines(scores))


def _scores(run: str, device: str, task: str, files: list[str], stride: int) -> dict[str, float]:
    from glassformer import predict
    from glassformer.config import DataError
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
    if task == "classification":
        from glassformer.data.labelled_config import LabelledConfig

        return measuring.classification_scores(model, _data(run, LabelledConfig, files), files)
    if task == "tagging":
        from glassformer.data.labelled_config import TaggedConfig

        return measuring.tagging_scores(model, _data(run, TaggedConfig, files), files)
    return measuring.image_scores(model, files)


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
    names = {"mse": "MSE", "mae": "MAE", "macro_f1": "macro F1"}
    rows = [(names.get(name, name.replace("_", " ")), value) for name, value in scores.items()]
    return "\n".join(
        f"{name:18} {value:,}" if isinstance(value, int) else f"{name:18} {value:.4f}" for name, value in rows
    )


def _translation(
    run: str,
    files: list[str],
    device: str,
    against: str | None,
    options: dict[str, Any],
    tokenize: str | None,
    as_json: bool,
) -> None:
    import time

    from glassformer.allocator import keep_freed_memory
    from glassformer.config import DataError
    from glassformer.data import parallel_lines
    from glassformer.evaluate import bleu, chrf
    from glassformer.predict.opening import check_task
    from glassformer.translator import Translator

    if len(files) != 2:
        named = "1 file is" if len(files) == 1 else f"{len(files) or 'no'} files are"
        raise DataError(f"{named} named; give two, of source lines and of reference translations")
    if against is not None:
        check_task(against, ("translation",))
    sources, references = parallel_lines(*files)
    if not sources:
        raise DataError(f"{files[0]} and {files[1]} have no line; give at least one of each")
    keep_freed_memory()
    translator = Translator.load(run, device=device)
    translator.configure(**options)
    tokenize = tokenize or translator.bleu_tokenize
    began = time.perf_counter()
    found = translator.translate(sources, **options)
    seconds = time.perf_counter() - began
    scores = {"bleu": bleu(found, references, tokenize=tokenize), "chrf": chrf(found, references)}
    report: dict[str, Any] = {name: score._asdict() for name, score in scores.items()}
    report |= {"sentences": len(sources), "seconds": round(seconds, 3)}
    if against is not None:
        other = Translator.load(against, device=device).translate(sources, **options)
        report["against"] = _compare(references, found, other, tokenize)
    say(json.dumps(report, ensure_ascii=False) if as_json else _text(report))


def _compare(references: list[str], found: list[str], other: list[str], tokenize: str) -> dict[str, Any]:
    from glassformer.evaluate import paired_bootstrap

    compared = paired_bootstrap(references, found, other, tokenize=tokenize)
    return {name: comparison._asdict() for name, comparison in compared.items()}


def _text(report: dict[str, Any]) -> str:
    names = {"bleu": "BLEU ", "chrf": "chrF2"}
    lines = [f"{names[key]} {report[key]['score']:6.2f}   {report[key]['signature']}" for key in names]
    sentences = report["sentences"]
    lines.append(f"{sentences:,} {'sentence' if sentences == 1 else 'sentences'} in {report['seconds']:.1f} s")
    for key, one in report.get("against", {}).items():
        low, high = one["interval"]
        lines.append(
            f"{names[key]} {one['first']:.2f} → {one['second']:.2f}: {one['second'] - one['first']:+.2f}, "
            f"95 % in [{low:+.2f}, {high:+.2f}], p = {one['p_value']:.4f}"
        )
    return "\n".join(lines)
