"""Tensors divided among files: any division is read as any other, and what does not fit together is refused."""

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from glassformer.errors import CheckpointError
from glassformer.storage.tensor_files import Region, Shard, StoredTensors, TensorWriter, stored_order, write_shards

TENSORS = {
    "matrix": torch.arange(77.0).view(7, 11),
    "vector": torch.arange(5, dtype=torch.float64),
    "scalar": torch.tensor(3.0),
    "cube": torch.arange(60, dtype=torch.int64).view(3, 4, 5),
    "low": torch.arange(6).bfloat16().view(2, 3),
    "empty": torch.empty(0, 3),
    "bytes": torch.arange(9, dtype=torch.uint8),
    "ünï": torch.ones(2),
}


@pytest.mark.parametrize("seed", range(5))
def test_any_region_is_read_from_any_division(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    n_rows = sorted([0, draw.randint(0, 7), draw.randint(0, 7), 7])
    matrix = TENSORS["matrix"]
    paths = []
    for index, (a, b) in enumerate(pairwise(n_rows)):
        cut = draw.randint(0, 11)
        for part, (c, d) in enumerate(((0, cut), (cut, 11))):
            if a < b and c < d:
                shard = Shard(matrix[a:b, c:d], Region((a, c), (b - a, d - c)), (7, 11))
                write_shards(path := tmp_path / f"{index}_{part}.safetensors", {"matrix": shard})
                paths.append(path)
    stored = StoredTensors(paths, tmp_path)
    assert torch.equal(stored["matrix"], matrix)
    for _ in range(50):
        a, b = sorted(draw.randint(0, 7) for _ in range(2))
        c, d = sorted(draw.randint(0, 11) for _ in range(2))
        assert torch.equal(stored.read("matrix", Region((a, c), (b - a, d - c))), matrix[a:b, c:d])


def test_tensors_without_division_are_read_whole_and_in_part(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "all.safetensors")
    stored = StoredTensors([tmp_path / "all.safetensors"], tmp_path)
    assert dict(stored).keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert stored[name].dtype == tensor.dtype
        assert torch.equal(stored[name], tensor)
    assert torch.equal(stored.read("cube", Region((1, 0, 2), (1, 4, 3))), TENSORS["cube"][1:2, :, 2:])


def test_written_one_by_one_a_file_has_the_bytes_of_one_written_at_once(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "at_once.safetensors")
    types = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in TENSORS.items()}
    writer = TensorWriter(tmp_path / "one_by_one.safetensors", types)
    for name in stored_order(types):
        writer.write(TENSORS[name])
    writer.close()
    assert (tmp_path / "one_by_one.safetensors").read_bytes() == (tmp_path / "at_once.safetensors").read_bytes()


def refusal(folder: Path, *shards: dict[str, Shard]) -> str:
    for index, each in enumerate(shards):
        write_shards(folder / f"{index}.safetensors", each)
    with pytest.raises(CheckpointError) as error:
        StoredTensors([folder / f"{index}.safetensors" for index in range(len(shards))], folder)
    return str(error.value)


def rows(first: int, count: int, n_rows: int = 4) -> dict[str, Shard]:
    return {"w": Shard(torch.zeros(count, 2), Region((first, 0), (count, 2)), (n_rows, 2))}


def test_gaps_overlaps_and_other_shapes_are_refused(tmp_path: Path) -> None:
    assert "the shards of w overlap or leave a gap" in refusal(tmp_path, rows(0, 2), rows(3, 1))
    assert "the shards of w overlap or leave a gap" in refusal(tmp_path, rows(0, 2), rows(1, 2))
    assert "the shards of w overlap or leave a gap" in refusal(tmp_path, rows(0, 1), rows(1, 1), rows(1, 2))
    assert "w has another shape than in another file" in refusal(tmp_path, rows(0, 2), rows(2, 3, n_rows=5))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "its list of shards does not name its tensors"),
        ("nonsense", "its list of shards does not name its tensors"),
        (json.dumps({"w": [[3, 0], [4, 2]]}), "w has no valid place"),
        (json.dumps({"w": [[0], [4, 2]]}), "w has no valid place"),
        (json.dumps({"w": [[-1, 0], [4, 2]]}), "w has no valid place"),
    ],
)
def test_invalid_lists_of_shards_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    save_file({"w": torch.zeros(2, 2)}, tmp_path / "one.safetensors", {"shards": text})
    with pytest.raises(CheckpointError, match=f"one.safetensors is damaged: {reason}"):
        StoredTensors([tmp_path / "one.safetensors"], tmp_path)
