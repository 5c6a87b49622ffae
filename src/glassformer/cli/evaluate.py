"""``glassformer evaluate``: translate a test set and score it."""

import json
from typing import Annotated, Any

import typer

from glassformer.cli.streams import say, settings


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder.")],
    source: Annotated[str, typer.Argument(help="File of source lines.")],
    target: Annotated[str, typer.Argument(help="File of reference translations.")],
    against: Annotated[str | None, typer.Option(help="A second run, compared by paired bootstrap.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("-s", "--set", metavar="KEY=VALUE", help="Any decoding setting: beam_size=5")
    ] = None,
    tokenize: Annotated[
        str | None, typer.Option(help="sacreBLEU's tokenizer. [default: that of the run's validation]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Scores and signatures as JSON.")] = False,
) -> None:
    """BLEU and chrF of a run on a test set, detokenised, with their signatures."""
    import time

    from glassformer.allocator import keep_freed_memory
    from glassformer.data import parallel_lines
    from glassformer.evaluate import bleu, chrf
    from glassformer.translator import Translator

    options = settings(setting)
    sources, references = parallel_lines(source, target)
    keep_freed_memory()
    translator = Translator.load(run)
    translator.configure(**options)
    tokenize = tokenize or translator.bleu_tokenize
    began = time.perf_counter()
    found = translator.translate(sources, **options)
    seconds = time.perf_counter() - began
    scores = {"bleu": bleu(found, references, tokenize=tokenize), "chrf": chrf(found, references)}
    report: dict[str, Any] = {name: score._asdict() for name, score in scores.items()}
    report |= {"sentences": len(sources), "seconds": round(seconds, 3)}
    if against is not None:
        report["against"] = _compare(against, sources, references, found, options, tokenize)
    say(json.dumps(report, ensure_ascii=False) if as_json else _text(report))


def _compare(
    against: str, sources: list[str], references: list[str], found: list[str], options: dict[str, Any], tokenize: str
) -> dict[str, Any]:
    from glassformer.evaluate import paired_bootstrap
    from glassformer.translator import Translator

    other = Translator.load(against).translate(sources, **options)
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
