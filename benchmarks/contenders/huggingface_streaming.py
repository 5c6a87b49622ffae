"""Streaming by Hugging Face ``datasets`` as a contender of ``benchmarks.streaming``: Parquet and a shuffle buffer."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.contenders.streamed import measure, rows_of

ROWS, BUFFER = 1 << 18, 16384


class HuggingFace:
    def write(self, source: Path, folder: Path) -> None:
        import pyarrow
        from pyarrow import parquet

        folder.mkdir(parents=True)
        rows, number = rows_of(source), 0
        while block := list(islice(rows, ROWS)):
            table = pyarrow.table({"tokens": pyarrow.array(block, pyarrow.list_(pyarrow.uint16()))})
            parquet.write_table(table, folder / f"{number:05d}.parquet", row_group_size=1 << 14, compression="none")
            number += 1

    def begin(self, folder: Path, state: Any = None) -> Iterator[Any]:
        from datasets import load_dataset

        files = sorted(map(str, folder.glob("*.parquet")))
        dataset = load_dataset("parquet", data_files=files, streaming=True, split="train")
        self.dataset = dataset.shuffle(seed=1, buffer_size=BUFFER)
        if state is not None:
            self.dataset.load_state_dict(state)
        for sample in self.dataset:
            yield sample["tokens"]

    def state(self, taken: int) -> Any:
        return self.dataset.state_dict()


if __name__ == "__main__":
    measure(HuggingFace())
