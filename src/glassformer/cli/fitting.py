"""A verb on a run of another task is refused with the verb that fits."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

TASKS = {
    "translate": ("translation",),
    "score": ("translation",),
    "align": ("translation",),
    "tokenize": ("translation", "language", "masked", "classification", "tagging"),
}
"""What the verbs are for that do not say it themselves."""


def fitting(verb: str, command: Callable[..., None]) -> Callable[..., None]:
    """``command``, which looks first whether its ``run`` is one for ``verb``."""
    if verb not in TASKS:
        return command
    signature = inspect.signature(command)
    if "run" not in signature.parameters:
        return command

    @functools.wraps(command)
    def checked(*arguments: Any, **named: Any) -> None:
        run = signature.bind(*arguments, **named).arguments.get("run")
        if run:
            from glassformer.predict.opening import check_task

            check_task(run, TASKS[verb])
        command(*arguments, **named)

    return checked
