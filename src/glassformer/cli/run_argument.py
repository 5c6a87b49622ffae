"""Check the run argument of a command before the command runs: is it a run of a task that the command takes?"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from glassformer.cli.process import loading
from glassformer.tasks import tasks_with


def check_run_argument(verb: str, command: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``command`` in a check of its run's task; the error names the command that fits."""
    signature, tasks = inspect.signature(command), tasks_with(verb)
    if "run" not in signature.parameters:
        return command

    @functools.wraps(command)
    def checked(*arguments: Any, **named: Any) -> None:
        with loading():
            from glassformer.predict.loading import check_task

            run = signature.bind(*arguments, **named).arguments.get("run")
            if run and tasks:
                check_task(run, tasks)
        command(*arguments, **named)

    return checked
