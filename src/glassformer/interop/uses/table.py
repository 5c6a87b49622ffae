"""The one table of uses."""

from glassformer.interop.uses.encoder import Encoder
from glassformer.interop.uses.images import Images
from glassformer.interop.uses.language import Language
from glassformer.interop.uses.translation import Translation
from glassformer.interop.uses.use import Use

USES: dict[str, Use] = {
    "translation": Translation(),
    "language": Language(),
    "masked": Encoder("masked", "AutoModelForMaskedLM"),
    "classification": Encoder("classification", "AutoModelForSequenceClassification"),
    "tagging": Encoder("tagging", "AutoModelForTokenClassification"),
    "embedding": Encoder("embedding", "AutoModel"),
    "images": Images(),
}
"""By task."""
