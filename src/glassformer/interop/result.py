"""What an import or export leaves behind, and what was compared."""

from dataclasses import dataclass, field
from pathlib import Path

from glassformer.interop.parity import Parity


@dataclass(frozen=True)
class Conversion:
    """``notes``: what the other side cannot say, or what its user must know, a sentence each."""

    path: Path
    kind: str
    parity: Parity
    notes: list[str] = field(default_factory=list)
