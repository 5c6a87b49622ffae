"""What comes before the verbs that name a run: what all of them import, and is it a run of their task?"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from glassformer.cli.process import loading

TASKS = {
    "translate": ("translation",),
    "score": ("translation",),
    "align": ("translation",),
    "tokenize": ("translation", "language", "masked", "classification", "tagging"),
}
"""What the verbs are for that do not say it themselves."""


def check_run_argument(verb: str, command: Callable[..., None]) -> Callable[..., None]:
    """``command`` after this; a run of another task is refused with the verb that fits."""
    signature = inspect.signature(command)
    if "run" not in signature.parameters:
        return command

    @functools.wraps(command)
    def checked(*arguments: Any, **named: Any) -> None:
        with loading():
            from glassformer.predict.opening import check_task

            run = signature.bind(*arguments, **named).arguments.get("run")
            if run and verb in TASKS:
                check_task(run, TASKS[verb])
        command(*arguments, **named)

    return checked
