"""Environments of the peers: each is installed from its package, once, into a folder of its own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIREMENTS = {
    "transformers": ["transformers", "torch", "numpy"],
    "ctranslate2": ["ctranslate2", "numpy"],
    "marian": ["pymarian", "numpy"],
    "opennmt": [
        "configargparse",
        "ctranslate2",
        "fasttext-wheel",
        "flask",
        "numpy",
        "pyahocorasick",
        "pyonmttok",
        "pyyaml",
        "rapidfuzz",
        "sacrebleu",
        "setuptools",
        "six",
        "spacy",
        "tensorboard",
        "torch",
        "waitress",
    ],
}
BY_ITSELF = {"opennmt": "OpenNMT-py"}
"""What asks for a torch below 2.3 and runs with the one that all the others have."""


class PeerError(Exception):
    """A peer that cannot be installed or run here."""


def python_of(environment: str | None) -> str:
    """The interpreter of a peer's environment, made when it is first asked for; ours when there is none to make."""
    if environment is None:
        return sys.executable
    folder = ROOT / ".peers" / environment
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        pip = [str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
        steps = [[sys.executable, "-m", "venv", str(folder)], [*pip, *REQUIREMENTS[environment]]]
        if environment in BY_ITSELF:
            steps.append([*pip, "--no-deps", BY_ITSELF[environment]])
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, check=False)
            if done.returncode:
                raise PeerError(f"it cannot be installed: {done.stderr[-500:]}")
        (folder / ".ready").touch()
    return str(python)
