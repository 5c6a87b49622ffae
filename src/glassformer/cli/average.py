"""``glassformer average``: the mean of a run's last checkpoints."""

from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli.streams import note, say


def command(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    last: Annotated[int, typer.Option("-n", "--last", help="How many of the newest checkpoints.")] = 5,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder. [default: RUN/averaged]")] = None,
) -> None:
    """Average the weights of a run's last checkpoints into a new one (section 6.1 of the paper)."""
    from glassformer.checkpoint import average
    from glassformer.config import ConfigError
    from glassformer.run_folder import RunFolder

    if last < 1:
        raise ConfigError(f"--last {last}: at least one checkpoint is averaged; give 1 or more")
    chosen = RunFolder.open(run).checkpoints()[-last:]
    if not chosen:
        raise ConfigError(f"{run}: this run has saved no checkpoint yet; train it further with --resume")
    destination = output or run / "averaged"
    average(chosen, destination)
    note(f"averaged {', '.join(path.name for path in chosen)}")
    say(str(destination))
