"""Which modules have shapes in their annotations, and a type checker that looks at nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from beartype import beartype

SOURCE = Path(__file__).parents[1] / "src"


def modules_with_shapes() -> list[str]:
    """Modules of the package that import jaxtyping. The others are spared the time of being checked."""
    files = [path for path in SOURCE.rglob("*.py") if "from jaxtyping" in path.read_text()]
    return [".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in files]


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """beartype, for a function that has a shape in its signature. Others may be given anything, as by a user."""
    shaped = any("jaxtyping" in repr(annotation) for annotation in function.__annotations__.values())
    return beartype(function) if shaped else function
