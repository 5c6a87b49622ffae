"""Files to batches: read and accounted for, encoded once into a cache on disk, batched by length, resumable."""

from glassformer.data.account import REASONS, Account, FileAccount, TokenAccount
from glassformer.data.batch import Batch, TokenLinks, collate
from glassformer.data.batches import Batches, ordered_batches
from glassformer.data.config import DataConfig
from glassformer.data.corpus import Corpus
from glassformer.data.files import parallel_lines, read_lines, read_pairs, read_texts
from glassformer.data.image_config import AugmentConfig, ImageConfig
from glassformer.data.images import ImageBatch, ImageBatches, ImageFormat, ordered_images, prepare_images
from glassformer.data.labelled import LabelledBatch, LabelledBatches, prepare_labelled
from glassformer.data.labelled_config import LabelledConfig, TaggedConfig
from glassformer.data.masking import MaskedBatch, MaskedSequences
from glassformer.data.masking_config import MaskedConfig
from glassformer.data.preparation import prepare
from glassformer.data.series import SeriesBatch, SeriesBatches, SeriesFormat, prepare_series
from glassformer.data.series_config import SeriesDataConfig
from glassformer.data.series_files import Table, read_table
from glassformer.data.stream import Stream, prepare_stream
from glassformer.data.stream_config import StreamConfig
from glassformer.data.tagged import TaggedBatch, TaggedBatches, prepare_tagged
from glassformer.data.windows import WindowBatch, Windows

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
