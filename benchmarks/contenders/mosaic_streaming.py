"""mosaicml-streaming as a contender of ``benchmarks.streaming``; run by an interpreter that has it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.contenders.streamed import measure, rows_of


class Mosaic:
    def write(self, source: Path, folder: Path) -> None:
        from streaming import MDSWriter

        with MDSWriter(out=str(folder), columns={"tokens": "ndarray:uint16"}, size_limit=1 << 27) as out:
            for row in rows_of(source):
                out.write({"tokens": row})

    def begin(self, folder: Path, state: Any = None) -> Iterator[Any]:
        from streaming import StreamingDataset
        from streaming.base.util import clean_stale_shared_memory

        clean_stale_shared_memory()
        self.dataset = StreamingDataset(local=str(folder), shuffle=True, shuffle_seed=1, batch_size=64)
        if state is not None:
            self.dataset.load_state_dict(state)
        for sample in self.dataset:
            yield sample["tokens"]

    def state(self, taken: int) -> Any:
        return self.dataset.state_dict(taken, False)


if __name__ == "__main__":
    measure(Mosaic())
