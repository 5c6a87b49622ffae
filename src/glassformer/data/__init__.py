"""Files to batches: read and accounted for, encoded once into a cache on disk, batched by length, resumable.

Each name is imported when first used: who reads lines need not wait for what reads pictures.
"""

from typing import TYPE_CHECKING

from glassformer.later import imported_later

if TYPE_CHECKING:
    from glassformer.data.account import REASONS, Account, FileAccount, TokenAccount
    from glassformer.data.batches import Batches, ordered_batches
    from glassformer.data.config import DataConfig
    from glassformer.data.files import parallel_lines, read_lines, read_pairs, read_texts
    from glassformer.data.image_config import AugmentConfig, ImageConfig
    from glassformer.data.images import ImageBatch, ImageBatches, ImageFormat, ordered_images, prepare_images
    from glassformer.data.labelled import LabelledBatch, LabelledBatches, prepare_labelled
    from glassformer.data.labelled_config import LabelledConfig, TaggedConfig
    from glassformer.data.masking import MaskedBatch, MaskedSequences
    from glassformer.data.masking_config import MaskedConfig
    from glassformer.data.pairs import Batch, Corpus, TokenLinks, collate
    from glassformer.data.preparation import prepare
    from glassformer.data.series import SeriesBatch, SeriesBatches, SeriesFormat, prepare_series
    from glassformer.data.series_config import SeriesDataConfig
    from glassformer.data.series_files import Table, read_table
    from glassformer.data.stream import Stream, prepare_stream
    from glassformer.data.stream_config import StreamConfig
    from glassformer.data.tagged import TaggedBatch, TaggedBatches, prepare_tagged
    from glassformer.data.windows import WindowBatch, Windows

_HOMES = {
    "REASONS": "account",
    "Account": "account",
    "AugmentConfig": "image_config",
    "Batch": "pairs",
    "Batches": "batches",
    "Corpus": "pairs",
    "DataConfig": "config",
    "FileAccount": "account",
    "ImageBatch": "images",
    "ImageBatches": "images",
    "ImageConfig": "image_config",
    "ImageFormat": "images",
    "LabelledBatch": "labelled",
    "LabelledBatches": "labelled",
    "LabelledConfig": "labelled_config",
    "MaskedBatch": "masking",
    "MaskedConfig": "masking_config",
    "MaskedSequences": "masking",
    "SeriesBatch": "series",
    "SeriesBatches": "series",
    "SeriesDataConfig": "series_config",
    "SeriesFormat": "series",
    "Stream": "stream",
    "StreamConfig": "stream_config",
    "Table": "series_files",
    "TaggedBatch": "tagged",
    "TaggedBatches": "tagged",
    "TaggedConfig": "labelled_config",
    "TokenAccount": "account",
    "TokenLinks": "pairs",
    "WindowBatch": "windows",
    "Windows": "windows",
    "collate": "pairs",
    "ordered_batches": "batches",
    "ordered_images": "images",
    "parallel_lines": "files",
    "prepare": "preparation",
    "prepare_images": "images",
    "prepare_labelled": "labelled",
    "prepare_series": "series",
    "prepare_stream": "stream",
    "prepare_tagged": "tagged",
    "read_lines": "files",
    "read_pairs": "files",
    "read_table": "series_files",
    "read_texts": "files",
}

__all__ = [
    "REASONS",
    "Account",
    "AugmentConfig",
    "Batch",
    "Batches",
    "Corpus",
    "DataConfig",
    "FileAccount",
    "ImageBatch",
    "ImageBatches",
    "ImageConfig",
    "ImageFormat",
    "LabelledBatch",
    "LabelledBatches",
    "LabelledConfig",
    "MaskedBatch",
    "MaskedConfig",
    "MaskedSequences",
    "SeriesBatch",
    "SeriesBatches",
    "SeriesDataConfig",
    "SeriesFormat",
    "Stream",
    "StreamConfig",
    "Table",
    "TaggedBatch",
    "TaggedBatches",
    "TaggedConfig",
    "TokenAccount",
    "TokenLinks",
    "WindowBatch",
    "Windows",
    "collate",
    "ordered_batches",
    "ordered_images",
    "parallel_lines",
    "prepare",
    "prepare_images",
    "prepare_labelled",
    "prepare_series",
    "prepare_stream",
    "prepare_tagged",
    "read_lines",
    "read_pairs",
    "read_table",
    "read_texts",
]

if not TYPE_CHECKING:  # where types are checked, a name that is not there is a fault
    __getattr__, __dir__ = imported_later(__name__, _HOMES)
