"""The one table of uses."""

from glassformer.interop.tasks.conversion import TaskConversion
from glassformer.interop.tasks.encoder import Encoder
from glassformer.interop.tasks.images import Images
from glassformer.interop.tasks.language import Language
from glassformer.interop.tasks.translation import Translation

TASKS: dict[str, TaskConversion] = {
    "translation": Translation(),
    "language": Language(),
    "masked": Encoder("masked", "AutoModelForMaskedLM"),
    "classification": Encoder("classification", "AutoModelForSequenceClassification"),
    "tagging": Encoder("tagging", "AutoModelForTokenClassification"),
    "embedding": Encoder("embedding", "AutoModel"),
    "images": Images(),
}
"""By task."""
