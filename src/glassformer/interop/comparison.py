"""A folder of Hugging Face's, loaded as anyone would load it, against a model of ours."""

from collections.abc import Sequence
from pathlib import Path

from glassformer.interop.parity import Parity, largest_difference
from glassformer.interop.runs import Held
from glassformer.interop.table import Family
from glassformer.interop.tasks.conversion import TaskConversion
from glassformer.interop.transformers_api import loaded


def compare(
    held: Held, use: TaskConversion, family: Family, folder: Path, texts: Sequence[str] | None = None
) -> Parity:
    """Both in float32, then both in float64, where also the ``texts`` go through both."""
    theirs, model = loaded(use.loader, folder), held.model
    inputs = use.inputs(held)
    differences = {"float32": largest_difference(use.logits(model), use.their_logits(theirs), inputs)}
    model.double()  # and back, which changes no bit; a copy would take as much memory again
    try:
        family.make_exact(theirs.double(), model.config)
        ours, other = use.logits(model), use.their_logits(theirs)
        differences["float64"] = largest_difference(ours, other, use.inputs(held))
        return Parity(differences, use.samples(held, theirs, folder, texts))
    finally:
        model.float()
