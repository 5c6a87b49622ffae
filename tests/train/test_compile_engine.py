"""``train.engine = "compile"``: the same losses as PyTorch's, and a clear error where it cannot work."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w

from glassformer.errors import CheckpointError, ConfigError
from own_process import ENVIRONMENT, running
from tiny_run import TinyRun, run_to_the_end, state_of

PROGRAM = """
import json, sys
from glassformer.train import Progress, events

losses = {}
for engine in ("torch", "compile"):
    run = events(sys.argv[1], f"{sys.argv[2]}/{engine}", [f"train.engine={engine}"])
    losses[engine] = [event.loss for event in run if isinstance(event, Progress)]
print(json.dumps(losses))
"""


def test_compiled_training_has_the_losses_of_pytorch(tiny: TinyRun, tmp_path: Path) -> None:
    """In a process of its own: the compiler cannot trace the checks of shapes that tests install."""
    settings = {"model.dropout": 0.0, "train.max_steps": 3, "train.log_every": 1, "validation.every": 100}
    sizes = {"model.n_encoder_layers": 1, "model.n_decoder_layers": 1}
    config = tiny.settings({**settings, **sizes})
    del config["data"]["validation"]
    (tmp_path / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    arguments = "-W", "ignore", "-c", PROGRAM, str(tmp_path / "config.toml"), str(tmp_path)
    process = running(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    losses = json.loads(output)
    assert len(losses["torch"]) == 3
    assert losses["compile"] == pytest.approx(losses["torch"], rel=1e-5)


RESUMED = """
import sys
from glassformer.train import events

whole, parts = (f"{sys.argv[2]}/{name}" for name in ("whole", "parts"))
list(events(sys.argv[1], whole))
going = events(sys.argv[1], parts)
while next(going).step < 3:  # the last save is that of step 2
    pass
going.close()
list(events(sys.argv[1], parts, resume=True))
"""


def test_compiled_training_resumes_bit_for_bit_and_on_compile_only(tiny: TinyRun, tmp_path: Path) -> None:
    settings = {"train.max_steps": 4, "train.save_every": 2, "train.log_every": 1, "train.engine": "compile"}
    sizes = {"model.n_encoder_layers": 1, "model.n_decoder_layers": 1, "model.dropout": 0.2}
    changes = {**settings, **sizes, "data.validation": []}
    config = tiny.write_config(tmp_path / "config.toml", changes)
    arguments = "-W", "ignore", "-c", RESUMED, str(config), str(tmp_path)
    process = running(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    whole, parts = (state_of(tmp_path / name) for name in ("whole", "parts"))
    assert whole["counters and batches"]["counters"]["step"] == 4
    assert parts == whole
    message = r"trained with .*encoder by compile, decoder by compile.*, but .*; set train\.engine=compile, or start"
    for engine in ("torch", "auto"):
        with pytest.raises(CheckpointError, match=message):
            run_to_the_end(
                tiny.config({**changes, "train.max_steps": 5, "train.engine": engine}), tmp_path / "parts", resume=True
            )


def test_compile_without_a_compiler_is_refused(tiny: TinyRun, tmp_path: Path) -> None:
    config = tiny.write_config(tmp_path / "config.toml", {"train.engine": "compile"})
    process = subprocess.run(
        [sys.executable, "-m", "glassformer", "train", str(config), "--run", str(tmp_path / "run")],
        env=ENVIRONMENT | {"CXX": "false", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 2
    assert "train.engine=compile, but torch.compile does not work here (" in process.stderr
    assert process.stderr.rstrip().endswith("install a C++ compiler, or choose train.engine=auto")
    assert not (tmp_path / "run").exists()


def test_compile_with_rising_dropout_is_refused(tiny: TinyRun, tmp_path: Path) -> None:
    config = tiny.config({"train.engine": "compile", "train.dropout_warmup_steps": 5})
    with pytest.raises(ConfigError, match=r"set train\.dropout_warmup_steps=0, or choose another engine"):
        run_to_the_end(config, tmp_path / "run")
