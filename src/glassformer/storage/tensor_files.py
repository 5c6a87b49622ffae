"""Tensors divided among files: each process writes its shards, and any other division reads the regions it needs.

A file of shards is a safetensors file whose metadata has, for each shard, its first index in the tensor that it is a
part of and the shape of that tensor. Any safetensors file is one of tensors that are not divided.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from glassformer.errors import CheckpointError
from glassformer.storage.manifest import parse_object, refusing
from glassformer.storage.tensor_header import TensorInfo, read_header, read_metadata

Shape = tuple[int, ...]
METADATA = "shards"
DTYPES = {
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.uint8: "U8",
}
"""Types that ``TensorWriter`` writes, in the order of their tensors in a file, with the names of safetensors."""


@dataclass(frozen=True)
class Region:
    """A block of a tensor: its first index and its shape."""

    offset: Shape
    shape: Shape

    @classmethod
    def of_whole(cls, shape: Iterable[int]) -> "Region":
        shape = tuple(shape)
        return cls((0,) * len(shape), shape)

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple(slice(first, first + size) for first, size in zip(self.offset, self.shape, strict=True))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def intersection(self, other: "Region") -> "Region":
        """The block in both; of size 0 if there is none."""
        offset = tuple(map(max, self.offset, other.offset))
        ends = (min(a.stop, b.stop) for a, b in zip(self.slices, other.slices, strict=True))
        return Region(offset, tuple(max(0, end - first) for first, end in zip(offset, ends, strict=True)))

    def within(self, other: "Region") -> "Region":
        """The same block, counted from the first index of ``other``."""
        return Region(tuple(a - b for a, b in zip(self.offset, other.offset, strict=True)), self.shape)


@dataclass(frozen=True)
class Shard:
    """The block ``region`` of a tensor of ``shape``."""

    tensor: Tensor
    region: Region
    shape: Shape


def write_shards(path: Path, shards: Mapping[str, Shard]) -> None:
    """Write the shards of one process."""
    tensors = {name: shard.tensor.detach().cpu().contiguous().clone() for name, shard in shards.items()}
    places = {name: [shard.region.offset, shard.shape] for name, shard in sorted(shards.items())}
    save_file(tensors, path, {METADATA: json.dumps(places)})


def stored_order(tensors: Mapping[str, tuple[torch.dtype, Shape]]) -> list[str]:
    """Names of tensors of these types and shapes, in the order in which a file has them."""
    order = list(DTYPES)
    return sorted(tensors, key=lambda name: (order.index(tensors[name][0]), name))


class TensorWriter:
    """Writer of a safetensors file, one tensor after the other, in ``stored_order``.

    The bytes are those of ``safetensors.torch.save_file``, which needs all tensors at once.
    """

    def __init__(self, path: Path, tensors: Mapping[str, tuple[torch.dtype, Shape]]):
        header, position = dict[str, Any](), 0
        for name in stored_order(tensors):
            dtype, shape = tensors[name]
            end = position + math.prod(shape) * dtype.itemsize
            header[name] = {"dtype": DTYPES[dtype], "shape": list(shape), "data_offsets": [position, end]}
            position = end
        data = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        data += b" " * (-len(data) % 8)
        self._file = path.open("wb")
        self._file.write(len(data).to_bytes(8, "little") + data)

    def write(self, tensor: Tensor) -> None:
        """Write the next tensor."""
        stored = tensor.detach().cpu().contiguous()
        if stored.numel():
            self._file.write(stored.reshape(-1).view(torch.uint8).numpy().data)

    def close(self) -> None:
        self._file.close()


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of some files, each read when it is asked for, whole or in part.

    ``CheckpointError``: the shards of a tensor overlap, leave a gap, or have no valid metadata. ``within`` is the
    checkpoint folder of the files.
    """

    def __init__(self, paths: Iterable[Path], within: Path):
        self._within = within
        self.shapes: dict[str, Shape] = {}
        """Shapes of the whole tensors, by name."""
        self._parts: dict[str, list[tuple[Path, Region]]] = {}
        self._files: dict[Path, Any] = {}
        for path in paths:
            self._add(path, read_header(path, within))
        for name, parts in self._parts.items():
            if not _cover(Region.of_whole(self.shapes[name]), [region for _, region in parts]):
                file = parts[0][0].relative_to(within)
                raise CheckpointError(f"{within}: {file} is damaged: the shards of {name} overlap or leave a gap")

    def __getitem__(self, name: str) -> Tensor:
        return self.read(name, Region.of_whole(self.shapes[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def read(self, name: str, region: Region) -> Tensor:
        """A block of the tensor, from all files that have parts of it."""
        found: Tensor | None = None
        for path, stored in self._parts[name]:
            shared = stored.intersection(region)
            if not shared.size and region.size:
                continue
            part = self._read(path, name, shared.within(stored))
            if part.shape == region.shape:
                return part
            found = part.new_empty(region.shape) if found is None else found
            found[shared.within(region).slices] = part
        assert found is not None
        return found

    def _read(self, path: Path, name: str, region: Region) -> Tensor:
        with refusing(f"{self._within}: cannot be read"):
            if path not in self._files:
                self._files[path] = safe_open(path, framework="pt")
            if not region.shape or not region.size:
                whole: Tensor = self._files[path].get_tensor(name)
                return whole if not region.shape else whole[region.slices]
            part: Tensor = self._files[path].get_slice(name)[region.slices]
            return part

    def _add(self, path: Path, infos: Mapping[str, TensorInfo]) -> None:
        metadata = read_metadata(path, self._within).get(METADATA)
        places = None if metadata is None else parse_object(metadata.encode(), 4 * len(infos) + 4)
        if metadata is not None and (places is None or places.keys() != infos.keys()):
            raise self._invalid(path, "its list of shards does not name its tensors")
        for name, info in infos.items():
            region, shape = Region.of_whole(info.shape), info.shape
            if places is not None:
                match places[name]:
                    case [list(offset), list(whole)] if (
                        len(offset) == len(whole) == len(shape)
                        and all(type(n) is int and n >= 0 for n in [*offset, *whole])
                        and all(a + b <= c for a, b, c in zip(offset, shape, whole, strict=True))
                    ):
                        region, shape = Region(tuple(offset), shape), tuple(whole)
                    case _:
                        raise self._invalid(path, f"{name[:100]} has no valid place")
            if self.shapes.setdefault(name, shape) != shape:
                raise self._invalid(path, f"{name[:100]} has another shape than in another file")
            self._parts.setdefault(name, []).append((path, region))

    def _invalid(self, path: Path, reason: str) -> CheckpointError:
        return CheckpointError(f"{self._within}: {path.relative_to(self._within)} is damaged: {reason}; copy it again")


def _cover(whole: Region, parts: list[Region]) -> bool:
    """True if ``parts`` are blocks of ``whole`` without gap and without overlap."""
    if sum(part.size for part in parts) != whole.size:
        return False
    return _disjoint(sorted((part for part in parts if part.size), key=lambda part: part.offset))


def _disjoint(parts: list[Region]) -> bool:
    """Compare each block with the following ones that begin before it ends, in order of their first index."""
    for index, one in enumerate(parts):
        for two in parts[index + 1 :]:
            if two.offset and two.offset[0] >= one.slices[0].stop:
                break
            if one.intersection(two).size:
                return False
    return True
