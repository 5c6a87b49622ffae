"""A corpus is predicted in windows: continued after an interruption, divided into shards, and accounted for."""

import gzip
import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus_lines import LINES, TRANSLATE, VERBS, WORDS, interrupted

import glassformer.cli.corpus as corpus
from glassformer.storage.part_file import PartFile
from own_process import started
from tiny_run import TinyRun, write_lines

Cli = Callable[..., Any]
Refused = Callable[..., str]


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("verb", VERBS)
def test_an_interrupted_output_continues_to_equal_bytes(
    cli: Cli, run_of: Callable[[str], Path], small_windows: None, tmp_path: Path, verb: str, suffix: str
) -> None:
    """Interrupted after each window, and in the middle of one."""
    task, options, lines = VERBS[verb]
    run, file = run_of(task), write_lines(tmp_path / "in", lines)
    assert cli(verb, run, file, "-o", tmp_path / f"whole{suffix}", *options).code == 0
    expected = (tmp_path / f"whole{suffix}").read_bytes()
    output = tmp_path / f"out{suffix}"
    part = output.with_name(f"{output.name}.part")
    for stop in (3, 6, 7):
        assert interrupted(cli, verb, run, output, options, lines[:stop]).code == 2
        complete = stop // 3 * 3
        assert files_of(tmp_path) == ["in", part.name, f"{part.name}.journal", f"whole{suffix}"]
        with part.open("ab") as torn:
            torn.write(b"torn")
        result = cli(verb, run, file, "-o", output, *options)
        assert result.code == 0
        assert f"continuing after {complete} lines in {part}\n" in result.err
        assert output.read_bytes() == expected
        output.unlink()
        assert files_of(tmp_path) == ["in", f"whole{suffix}"]
    plain = cli(verb, run, file, *options).out
    assert (gzip.decompress(expected) if suffix else expected).decode() == plain


def test_score_continues_to_equal_bytes(cli: Cli, tiny: TinyRun, small_windows: None, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "s", LINES)
    target = write_lines(tmp_path / "t", ["le chat", *LINES[1:]])
    assert cli("score", tiny.run, source, target, "--json", "-o", tmp_path / "whole").code == 0
    (tmp_path / "t").write_bytes((tmp_path / "t").read_bytes().replace(b"a bird", b"\xff"))
    lines = (tmp_path / "t").read_bytes()
    assert cli("score", tiny.run, source, "-", "--json", "-o", tmp_path / "out", stdin=lines).code == 2
    assert (tmp_path / "out.part").exists()
    lines = lines.replace(b"\xff", b"a bird")
    assert cli("score", tiny.run, source, "-", "--json", "-o", tmp_path / "out", stdin=lines).code == 0
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()


