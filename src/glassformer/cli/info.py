"""``glassformer info``: size, memory, arithmetic and engines of a model, before or after its training."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.cli.io import say
from glassformer.cli.options import Overrides, SetOverride, complete_runs


def command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN|CONFIG", help="Run folder, checkpoint folder or configuration.", autocompletion=complete_runs
        ),
    ],
    overrides: Overrides = None,
    setting: SetOverride = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as JSON.")] = False,
) -> None:
    """Print size, memory, arithmetic and engines of a model.

    Settings change a configuration; a trained model cannot be changed.
    """
    from glassformer.errors import ConfigError
    from glassformer.storage.run_folder import nearby

    path = Path(source)
    if not path.exists():
        raise ConfigError(f"{source}: there is no such run, checkpoint or configuration; {nearby(path, '.toml')}")
    settings = [*(overrides or []), *(setting or [])]
    report = (_of_config if path.is_file() else _of_run)(source, settings)
    say(json.dumps(report, ensure_ascii=False) if as_json else _text(report))


def _of_config(source: str, overrides: list[str]) -> dict[str, Any]:
    import torch

    from glassformer.errors import ConfigError
    from glassformer.models.registry import build_uninitialized
    from glassformer.train import read_config

    config = read_config(source, overrides)
    values = config.model.model_dump()
    text = getattr(config, "text", None)
    if text is not None and values.get("vocab_size") is None:
        values["vocab_size"] = text.vocab_size if text.joint else (text.vocab_size, text.vocab_size)
    if "n_classes" in values and values["n_classes"] is None:
        raise ConfigError(f"{source}: the labels decide model.n_classes; add it, as in model.n_classes=10")
    with torch.device("meta"):
        model = build_uninitialized(values, source)
    decoding = getattr(config, "decoding", None)
    report = _report(model, (config.train.engine, config.train.precision), decoding, config.train.device)
    return report | ({} if text is None else {"text": text.model_dump(mode="json")})


def _of_run(source: str, settings: list[str]) -> dict[str, Any]:
    from glassformer.errors import ConfigError
    from glassformer.generate import LanguageDecodingConfig, TranslationDecodingConfig
    from glassformer.native.accelerated import supported_decoding
    from glassformer.predict.loading import load_run, stored_decoding
    from glassformer.storage.run_folder import resolve, training_values

    if settings:
        raise ConfigError(f"{settings[0]!r}: a trained model cannot be changed; leave out the settings")
    path = resolve(source)
    run = load_run(path)
    task, model, tokenizers = run.task, run.model, run.tokenizers
    text = {} if tokenizers is None else {"text": tokenizers.config.model_dump(mode="json")}
    training = training_values(path)
    overrides = training.get("overrides")
    history = {"overrides": overrides} if overrides else {}
    train, values = training.get("config", {}).get("train", {}), stored_decoding(path)
    decoding = TranslationDecodingConfig if task == "translation" else LanguageDecodingConfig
    use = supported_decoding(decoding.parse_stored(values, f"{path}/config.json"), model, f"{path}/config.json")
    report = _report(model, (train.get("engine", "auto"), train.get("precision", "float32")), use, "cpu")
    if training.get("routes"):
        keys = ("part", "engine", "reason")
        report["routes"]["training"] = [dict(zip(keys, [*one, ""], strict=False)) for one in training["routes"]]
    return {"checkpoint": str(path), "task": task} | report | text | history


def _routes_in_use(model, decoding, device):  # type: ignore[no-untyped-def]
    """Routes of ``model`` in use; without a cache PyTorch computes all but the search."""
    from dataclasses import replace

    from glassformer.native import route

    if decoding is None:
        return route(model, device=device)
    routes = route(model, decoding.engine, decoding.precision, device)
    if decoding.use_cache:
        return routes
    return [one if one.part == "search" else replace(one, engine="torch", reason="use_cache=false") for one in routes]


def _report(  # type: ignore[no-untyped-def]
    model, training_engine: tuple[Any, Any], decoding: Any, device: str
) -> dict[str, Any]:
    from dataclasses import asdict

    from glassformer.models.device import choose_device
    from glassformer.models.registry import flops_per_token, parameters_by_part
    from glassformer.native import route

    where = choose_device(device)
    routes = {
        "training": [asdict(one) for one in route(model.train(), *training_engine, where)],
        "use": [asdict(one) for one in _routes_in_use(model.eval(), decoding, where)],
    }
    parts, flops = parameters_by_part(model), flops_per_token(model)
    training = {"training_target_token": 3 * flops["target_token"]} if "target_token" in flops else {}
    return {
        "model": model.config.model_dump(mode="json"),
        "parameters": parts,
        "memory": {"weights_bytes": 4 * parts["total"], "training_bytes": 16 * parts["total"]},
        "flops": flops | training,
        "routes": routes,
    }


def _text(report: dict[str, Any]) -> str:
    from glassformer.config import to_toml
    from glassformer.native import Route, grouped

    lines = [f"{name} {report[name]}" for name in ("checkpoint", "task") if name in report]
    lines += to_toml({section: report[section] for section in ("model", "text") if section in report}).splitlines()
    if "overrides" in report:
        lines.append("overrides (settings changed on resuming)")
        lines += [
            f"  from step {one['step']:,} on: {one['name']}: {one['before']!r} → {one['now']!r}"
            for one in report["overrides"]
        ]
    lines += ["parameters", *(f"  {name:18} {count:>13,}" for name, count in report["parameters"].items())]
    memory, flops = report["memory"], report["flops"]
    lines += [
        "memory",
        f"  weights            {memory['weights_bytes'] / 2**20:>9,.1f} MiB in float32",
        f"  training           {memory['training_bytes'] / 2**20:>9,.1f} MiB for weights, gradients and Adam",
    ]
    tokens = [(name, flops[f"{name}_token"]) for name in ("source", "target") if f"{name}_token" in flops]
    if tokens:
        lines.append("arithmetic (products with weights, forward; training is three times that)")
        lines += [f"  a {name} token     {count / 1e6:>9,.2f} MFLOP" for name, count in tokens]
    for use, routes in report["routes"].items():
        lines.append(f"engine in {use}")
        lines += [f"  {one}" for one in grouped([Route(**values) for values in routes])]
    return "\n".join(lines)
