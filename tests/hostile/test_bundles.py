"""Hostile checkpoints are refused in one line, with limited memory and without other output."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hostile.bundles import Bundle, bundles, pristine
from own_process import ENVIRONMENT

ATTEMPT = Path(__file__).with_name("attempt.py")
GROUPS = 8


def ends(tried: list[Bundle], folder: Path) -> list[dict[str, str]]:
    """Outcomes of loading each bundle."""
    pristine(folder / "pristine")
    command = [sys.executable, str(ATTEMPT), str(folder / "pristine")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    found = []
    with subprocess.Popen(command, env=ENVIRONMENT, text=True, **pipes) as process:  # type: ignore[call-overload]
        for number, bundle in enumerate(tried):
            place = folder / str(number)
            bundle.write(place)
            try:
                process.stdin.write(f"{place}\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = ""
            if not line:
                raise AssertionError(f"{bundle.name}: the process ended: {process.wait()}, {process.stderr.read()}")
            found.append({"name": bundle.name, **json.loads(line)})
            shutil.rmtree(place)
        assert process.communicate()[1] == ""
    return found


def test_bundles_have_unique_names() -> None:
    names = [bundle.name for bundle in bundles()]
    assert len(names) >= 468  # as many as were measured; more may be added
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("group", range(GROUPS))
def test_hostile_bundles_are_refused_in_one_line(tmp_path: Path, group: int) -> None:
    for end in ends(list(bundles())[group::GROUPS], tmp_path):
        assert end["end"] == "refused", end
        assert "\n" not in end["message"], end
        assert len(end["message"]) < 1000, end


def test_pristine_bundle_is_loaded_and_translates(tmp_path: Path) -> None:
    (end,) = ends([Bundle("pristine", pristine)], tmp_path)
    assert end["end"] == "used"
    assert "le médecin les porte." in end["message"]
