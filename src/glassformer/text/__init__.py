"""Text → normalized text → words → token ids, and back. Nothing here knows of tensors."""

from glassformer.text.config import SPECIAL_TOKENS, ByteTextConfig, TextConfig
from glassformer.text.pair import TokenizerPair
from glassformer.text.tokenizer import Merge, Segmentation, TextSize, Tokenizer
from glassformer.text.training import train_tokenizers

__all__ = [
    "SPECIAL_TOKENS",
    "ByteTextConfig",
    "Merge",
    "Segmentation",
    "TextConfig",
    "TextSize",
    "Tokenizer",
    "TokenizerPair",
    "train_tokenizers",
]
