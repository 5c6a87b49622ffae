"""The table of tasks names code that exists, and says the same as that code."""

from dataclasses import fields

import pytest

from glassformer.cli import app
from glassformer.models.registry import MODELS
from glassformer.tasks import DEFAULT_TASKS, TASKS, resolve_name, tasks_with
from tiny_tasks import EXAMPLES


@pytest.mark.parametrize("task", TASKS)
def test_every_name_of_a_task_can_be_imported(task: str) -> None:
    record = TASKS[task]
    names = [getattr(record, field.name) for field in fields(record)]
    dotted = [name for name in [*names, *record.settings.values()] if isinstance(name, str) and ":" in name]
    assert len(dotted) >= 2
    for name in dotted:
        assert resolve_name(name) is not None


@pytest.mark.parametrize("task", TASKS)
def test_the_settings_of_a_training_name_its_task_and_model(task: str) -> None:
    for kind, name in TASKS[task].settings.items():
        settings = resolve_name(name)
        assert settings.model_fields["task"].default == task
        assert settings.model_fields["model"].annotation.model_fields["kind"].default == kind


def test_every_trained_task_has_an_example() -> None:
    assert {task for task, record in TASKS.items() if record.training} == {"translation", *EXAMPLES}


def test_every_model_is_trained_by_a_task() -> None:
    assert set(DEFAULT_TASKS) == set(MODELS)


def test_a_bert_without_a_task_is_a_masked_language_model() -> None:
    assert DEFAULT_TASKS["bert"] == "masked"


def test_commands_of_tasks_are_commands_of_the_program() -> None:
    verbs = {command.name for command in app.app.registered_commands}
    assert {command for record in TASKS.values() for command in record.commands} <= verbs


def test_tasks_are_found_by_command() -> None:
    assert tasks_with("translate") == ("translation",)
    assert {"classification", "images"} <= set(tasks_with("classify"))
    assert tasks_with("info") == ()