def test_an_array_continues_to_equal_bytes(
    cli: Cli, run_of: Callable[[str], Path], small_windows: None, tmp_path: Path
) -> None:
    run, file, npy = run_of("masked"), write_lines(tmp_path / "in", LINES), ["--format", "npy"]
    assert cli("embed", run, file, *npy, "-o", tmp_path / "whole.npy").code == 0
    assert interrupted(cli, "embed", run, tmp_path / "v.npy", npy, LINES[:7]).code == 2
    assert cli("embed", run, file, *npy, "-o", tmp_path / "v.npy").code == 0
    assert (tmp_path / "v.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    vectors = np.load(tmp_path / "v.npy", allow_pickle=False)
    np.save(tmp_path / "saved.npy", vectors)
    assert (tmp_path / "saved.npy").read_bytes() == (tmp_path / "v.npy").read_bytes()
    rows = [json.loads(line) for line in cli("embed", run, file).out.splitlines()]
    np.testing.assert_allclose(vectors, rows, atol=1e-6)


@pytest.mark.parametrize("verb", VERBS)
def test_a_prediction_does_not_depend_on_its_window(
    cli: Cli, run_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str
) -> None:
    task, options, lines = VERBS[verb]
    # The last bits of a probability of PyTorch's depend on the batch.
    options = ["--top", 3] if verb == "classify" else options
    run, file, outputs = run_of(task), write_lines(tmp_path / "in", lines), set()
    for size in (1, 4, 2048):
        monkeypatch.setattr(corpus, "WINDOW_LINES", size)
        assert cli(verb, run, file, *options, "-o", tmp_path / "out").code == 0
        outputs.add((tmp_path / "out").read_bytes())
    assert len(outputs) == 1


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("verb", VERBS)
def test_shards_one_after_another_are_the_output(
    cli: Cli, run_of: Callable[[str], Path], small_windows: None, tmp_path: Path, verb: str, suffix: str
) -> None:
    task, options, lines = VERBS[verb]
    run, file = run_of(task), write_lines(tmp_path / "in", lines)
    assert cli(verb, run, file, "-o", tmp_path / f"whole{suffix}", *options).code == 0
    for shards in (1, 2, 3):
        parts = []
        for number in range(1, shards + 1):
            output = tmp_path / f"out.{number}{suffix}"
            assert cli(verb, run, file, "-o", output, "--shard", f"{number}/{shards}", *options).code == 0
            parts.append(output.read_bytes())
        assert b"".join(parts) == (tmp_path / f"whole{suffix}").read_bytes()


def test_more_shards_than_windows_are_the_same_text(
    cli: Cli, tiny: TinyRun, small_windows: None, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "in", LINES[:4])
    whole, parts = cli("translate", tiny.run, file, "--n-best", 1).out, []
    for number in range(1, 6):
        assert cli("translate", tiny.run, file, "-o", tmp_path / "o.gz", "--shard", f"{number}/5").code == 0
        parts.append((tmp_path / "o.gz").read_bytes())
    assert gzip.decompress(b"".join(parts)).decode() == whole


def test_rows_of_a_shard_have_the_numbers_of_the_whole_input(
    cli: Cli, tiny: TinyRun, small_windows: None, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "in", LINES)
    result = cli("translate", tiny.run, file, "-o", tmp_path / "o", "--n-best", 2, "--shard", "2/2")
    numbers = [int(row.partition(" ||| ")[0]) for row in (tmp_path / "o").read_text().splitlines()]
    assert sorted(set(numbers)) == [6, 7, 8, 9]
    result = cli("translate", tiny.run, file, "-o", tmp_path / "o", "--shard", "1/2")
    assert f"{file}, line 6: not in the vocabulary: 'Ж'" in result.err


def test_shards_to_standard_output_and_to_a_file_are_parts_of_one_division(
    cli: Cli, tiny: TinyRun, small_windows: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(corpus, "STREAM_LINES", 2)
    file = write_lines(tmp_path / "in", LINES)
    first = cli("translate", tiny.run, file, *TRANSLATE, "--shard", "1/2").out
    assert cli("translate", tiny.run, file, *TRANSLATE, "--shard", "2/2", "-o", tmp_path / "out").code == 0
    assert first + (tmp_path / "out").read_text() == cli("translate", tiny.run, file, *TRANSLATE).out


# Refusals


def test_a_broken_input_is_refused_before_the_first_prediction(
    refused: Refused, tiny: TinyRun, small_windows: None, tmp_path: Path
) -> None:
    """Its line is far behind the first window."""
    text = "".join(f"{line}\n" for line in LINES).encode()
    (tmp_path / "bytes").write_bytes(text + b"\xff\n")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(text)[:-6])
    told = refused("translate", tiny.run, tmp_path / "bytes", "-o", tmp_path / "out")
    assert told.startswith(f"{tmp_path}/bytes, line 11: not valid UTF-8")
    told = refused("translate", tiny.run, tmp_path / "cut.gz", "-o", tmp_path / "out")
    assert told.endswith("; copy or compress it again")
    assert files_of(tmp_path) == ["bytes", "cut.gz"]


def test_an_empty_input_has_an_empty_output(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    empty = write_lines(tmp_path / "empty", [])
    for name in ("out", "out.gz"):
        assert cli("translate", tiny.run, empty, "-o", tmp_path / name) == (0, "", "")
    assert (tmp_path / "out").read_bytes() == b""
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()) == b""


def test_a_full_disk_leaves_what_is_complete(
    cli: Cli, tiny: TinyRun, small_windows: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, write = write_lines(tmp_path / "in", LINES), PartFile.complete

    def full(part: PartFile, state: dict[str, Any]) -> None:
        if state["lines"] > 6:
            raise OSError(28, os.strerror(28))
        write(part, state)

    with monkeypatch.context() as patch:
        patch.setattr(PartFile, "complete", full)
        result = cli("translate", tiny.run, file, "-o", tmp_path / "out", *TRANSLATE)
    assert result.code == 2
    assert result.err.splitlines()[-2:] == [
        f"6 lines are complete in {tmp_path}/out.part; the same command continues after them",
        f"glassformer: error: {tmp_path}/out: cannot be written (No space left on device); "
        "free some space or name another file",
    ]
    result = cli("translate", tiny.run, file, "-o", tmp_path / "out", *TRANSLATE)
    assert (tmp_path / "out").read_text() == cli("translate", tiny.run, file, *TRANSLATE).out


# Account


def test_the_account_adds_up_over_interruptions(cli: Cli, tiny: TinyRun, small_windows: None, tmp_path: Path) -> None:
    lines = [*LINES, "the cat " * 100]
    file = write_lines(tmp_path / "in", lines)
    interrupted(cli, "translate", tiny.run, tmp_path / "out", [*TRANSLATE, "--json"], lines[:7])
    result = cli("translate", tiny.run, file, "-o", tmp_path / "out", *TRANSLATE, "--json")
    found = [json.loads(line)["translations"][0]["tokens"] for line in (tmp_path / "out").read_text().splitlines()]
    n_tokens = sum(len([token for token in tokens if token != "</s>"]) for tokens in found)
    account = result.err.splitlines()[-1]
    assert account.startswith(
        f"{tmp_path}/out is written: 11 lines: 9 translated, 2 empty; 1 longer than the token limit; "
        "1 with text outside the vocabulary; "
    )
    assert re.search(rf"; 0:\d\d, [\d,]+ lines/s, {n_tokens} tokens, [\d,]+ tokens/s$", account)
    quiet = cli("--quiet", "translate", tiny.run, file, "-o", tmp_path / "out", *TRANSLATE)
    assert all("warning" in line for line in quiet.err.splitlines())


def test_lines_of_several_files_are_numbered_by_file(
    cli: Cli, run_of: Callable[[str], Path], small_windows: None, tmp_path: Path
) -> None:
    run, first, second = run_of("classification"), tmp_path / "a", tmp_path / "b"
    write_lines(first, ["a dog", "a Ж"])
    write_lines(second, ["a cat", "a dog", "a dog", "a Ж"])
    result = cli("classify", run, first, second, "a cat", "-o", tmp_path / "out")
    assert f"{first}, line 2: not in the vocabulary" in result.err
    assert f"{second}, line 4: not in the vocabulary" in result.err
    assert result.err.splitlines()[-1].startswith(f"{tmp_path}/out is written: 7 lines: 7 classified, 0 empty; 2 with")
    assert (tmp_path / "out").read_text() == cli("classify", run, first, second, "a cat").out


def test_texts_that_are_arguments_are_numbered_among_each_other(
    cli: Cli, run_of: Callable[[str], Path], tmp_path: Path
) -> None:
    run, file = run_of("classification"), write_lines(tmp_path / "in", ["a dog"])
    for texts in (["a dog", "a Ж"], ["a dog", file, "a Ж"]):
        assert cli("classify", run, *texts).err.startswith("glassformer: warning: text 2: not in the vocabulary: 'Ж'")
        assert cli("classify", run, *texts[:-1], "").err.startswith("glassformer: error: text 2 is empty")


def test_a_line_from_a_terminal_is_predicted_at_once(run_of: Callable[[str], Path]) -> None:
    """Each line is typed after the output of the one before."""
    main, side = pty.openpty()
    with started("classify", run_of("classification"), stdin=side, stdout=subprocess.PIPE) as process:
        os.close(side)
        assert process.stdout is not None
        try:
            for _ in range(2):
                os.write(main, b"a dog\n")
                assert select.select([process.stdout], [], [], 120)[0]
                assert process.stdout.readline()
            os.write(main, b"\x04")
            assert process.wait(timeout=300) == 0
        finally:
            os.close(main)  # ends a process that still reads


def test_totals_of_a_continued_output_have_their_scope(
    cli: Cli, tiny: TinyRun, small_windows: None, tmp_path: Path
) -> None:
    lines = ["a Ж dog", "the cat", "a Ж", "I", "a Ж", "a Й"]
    file = write_lines(tmp_path / "in", lines)
    interrupted(cli, "translate", tiny.run, tmp_path / "out", TRANSLATE, lines[:4])
    result = cli("translate", tiny.run, file, "-o", tmp_path / "out", *TRANSLATE)
    *_, summary, account = result.err.splitlines()
    assert f"{file}: since the continuation, 2 of 3 lines have text outside the vocabulary, 2 different" in summary
    assert "6 lines: 6 translated, 0 empty; 4 with text outside the vocabulary" in account


def test_an_array_is_reported_once(
    cli: Cli, run_of: Callable[[str], Path], small_windows: None, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "in", WORDS)
    result = cli("embed", run_of("masked"), file, "--format", "npy", "-o", tmp_path / "v.npy")
    (report,) = [line for line in result.err.splitlines() if "is written" in line]
    assert report.startswith(f"{tmp_path}/v.npy is written: 8 vectors of ")
    assert " numbers; 8 lines: 8 embedded, 0 empty" in report


# Signals


def test_ctrl_c_after_the_output_is_complete_does_not_promise_to_continue(
    cli: Cli, tiny: TinyRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replace, output = os.replace, tmp_path / "out"

    def interrupted_replace(source: Path, destination: Path) -> None:
        replace(source, destination)
        if destination == output:
            raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted_replace)
    file = write_lines(tmp_path / "in", ["I"])
    assert cli("translate", tiny.run, file, "-o", output) == (130, "", "")
    assert files_of(tmp_path) == ["in", "out"]


@pytest.mark.parametrize(
    ("kind", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_command_that_is_ended_continues(
    cli: Cli, run_of: Callable[[str], Path], tmp_path: Path, kind: signal.Signals, code: int
) -> None:
    """It waits for more of stdin in its second window when the signal comes."""
    lines = ["a dog"] * (corpus.WINDOW_LINES + 1)
    run, output, journal = run_of("classification"), tmp_path / "out", tmp_path / "out.part.journal"
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started("classify", run, "-o", output, **pipes) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("".join(f"{line}\n" for line in lines))
        process.stdin.flush()
        until = time.monotonic() + 300
        while not (journal.exists() and journal.read_bytes().count(b"\n") == 2) and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(kind)
        assert process.wait(timeout=300) == code
        shown = process.stderr.read()
    if kind != signal.SIGKILL:
        assert shown == f"2,048 lines are complete in {output}.part; the same command continues after them\n"
    file = write_lines(tmp_path / "in", lines)
    result = cli("classify", run, file, "-o", output)
    assert f"continuing after 2,048 lines in {output}.part" in result.err
    assert output.read_text() == cli("classify", run, file).out
    assert files_of(tmp_path) == ["in", "out"]
