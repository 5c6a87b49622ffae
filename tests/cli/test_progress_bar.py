"""Training progress bar: updates at every step, limited in rate, only on a terminal."""

import io
from pathlib import Path

import pytest

import glassformer.cli.train
from glassformer.cli.train import Screen
from glassformer.storage.run_folder import RunFolder
from glassformer.train import Started, Stepped, train
from tiny_run import TinyRun, run_to_the_end

SETTINGS = {"train.max_steps": 7, "train.log_every": 100, "data.validation": []}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Screen on a fake terminal. Not a fixture, because pytest replaces stderr between fixtures and test."""
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    return Screen(100)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Clock of the screen, in seconds; set ``clock[0]``."""
    seconds = [100.0]
    monkeypatch.setattr(glassformer.cli.train, "monotonic", lambda: seconds[0])
    return seconds


def started(step: int) -> Started:
    return Started(step, 100, 1, [], 0.0, 1, [], "tokens")


def completed(screen: Screen) -> float:
    assert screen.bar is not None
    return screen.bar.tasks[0].completed


def test_each_step_yields_stepped_events(tiny: TinyRun, tmp_path: Path) -> None:
    events = list(train(tiny.config(SETTINGS), RunFolder.create(tmp_path / "run"), each_step=True))
    assert [event.step for event in events if isinstance(event, Stepped)] == [1, 2, 3, 4, 5, 6, 7]
    assert "stepped" not in (tmp_path / "run" / "metrics.jsonl").read_text()
    others = run_to_the_end(tiny.config(SETTINGS), tmp_path / "other")
    assert not [event for event in others if isinstance(event, Stepped)]
    assert [type(event) for event in others] == [type(event) for event in events if not isinstance(event, Stepped)]


def test_progress_bar_moves_between_reports(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    with screen_on_a_terminal(monkeypatch) as screen:
        screen.show(started(0))
        for step in (1, 2, 3):
            clock[0] += 1
            screen.show(Stepped(step))
            assert completed(screen) == step


def test_progress_bar_updates_at_most_ten_times_a_second(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    with screen_on_a_terminal(monkeypatch) as screen:
        screen.show(started(0))
        seen = set()
        for step in range(1, 101):
            clock[0] += 0.001
            screen.show(Stepped(step))
            seen.add(completed(screen))
    assert 1 <= len(seen) <= 2


def test_progress_bar_of_a_resumed_run_starts_at_its_step(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    with screen_on_a_terminal(monkeypatch) as screen:
        screen.show(started(40))
        assert completed(screen) == 40
        assert screen.bar is not None
        assert screen.bar.tasks[0].speed is None


def test_progress_bar_is_absent_from_logs() -> None:
    with Screen(100) as screen:
        assert screen.bar is None
        screen.show(Stepped(1))
