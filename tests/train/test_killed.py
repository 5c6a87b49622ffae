"""``kill -9`` at any moment costs the steps since the last save and nothing else."""

import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from own_process import started
from processor import LOW_PRECISION
from tiny_run import TinyRun, run_to_the_end, state_of

EVERYTHING = {
    "model.dropout": 0.2,
    "text.bpe_dropout": 0.1,
    "optimizer.schedule": "cosine",
    "train.accumulate": 2,
    "train.precision": LOW_PRECISION,
    "train.dropout_warmup_steps": 20,
    "train.ema": 0.9,
    "train.max_steps": 120,
    "train.save_every": 2,
    "train.log_every": 3,
    "data.validation": [],
}


def reached(run: Path) -> int:
    return max((int(path.name[5:]) for path in run.glob("checkpoints/step_*")), default=0)


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_sigterm_saves_without_losing_a_step(tiny: TinyRun, tmp_path: Path, kind: signal.Signals) -> None:
    settings, run = EVERYTHING | {"train.save_every": 1000}, tmp_path / "stopped"
    config = tiny.write_config(tmp_path / "tiny.toml", settings)
    with started("train", config, "--run", run, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("step "):
            pass
        process.send_signal(kind)
        said = process.stderr.read()
        assert process.wait() == 128 + kind
    assert "saving after this step" in said
    assert "asked to stop; --resume goes on from here" in said
    assert 0 < reached(run) < 120
    run_to_the_end(tiny.config(settings), run, resume=True)
    run_to_the_end(tiny.config(settings), tmp_path / "undisturbed")
    stopped, undisturbed = state_of(run), state_of(tmp_path / "undisturbed")
    assert len(stopped.pop("metrics")) > len(undisturbed.pop("metrics"))  # the step where it stopped
    assert stopped == undisturbed


def test_run_killed_three_times_equals_the_uninterrupted_run(tiny: TinyRun, tmp_path: Path) -> None:
    """Through the command line; where each kill strikes is left to the seed and to the machine."""
    draw, run = random.Random(7), tmp_path / "killed"
    config = tiny.write_config(tmp_path / "tiny.toml", EVERYTHING)
    after = []
    for number in range(3):
        more = ["--resume"] * (number > 0)
        with started("train", config, "--run", run, *more, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            expected = draw.randint(1, 4)  # reports of progress
            for line in process.stderr:
                if line.startswith("step "):
                    expected -= 1
                if expected == 0:
                    break
            time.sleep(draw.random() * 0.02)
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        after.append(reached(run))
    assert 0 < after[0] < after[-1] < 120, after
    run_to_the_end(tiny.config(EVERYTHING), run, resume=True)
    run_to_the_end(tiny.config(EVERYTHING), tmp_path / "undisturbed")
    assert state_of(run) == state_of(tmp_path / "undisturbed")
