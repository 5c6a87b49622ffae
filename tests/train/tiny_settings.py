"""Settings of tiny trainings by several processes."""

import json
from typing import Any

import pytest

import tiny_run
import tiny_tasks

STEPS = 6


def values_of(factory: pytest.TempPathFactory, task: str) -> dict[str, Any]:
    """Settings of a tiny run of ``task``, without dropout, with a report at every step."""
    tiny: Any = tiny_run.made(factory) if task == "translation" else tiny_tasks.made(factory, task)
    values = json.loads(json.dumps(tiny.values))
    values["model"] |= {"dropout": 0.0, "attention_dropout": 0.0}
    values["train"] |= {"max_steps": STEPS, "save_every": STEPS, "log_every": 1, "device": "cpu"}
    values["validation"] |= {"every": STEPS}
    return values  # type: ignore[no-any-return]
