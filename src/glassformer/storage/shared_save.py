"""A checkpoint that several processes write together: one file of training state each, and one manifest over all."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.storage.atomic import move_in, refuse_target, unfinished_path
from glassformer.storage.checkpoint import CONFIG, STATE_VALUES, TOKENIZER, encode
from glassformer.storage.manifest import Entry, measure, refusing, sync, write_manifest


class SharedSave:
    """Save of the checkpoint ``path`` under a temporary ``name`` beside it, until ``finish`` renames the folder.

    Every process has one; the folder has to be on a file system that all of them see.
    """

    def __init__(self, path: Path, name: str):
        self.path = path
        self.folder = path.with_name(name)

    @classmethod
    def begin(
        cls, path: Path, config: dict[str, Any], tokenizer: dict[str, Any] | bytes, values: dict[str, Any]
    ) -> tuple[str, dict[str, Entry]]:
        """Make the folder with its JSON files, in the first process; return its name, and the entries of the files."""
        documents = {CONFIG: config, TOKENIZER: tokenizer, STATE_VALUES: values}
        save = cls(path, unfinished_path(path).name)
        with refusing(f"{path}: cannot be saved"):
            refuse_target(path, replace=True)
            save.folder.mkdir(parents=True)
            (save.folder / STATE_VALUES).parent.mkdir()
            entries: dict[str, Entry] = {}
            try:
                for name, document in documents.items():
                    (save.folder / name).write_bytes(encode(document, name))
                    entries |= save._flushed(name)
            except BaseException:
                save.discard()
                raise
        return save.folder.name, entries

    def write(self, name: str, write: Callable[[Path], None]) -> dict[str, Entry]:
        """Write the file ``name`` by ``write`` and flush it; return its entry in the manifest."""
        if not self.folder.is_dir():
            raise CheckpointError(
                f"{self.folder}: this process does not see the folder that process 0 has made; put the run on a file "
                "system that all machines share, or set train.parallel=ddp"
            )
        with refusing(f"{self.path}: cannot be saved"):
            write(self.folder / name)
            shutil.copymode(self.folder / CONFIG, self.folder / name)
            return self._flushed(name)

    def finish(self, entries: Mapping[str, Entry]) -> None:
        """Write the manifest of the files of all processes and rename the folder, in the first process."""
        with refusing(f"{self.path}: cannot be saved"):
            for name, entry in entries.items():
                if (self.folder / name).stat().st_size != entry["bytes"]:
                    raise CheckpointError(f"{self.folder / name}: process 0 sees another size; check the file system")
            write_manifest(self.folder, entries)
            for inner in {(self.folder / name).parent for name in entries}:
                sync(inner)
            move_in(self.folder, self.path)

    def discard(self) -> None:
        """Remove the temporary folder, if it is still there."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _flushed(self, name: str) -> dict[str, Entry]:
        sync(self.folder / name)
        return {name: measure(self.folder / name, self.folder)}
