"""``kill -9`` at any moment costs the steps since the last save and nothing else."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import glassformer
from tiny_run import TinyRun, run_to_the_end, state_of

EVERYTHING = {
    "model.dropout": 0.2,
    "text.bpe_dropout": 0.1,
    "optimizer.schedule": "cosine",
    "train.accumulate": 2,
    "train.ema": 0.9,
    "train.max_steps": 40,
    "train.save_every": 2,
    "train.log_every": 3,
    "data.validation": [],
}


def test_killed_three_times_and_resumed_it_is_the_undisturbed_run(tiny: TinyRun, tmp_path: Path) -> None:
    """Through the command line; where each kill strikes is left to the seed and to the machine."""
    draw, run = random.Random(7), tmp_path / "killed"
    config = tiny.write_config(tmp_path / "tiny.toml", EVERYTHING)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(glassformer.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-W", "ignore", "-m", "glassformer", "train", str(config), "--run", str(run)]
    reached = []
    for number in range(3):
        arguments = command + ["--resume"] * (number > 0)
        with subprocess.Popen(arguments, stderr=subprocess.PIPE, env=environment, text=True) as process:
            assert process.stderr is not None
            wanted = draw.randint(1, 4)  # reports of progress
            for line in process.stderr:
                if line.startswith("step "):
                    wanted -= 1
                if wanted == 0:
                    break
            time.sleep(draw.random() * 0.02)
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        reached.append(max((int(path.name[5:]) for path in run.glob("checkpoints/step_*")), default=0))
    assert 0 < reached[0] < reached[-1] < 40, reached
    run_to_the_end(tiny.config(EVERYTHING), run, resume=True)
    run_to_the_end(tiny.config(EVERYTHING), tmp_path / "undisturbed")
    assert state_of(run) == state_of(tmp_path / "undisturbed")
