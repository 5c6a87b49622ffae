"""Files to batches: read and accounted for, encoded once into a cache on disk, batched by length, resumable."""

from glassformer.data.account import REASONS, Account, FileAccount, TokenAccount
from glassformer.data.batch import Batch, collate
from glassformer.data.batches import Batches, ordered_batches
from glassformer.data.config import DataConfig
from glassformer.data.corpus import Corpus
from glassformer.data.files import parallel_lines, read_lines, read_pairs, read_texts
from glassformer.data.preparation import prepare

__all__ = [
    "REASONS",
    "Account",
    "Batch",
    "Batches",
    "Corpus",
    "DataConfig",
    "FileAccount",
    "TokenAccount",
    "collate",
    "ordered_batches",
    "parallel_lines",
    "prepare",
    "read_lines",
    "read_pairs",
    "read_texts",
]
