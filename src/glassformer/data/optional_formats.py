"""Files that need an optional library: zstd by zstandard, Parquet by pyarrow. Each is imported when it is used."""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from glassformer.errors import DataError

READ_BYTES = 1 << 10
"""Compressed bytes that are decompressed at once: at the highest ratio of zstd they are 32 MB."""
PARQUET_ROWS = 256
"""Rows of Parquet that are in memory at a time, besides the compressed columns of one row group."""


class ZstdReader:
    """Stream of the decompressed bytes of ``file``. An end within a frame is an error."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file = path, file
        self.library = _library("zstandard", "zstandard", path)
        self.frame: Any = None
        self.buffer, self.begin = b"", 0

    def read1(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end."""
        while self.begin == len(self.buffer):
            compressed = self.file.read(READ_BYTES)
            if not compressed:
                if self.frame is not None:
                    raise self._damaged("it ends within a frame")
                return b""
            self.buffer, self.begin = self._decompress(compressed), 0
        part = self.buffer[self.begin : self.begin + size]
        self.begin += len(part)
        return part

    def read(self, size: int = -1) -> bytes:
        """At most ``size`` bytes, or all that are left."""
        if size >= 0:
            return self.read1(size)
        return b"".join(iter(lambda: self.read1(1 << 20), b""))

    def _decompress(self, compressed: bytes) -> bytes:
        parts = list[bytes]()
        try:
            while compressed:
                self.frame = self.frame or self.library.ZstdDecompressor().decompressobj()
                parts.append(self.frame.decompress(compressed))
                compressed = b""
                if self.frame.eof:
                    compressed, self.frame = self.frame.unused_data, None
        except self.library.ZstdError as error:
            raise self._damaged(str(error)) from None
        return b"".join(parts)

    def _damaged(self, reason: str) -> DataError:
        return DataError(f"{self.path}: not a complete zstd file ({reason}); copy or compress it again")


def parquet_lines(path: Path) -> Iterator[bytes]:
    """The rows of a Parquet file as lines of JSON, which have the same keys as the columns."""
    parquet = _library("pyarrow.parquet", "pyarrow", path)
    arrow_error = import_module("pyarrow").ArrowException
    try:
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(PARQUET_ROWS, use_threads=False):
                for row in batch.to_pylist():
                    yield json.dumps(row, ensure_ascii=False, default=str).encode(errors="surrogatepass")
    except arrow_error as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: not a complete Parquet file ({reason}); copy or write it again") from None


def _library(module: str, name: str, path: Path) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise DataError(
            f"{path}: {path.suffix} files are read by {name}, which is not installed; pip install 'glassformer[shards]'"
        ) from None
