"""``glassformer average``: the mean of a run's last checkpoints."""

from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli.io import say
from glassformer.cli.messages import note
from glassformer.cli.options import Run


def command(
    run: Run,
    last: Annotated[int, typer.Option("-n", "--last", help="Number of checkpoints, newest first.")] = 5,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="Output folder. [default: RUN/averaged]")
    ] = None,
) -> None:
    """Average the weights of a run's last checkpoints.

    The result is a new checkpoint (section 6.1 of the paper). Checkpoints that were saved because training was
    interrupted are left out.
    """
    from functools import partial

    from glassformer.errors import ConfigError
    from glassformer.predict.loading import check_settings
    from glassformer.storage.checkpoint import average
    from glassformer.storage.run_folder import RunFolder

    if last < 1:
        raise ConfigError(f"--last {last}: at least one checkpoint is averaged; give 1 or more")
    path = Path(run)
    folder = RunFolder.open(path)
    saved = folder.checkpoints()
    checkpoints = (folder.scheduled() or saved)[-last:]
    if not checkpoints:
        raise ConfigError(f"{path}: this run has saved no checkpoint yet; train it further with --resume")
    destination = output or path / "averaged"
    average(checkpoints, destination, partial(check_settings, origin=f"{path}/config.json"))
    if unscheduled := [one.name for one in saved[saved.index(checkpoints[0]) :] if one not in checkpoints]:
        note(f"left out {', '.join(unscheduled)}: saved when training was interrupted, not on schedule")
    note(f"averaged {', '.join(one.name for one in checkpoints)}")
    say(str(destination))
