"""Pages without a browser: bad addresses, bad texts, limits, and what a run is not."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from explain.page_reader import Reader
from glassformer.errors import CheckpointError
from glassformer.storage.run_folder import resolve
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun

FORCED = "?source=the+old+cat+sleeps&target=le+vieux+chat+dort&mode=forced"


@pytest.fixture(scope="module")
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings(max_tokens=40))


@pytest.mark.parametrize(
    ("query", "note", "instead"),
    [
        ("&part=decoder&layer=9", "layer 9 is outside 0 to 1", "decoder layer 1"),
        ("&part=nowhere&layer=1", "no part 'nowhere'", "model"),
        ("&part=decoder&layer=1&sublayer=nothing", "no sub-layer 'nothing'", "decoder layer 1"),
        ("&part=source_embedding&layer=2", "no layers", "source embedding"),
        ("&part=decoder&layer=1&sublayer=cross_attention&head=7", "head 7 is outside 0 to 1", "head 1"),
        ("&part=decoder&stage=nothing", "no tensor 'decoder.nothing'", "decoder"),
        ("&part=decoder&layer=1&sublayer=cross_attention&head=0&stage=weights&row=77&column=99", "query 77", "["),
        ("&step=99", "step 99 is outside", "model"),
        ("&checkpoint=step_00000130", "no checkpoint 'step_00000130'", "model"),
        ("&layer=1", "Name a part: encoder or decoder.", "model"),
        ("&sublayer=self_attention", "Name a part: encoder or decoder.", "model"),
        ("&part=decoder&sublayer=layers", "no sub-layer 'layers' here; this is the part", "decoder"),
        ("&part=decoder&sublayer=layers.1.cross_attention", "no sub-layer 'layers.1.cross_attention'", "decoder"),
        ("&checkpoint=step_²", "no checkpoint 'step_²'", "model"),
        ("&checkpoint=step_" + "9" * 5000, "no checkpoint 'step_999", "model"),
        ("&layer=x", "layer='x' cannot be read", "model"),
    ],
)
def test_address_of_nothing_gives_the_nearest_view_with_a_note(
    session: Session, query: str, note: str, instead: str
) -> None:
    page = render_page(session, FORCED + query)
    read = Reader(page.html)
    assert page.status == 200
    assert note in read.text
    crumbs = page.html[page.html.index('class="crumbs"') :]
    current = crumbs[crumbs.index('aria-current="page">') :].partition("</span>")[0]
    assert instead in current


def test_nearest_checkpoint_is_chosen(session: Session) -> None:
    html = render_page(session, FORCED + "&checkpoint=step_00000130").html
    assert '<option value="step_00000120" selected>' in html


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("?source=" + "x" * 5000, "5,000 characters"),
        ("?source=" + "cat+" * 60, "tokens; this page shows at most 40"),
        (FORCED.replace("le+vieux", "chat+" * 60), "tokens; this page shows at most 40"),
    ],
)
def test_long_text_is_refused_with_the_limit(session: Session, query: str, error: str) -> None:
    page = render_page(session, query)
    assert page.status == 422
    assert error in Reader(page.html).text
    assert 'name="source"' in page.html


def test_source_that_would_be_translated_in_pieces_is_refused(tiny: TinyRun) -> None:
    session = Session(tiny.run, WebSettings(max_tokens=100_000))
    words, known = "cat " * 300, tiny.translator.tokenizers.source
    tokens = len(known.encode(words))
    page = render_page(session, f"?source={words.replace(' ', '+')}")
    assert tiny.translator.too_long([words])
    assert page.status == 422
    found = re.search(r"The text has ([\d,]+) tokens; this page shows at most (\d+)", Reader(page.html).text)
    assert found is not None
    assert int(found[1]) == tokens
    start = "cat " * (int(found[2]) * 300 // tokens - 1)
    longest = next(one for n in range(4) if len(known.encode(one := start + "the " * n)) == int(found[2]))
    assert not tiny.translator.too_long([longest])
    assert tiny.translator.too_long([longest + "the"])
    assert render_page(session, f"?source={longest.replace(' ', '+')}&target=le+chat&mode=forced").status == 200


@pytest.mark.parametrize("query", ["?source=+++", "?source=", "?source=the+cat&source="])
def test_empty_sentence_shows_an_example(session: Session, query: str) -> None:
    page = render_page(session, query)
    assert page.status == 200
    assert "The sentence was empty" in page.html


def test_unknown_word_is_a_note_and_no_warning(session: Session, recwarn: pytest.WarningsRecorder) -> None:
    html = render_page(session, "?source=the+\u732b+sleeps").html
    notes = html[html.index('data-slot="notes"') :].partition("</div>")[0]
    assert "not in the vocabulary" in notes
    assert len(recwarn) == 0


def test_every_recorded_tensor_has_a_page(session: Session) -> None:
    from glassformer.web.explorer.places import select, tensor_of
    from glassformer.web.explorer.selection import Selection, parse_address

    selection, _ = parse_address(FORCED)
    example = session.examine(selection, []).example
    for name in example.trace:
        moved = select(selection, example, name)
        assert tensor_of(moved) == name
        page = render_page(session, moved.address)
        Reader(page.html)
        assert page.status == 200
        assert "no tensor" not in page.html, name
        assert "✗" not in page.html, name
        assert isinstance(moved, Selection)


def test_new_checkpoint_appears_in_the_menu(tiny: TinyRun, tmp_path: Path) -> None:
    shutil.copytree(tiny.run, tmp_path / "run")
    session = Session(tmp_path / "run", WebSettings())
    before = [one.name for one in session.checkpoints()]
    newest = tmp_path / "run" / "checkpoints" / before[-1]
    shutil.copytree(newest, newest.with_name("step_00000999"))
    assert [one.name for one in session.checkpoints()] == [*before, "step_00000999"]


def test_half_written_checkpoint_is_not_in_the_menu(tiny: TinyRun, tmp_path: Path) -> None:
    shutil.copytree(tiny.run, tmp_path / "run")
    session = Session(tmp_path / "run", WebSettings())
    before = [one.name for one in session.checkpoints()]
    shutil.copytree(tmp_path / "run" / "checkpoints" / before[-1], tmp_path / "run" / "checkpoints" / "step_00000999")
    (tmp_path / "run" / "checkpoints" / "step_00000999" / "manifest.json").unlink()
    assert [one.name for one in session.checkpoints()] == before


def test_checkpoint_that_is_replaced_in_place_is_loaded_anew(tiny: TinyRun, tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoints"
    shutil.copytree(tiny.run, tmp_path / "run")
    session = Session(tmp_path / "run", WebSettings())
    first, *_, last = [one.name for one in session.checkpoints()]
    old, new = (render_page(session, f"{FORCED}&checkpoint={name}").html for name in (last, first))
    assert old.count("data-probability") and old != new
    shutil.rmtree(folder / last)
    shutil.copytree(folder / first, folder / last)
    html = render_page(session, f"{FORCED}&checkpoint={last}").html
    pattern = 'data-probability="([^"]+)"'
    assert re.findall(pattern, html) == re.findall(pattern, new) != re.findall(pattern, old)


def test_checkpoint_folder_of_any_name_is_explored(tiny: TinyRun, tmp_path: Path) -> None:
    shutil.copytree(resolve(tiny.run), tmp_path / "chosen")
    page = render_page(Session(tmp_path / "chosen", WebSettings()), FORCED + "&checkpoint=step_3")
    assert page.status == 200
    assert "this is chosen" in Reader(page.html).text


def test_deleted_run_is_a_message(tiny: TinyRun, tmp_path: Path) -> None:
    shutil.copytree(tiny.run, tmp_path / "run")
    session = Session(tmp_path / "run", WebSettings())
    assert render_page(session, FORCED).status == 200
    shutil.rmtree(tmp_path / "run")
    page = render_page(session, FORCED)
    assert page.status == 422
    assert "there is no such run" in Reader(page.html).text


def test_run_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="neither a run nor a checkpoint"):
        Session(tmp_path, WebSettings()).checkpoints()


def test_traces_in_memory_are_bounded(tiny: TinyRun) -> None:
    session = Session(tiny.run, WebSettings(max_traces=3))
    for number in range(5):
        render_page(session, f"?source=the+cat&target={'chat+' * number}le&mode=forced")
    assert len(session._traces) == 3
    small = Session(tiny.run, WebSettings(max_trace_bytes=1))
    for text in ("the+cat", "the+dog"):
        assert render_page(small, f"?source={text}").status == 200
    assert len(small._traces) == 1


def test_exploring_writes_nothing(tiny: TinyRun) -> None:
    def contents() -> dict[str, tuple[int, int]]:
        files = [path for path in tiny.run.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}

    before = contents()
    session = Session(tiny.run, WebSettings())
    for query in ("", FORCED, FORCED + "&part=decoder&layer=1"):
        render_page(session, query)
    assert contents() == before


def test_scripts_pass_the_type_checker() -> None:
    """Types are in JSDoc comments; ``make check`` runs the same, and installs TypeScript."""
    script = Path(__file__).parents[2] / ".ci" / "types"
    if not (script.parents[1] / ".typescript").is_dir() or shutil.which("node") is None:
        pytest.skip("TypeScript is not installed: make check")
    done = subprocess.run([script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
