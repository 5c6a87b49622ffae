"""Files to batches: read and accounted for, encoded once into a cache on disk, batched by length, resumable.

Each name is imported when first used: who reads lines need not wait for what reads pictures.
"""

from typing import TYPE_CHECKING

from glassformer.lazy_imports import lazy_attributes

if TYPE_CHECKING:
    from glassformer.data.alignments import TokenLinks
    from glassformer.data.config import (
        AugmentConfig,
        DataConfig,
        ImageConfig,
        LabeledConfig,
        MaskedConfig,
        SeriesDataConfig,
        StreamConfig,
        TaggedConfig,
    )
    from glassformer.data.corpus import Corpus, prepare
    from glassformer.data.images import ImageBatch, ImageFormat, image_batches, ordered_images, prepare_images
    from glassformer.data.loader import ResumableLoader
    from glassformer.data.masking import MaskedBatch, masked_batches
    from glassformer.data.pairs import Batch, collate, ordered_batches, pair_batches
    from glassformer.data.parallel_text import read_pairs, read_texts
    from glassformer.data.read_report import REASONS, FileReadReport, ReadReport, TokenReadReport
    from glassformer.data.readers import paired_lines, parallel_lines, read_lines
    from glassformer.data.series_table import Table, read_table
    from glassformer.data.text_classification import LabeledBatch, labeled_batches, prepare_labeled
    from glassformer.data.time_series import (
        SeriesBatch,
        SeriesFormat,
        prepare_series,
        series_batches,
    )
    from glassformer.data.token_classification import TaggedBatch, prepare_tagged, tagged_batches
    from glassformer.data.token_stream import Stream, prepare_stream
    from glassformer.data.windows import WindowBatch, window_batches

_HOMES = {
    "REASONS": "read_report",
    "ReadReport": "read_report",
    "ResumableLoader": "loader",
    "AugmentConfig": "config",
    "Batch": "pairs",
    "pair_batches": "pairs",
    "Corpus": "corpus",
    "DataConfig": "config",
    "FileReadReport": "read_report",
    "ImageBatch": "images",
    "image_batches": "images",
    "ImageConfig": "config",
    "ImageFormat": "images",
    "LabeledBatch": "text_classification",
    "labeled_batches": "text_classification",
    "LabeledConfig": "config",
    "MaskedBatch": "masking",
    "MaskedConfig": "config",
    "masked_batches": "masking",
    "SeriesBatch": "time_series",
    "series_batches": "time_series",
    "SeriesDataConfig": "config",
    "SeriesFormat": "time_series",
    "Stream": "token_stream",
    "StreamConfig": "config",
    "Table": "series_table",
    "TaggedBatch": "token_classification",
    "tagged_batches": "token_classification",
    "TaggedConfig": "config",
    "TokenReadReport": "read_report",
    "TokenLinks": "alignments",
    "WindowBatch": "windows",
    "window_batches": "windows",
    "collate": "pairs",
    "ordered_batches": "pairs",
    "ordered_images": "images",
    "paired_lines": "readers",
    "parallel_lines": "readers",
    "prepare": "corpus",
    "prepare_images": "images",
    "prepare_labeled": "text_classification",
    "prepare_series": "time_series",
    "prepare_stream": "token_stream",
    "prepare_tagged": "token_classification",
    "read_lines": "readers",
    "read_pairs": "parallel_text",
    "read_table": "series_table",
    "read_texts": "parallel_text",
}

__all__ = [
    "REASONS",
    "AugmentConfig",
    "Batch",
    "Corpus",
    "DataConfig",
    "FileReadReport",
    "ImageBatch",
    "ImageConfig",
    "ImageFormat",
    "LabeledBatch",
    "LabeledConfig",
    "MaskedBatch",
    "MaskedConfig",
    "ReadReport",
    "ResumableLoader",
    "SeriesBatch",
    "SeriesDataConfig",
    "SeriesFormat",
    "Stream",
    "StreamConfig",
    "Table",
    "TaggedBatch",
    "TaggedConfig",
    "TokenLinks",
    "TokenReadReport",
    "WindowBatch",
    "collate",
    "image_batches",
    "labeled_batches",
    "masked_batches",
    "ordered_batches",
    "ordered_images",
    "pair_batches",
    "paired_lines",
    "parallel_lines",
    "prepare",
    "prepare_images",
    "prepare_labeled",
    "prepare_series",
    "prepare_stream",
    "prepare_tagged",
    "read_lines",
    "read_pairs",
    "read_table",
    "read_texts",
    "series_batches",
    "tagged_batches",
    "window_batches",
]

if not TYPE_CHECKING:  # where types are checked, a name that is not there is a fault
    __getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
