"""Environments of the peers: each is installed from its package, once, into a folder of its own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIREMENTS = {
    "transformers": ["transformers", "torch", "numpy"],
    "ctranslate2": ["ctranslate2", "numpy"],
}


def python_of(environment: str | None) -> str:
    """The interpreter of a peer's environment, made when it is first asked for; ours when there is none to make."""
    if environment is None:
        return sys.executable
    folder = ROOT / ".peers" / environment
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        constraints = ["-c", str(ROOT / "constraints.txt")]
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", *constraints, *REQUIREMENTS[environment]], check=True
        )
        (folder / ".ready").touch()
    return str(python)
