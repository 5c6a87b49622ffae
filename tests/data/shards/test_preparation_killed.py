"""A preparation that is killed at any moment goes on, and ends with the bytes of one that was not."""

import subprocess
import sys
from pathlib import Path

import pytest

from own_process import ENVIRONMENT
from shard_tasks import SETTINGS

PROGRAM = """
import os, random, shutil, signal, sys
from pathlib import Path

from glassformer.data import corpus, readers
from glassformer.data.shards import document_samples, preparation, shard_file, shard_writer
from shard_tasks import config_of, settings
from glassformer.train import prepare_shards

task, folder = sys.argv[1], Path(sys.argv[2])
readers.CHUNK_ROWS = document_samples.CHUNK_ROWS = 8
readers.CHUNK_CHARACTERS = document_samples.CHUNK_CHARACTERS = 400
document_samples.BLOCK, document_samples.SPOOL_BYTES = 50, 100
values = settings(task, folder)
if task == "translation":
    values["data"]["drop_duplicates"] = True
    for language in ("en", "de"):
        path = folder / f"train.{language}"
        path.write_text(path.read_text() + "".join(path.read_text().splitlines(True)[:200:3]))
if task in ("language", "masked"):
    values["data"]["documents"] = "file" if task == "masked" else "blank_line"
    (folder / "three.txt").write_text((folder / "one.txt").read_text().replace("\\n\\n", "\\n"))
    values["data"]["train"].append(str(folder / "three.txt"))


def prepare(output, kill_at):
    calls = 0

    def counting(call):
        def counted(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return counted

    os.replace, os.fsync = counting(os.replace), counting(os.fsync)
    shard_file.ShardFileWriter.append = counting(shard_file.ShardFileWriter.append)
    corpus.PairFilter.__call__ = counting(corpus.PairFilter.__call__)
    Path.unlink = counting(Path.unlink)
    for _ in prepare_shards(config_of(values), output, 1, 150):
        pass


def in_child(output, kill_at):
    child = os.fork()
    if not child:
        try:
            prepare(output, kill_at)
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def content(output):
    return {path.name: path.read_bytes() for path in output.iterdir()}


assert in_child(folder / "whole", 0) == 0
expected = content(folder / "whole")
generator = random.Random(int(sys.argv[3]))
kills = 0
for attempt in range(int(sys.argv[4])):
    output = folder / f"killed-{attempt}"
    while (code := in_child(output, generator.randint(1, 40))) == -9:
        kills += 1
    assert code == 0, code
    assert content(output) == expected, attempt
    shutil.rmtree(output)
print(kills, len(expected))
"""


@pytest.mark.parametrize("task", SETTINGS)
def test_a_killed_preparation_goes_on_to_the_same_bytes(task: str, tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{Path(__file__).parents[2]}"}
    command = [sys.executable, "-c", PROGRAM, task, str(tmp_path), "1", "3"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-1500:]
    kills, files = map(int, done.stdout.split())
    assert kills > 8
    assert files > 8


def test_processes_end_with_a_killed_preparation(tmp_path: Path) -> None:
    program = """
import os, signal, sys
from pathlib import Path
from shard_tasks import config_of, settings
from glassformer.train import prepare_shards

if __name__ == "__main__":
    values = settings("translation", Path(sys.argv[1]))
    for _ in prepare_shards(config_of(values), Path(sys.argv[1], "shards"), 2, 150):
        print(*Path(f"/proc/self/task/{os.getpid()}/children").read_text().split(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    environment = {**ENVIRONMENT, "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{Path(__file__).parents[2]}"}
    done = subprocess.run([sys.executable, str(path), str(tmp_path)], capture_output=True, text=True, env=environment)
    children = [int(number) for number in done.stdout.split()]
    assert done.returncode == -9 and len(children) >= 2, done.stderr[-1500:]
    # ``run`` returned, so every process that had the standard output has ended.
    assert not any(Path(f"/proc/{number}/cmdline").exists() and _runs(number, path) for number in children)


def _runs(process: int, path: Path) -> bool:
    """True if a process has this program, and its number does not belong to another one by now."""
    return str(path) in Path(f"/proc/{process}/cmdline").read_text()
