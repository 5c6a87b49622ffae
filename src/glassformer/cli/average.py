"""``glassformer average``: the mean of a run's last checkpoints."""

from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli.io import note, say


def command(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    last: Annotated[int, typer.Option("-n", "--last", help="How many of the newest checkpoints.")] = 5,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder. [default: RUN/averaged]")] = None,
) -> None:
    """Average the weights of a run's last checkpoints into a new one (section 6.1 of the paper).

    Checkpoints that were saved because training was interrupted are left out.
    """
    from functools import partial

    from glassformer.errors import ConfigError
    from glassformer.predict.loading import check_settings
    from glassformer.storage.checkpoint import average
    from glassformer.storage.run_folder import RunFolder

    if last < 1:
        raise ConfigError(f"--last {last}: at least one checkpoint is averaged; give 1 or more")
    folder = RunFolder.open(run)
    everything = folder.checkpoints()
    scheduled = folder.scheduled() or everything
    chosen = scheduled[-last:]
    if not chosen:
        raise ConfigError(f"{run}: this run has saved no checkpoint yet; train it further with --resume")
    destination = output or run / "averaged"
    average(chosen, destination, partial(check_settings, origin=f"{run}/config.json"))
    if left_out := [path.name for path in everything[everything.index(chosen[0]) :] if path not in chosen]:
        note(f"left out {', '.join(left_out)}: saved when training was interrupted, not on schedule")
    note(f"averaged {', '.join(path.name for path in chosen)}")
    say(str(destination))
