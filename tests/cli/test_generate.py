"""The verbs for runs that are not translators: text in, text out, each with its errors."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import glassformer
from glassformer.predict import Forecaster, Generator
from glassformer.storage.run_folder import RunFolder, resolve
from tiny_run import TinyRun, run_to_the_end, write_lines
from tiny_tasks import TinyTask, made

Task = Callable[[str], TinyTask]


@pytest.fixture
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return lambda name: made(tmp_path_factory, name)


def test_generate_goes_on_behind_a_prompt(cli: Callable[..., tuple[int, str, str]], task: Task) -> None:
    run = task("language").run
    generator = Generator.load(run)
    options = {"max_length": 12, "seed": 3, "temperature": 0.7}
    given = ["--max-length", 12, "--seed", 3, "--temperature", 0.7]
    target_values = "the dog" + generator.generate(["the dog"], **options)[0] + "\n"
    assert cli("generate", run, "the dog", *given) == (0, target_values, "")
    lines = cli("generate", run, *given, stdin="the dog\na cat\n")[1]
    assert lines == target_values + "a cat" + generator.generate(["a cat"], **options)[0] + "\n"
    several = cli("generate", run, "the", "--beam-size", 3, "--n-best", 2, "-s", "max_length=5")[1].splitlines()
    assert [line.split(" ||| ")[0] for line in several] == ["0", "0"]
    assert several[0].startswith("0 ||| the")
    told = json.loads(cli("generate", run, "the", "--json", *given)[1])
    assert told["prompt"] == "the"
    assert len(told["continuations"][0]["tokens"]) <= 12
    (one,) = told["continuations"]
    assert len(one["tokens"]) == len(one["token_log_probs"])
    assert (one["tokens"][-1] == "</s>") is (one["finish_reason"] == "end")


def test_generate_refuses_what_it_cannot_read(refused: Callable[..., str], task: Task) -> None:
    run = task("language").run
    told = refused("generate", run, "the dog runs. the dog sleeps.", "--no-truncate", "-o", "/nowhere/x")
    assert told.startswith("/nowhere/x: cannot be written")
    told = refused("generate", run, "--json", "--no-truncate", stdin="the dog runs. the dog sleeps.")
    assert told.startswith("standard input, line 1: has 29 tokens, and the model sees 16")
    told = refused("generate", run, "the dog runs. the dog sleeps.", "--no-truncate")
    assert told.startswith("prompt 1 has 29 tokens, and the model sees 16")
    told = refused("generate", run, "the", "-s", "top_p")
    assert "'top_p' has no '='; write for example decoding.beam_size=8" in told


def test_fill(cli: Callable[..., tuple[int, str, str]], refused: Callable[..., str], task: Task) -> None:
    run = task("masked").run
    code, out, _ = cli("fill", run, "the [MASK] runs.", "--top", 2)
    assert code == 0
    assert out.startswith("the ")
    assert len(out.splitlines()) == 3
    told = json.loads(cli("fill", run, "--json", stdin="the [MASK] runs.\n")[1])
    assert len(told["blanks"][0]) == 5
    assert told["source"] == "the [MASK] runs."
    assert refused("fill", run, "the dog").startswith("text 1 has no [MASK]; write one")


def test_fill_shows_the_text_as_it_was_given(cli: Callable[..., tuple[int, str, str]], task: Task) -> None:
    """Also what the vocabulary does not know."""
    run = task("masked").run
    told = json.loads(cli("fill", run, "Ω  [MASK] ☃ runs, [MASK]!", "--json")[1])
    first, second = (blank[0]["text"] for blank in told["blanks"])
    assert told["text"] == f"Ω  {first} ☃ runs, {second}!"
    shown = cli("fill", run, "Ω  [MASK] ☃ runs, [MASK]!", "--top", 1)[1].splitlines()
    assert shown[0] == told["text"]
    assert len(shown) == 3


def test_embed(cli: Callable[..., tuple[int, str, str]], task: Task, tmp_path: Path) -> None:
    run, file = task("classification").run, write_lines(tmp_path / "t.txt", ["the dog", "a cat sings"])
    rows = [json.loads(line) for line in cli("embed", run, file, "--pooling", "cls")[1].splitlines()]
    code, out, err = cli(
        "embed", run, "--pooling", "cls", "--format", "npy", "-o", tmp_path / "v.npy", stdin="the dog\na cat sings\n"
    )
    assert (code, out) == (0, "")
    assert "2 vectors of 16 numbers" in err
    np.testing.assert_allclose(np.load(tmp_path / "v.npy", allow_pickle=False), rows, atol=1e-5)
    lines = cli("embed", run, file, "--pooling", "max", "--normalize")[1].splitlines()
    expected = glassformer.load(run).embed(["the dog", "a cat sings"], pooling="max", normalize=True)
    np.testing.assert_allclose([json.loads(line) for line in lines], expected, atol=1e-5)
    assert cli("embed", run, file, "--no-normalize")[1] == cli("embed", run, file, "--pooling", "mean")[1]


def test_classify(cli: Callable[..., tuple[int, str, str]], task: Task, tmp_path: Path) -> None:
    run = task("classification").run
    file = write_lines(tmp_path / "t.txt", ["the dog runs.", "the bird sings."])
    labels = [one.label for one in glassformer.load(run).classify(["the dog runs.", "the bird sings."])]
    assert [line.split()[0] for line in cli("classify", run, file)[1].splitlines()] == labels
    assert cli("classify", run, "the dog runs.", "--top", 2)[1].count(" ") == 4
    assert json.loads(cli("classify", run, "--json", stdin="the dog runs.\n")[1])["label"] == labels[0]
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.full((8, 8), 240, np.uint8)).save(tmp_path / "p.png")
    assert cli("classify", task("images").run, tmp_path / "p.png")[1].startswith(f"{tmp_path / 'p.png'}\tlight 0.")


def test_tag(cli: Callable[..., tuple[int, str, str]], task: Task) -> None:
    run = task("tagging").run
    tags = glassformer.load(run).tag(["the dog runs"])[0]
    out = cli("tag", run, stdin="the dog runs\n\ncat\n")[1].splitlines()
    assert out[:4] == [*(f"{word}\t{tag}" for word, tag in zip(["the", "dog", "runs"], tags, strict=True)), ""]
    assert out[4] == ""
    assert out[5].startswith("cat\t")
    assert json.loads(cli("tag", run, "--json", stdin="the dog runs")[1])["tags"] == tags


def test_forecast(cli: Callable[..., tuple[int, str, str]], refused: Callable[..., str], task: Task) -> None:
    tiny = task("forecasting")
    path = tiny.folder / "series.csv"
    out = cli("forecast", tiny.run, path)[1]
    assert out.splitlines()[:1] == ["date,low,high"]
    assert out.splitlines()[1].startswith("2024-03-03 00:00,")
    assert cli("forecast", tiny.run, stdin=path.read_bytes())[1] == out
    values = Forecaster.load(tiny.run).forecast_file(str(path)).values
    np.testing.assert_allclose([float(line.split(",")[2]) for line in out.splitlines()[1:]], values[:, 1], rtol=1e-6)
    assert "rows, but the model reads context=24" in refused("forecast", tiny.run, stdin="date,low,high\n2024,1,2\n")


def test_evaluate_by_task(cli: Callable[..., tuple[int, str, str]], task: Task, tmp_path: Path) -> None:
    language = task("language")
    text = write_lines(tmp_path / "t.txt", ["the dog runs.", "the cat sings."])
    scores = json.loads(cli("evaluate", language.run, text, "--json")[1])
    generator = Generator.load(language.run)
    found = generator.likelihood(generator.tokenizer.encode(Path(text).read_text()))
    assert scores["perplexity"] == pytest.approx(found.perplexity)
    assert scores["tokens"] == found.tokens
    closer = json.loads(cli("evaluate", language.run, text, "--stride", 1, "--json")[1])
    assert closer["bits_per_byte"] == closer["bits_per_character"] != scores["bits_per_byte"]
    for name, file in {"classification": "train.tsv", "tagging": "train.conll", "images": "train.npz"}.items():
        tiny = task(name)
        told = cli("evaluate", tiny.run, tiny.folder / file)[1]
        assert told.startswith("accuracy")
        assert "macro F1" in told
    assert json.loads(cli("evaluate", task("forecasting").run, "--json")[1])["windows"] == 19
    series = task("forecasting").folder / "series.csv"
    assert json.loads(cli("evaluate", task("forecasting").run, series, "--json")[1])["windows"] == 120 - 29


@pytest.mark.parametrize("name", ["classification", "tagging", "images"])
def test_evaluate_measures_on_the_test_of_the_run(
    cli: Callable[..., tuple[int, str, str]], task: Task, tmp_path: Path, name: str
) -> None:
    tiny, run = task(name), tmp_path / "run"
    shutil.copytree(tiny.run, run)
    test = tiny.values["data"]["train"]
    text = (run / "config.toml").read_text(encoding="utf-8")
    (run / "config.toml").write_text(text.replace("test = []", f"test = {json.dumps(test)}"), encoding="utf-8")
    assert cli("evaluate", run)[1] == cli("evaluate", run, *test)[1]


def test_evaluate_refuses_what_does_not_go_with_the_task(
    refused: Callable[..., str], task: Task, tiny: TinyRun, tmp_path: Path
) -> None:
    assert "--baseline, --metrics, --tokenize, --comet and settings are for translators" in refused(
        "evaluate", task("language").run, "x.txt", "--tokenize", "13a"
    )
    assert "--stride is for language models" in refused("evaluate", task("tagging").run, "x", "--stride", 2)
    assert refused("evaluate", task("tagging").run).startswith("no file is named; give one like those")
    source = tiny.folder / "validation.en"
    assert refused("evaluate", tiny.run, source).startswith("1 file is given; give a source and a reference file")
    empty = write_lines(tmp_path / "empty", [])
    assert refused("evaluate", task("tagging").run, empty) == f"{empty}: contains no tagged word; provide at least one"


def test_a_fault_is_told_by_its_line_however_far_down_it_is(
    cli: Callable[..., tuple[int, str, str]], refused: Callable[..., str], task: Task, tmp_path: Path
) -> None:
    """Texts are read in parts, of 512 or 64."""
    run, texts = task("classification").run, write_lines(tmp_path / "texts", ["the dog"] * 520 + [""])
    assert refused("classify", run, texts, "-o", tmp_path / "x").startswith(f"{texts}, line 521: is empty; give words")
    masks = "the [MASK] runs.\n" * 515 + "the dog\n"
    told = refused("fill", task("masked").run, "-o", tmp_path / "x", stdin=masks)
    assert told.startswith("standard input, line 516: has no [MASK]; write one")
    words = write_lines(tmp_path / "words", ["cat"] * 513 + ["a" * 60])
    told = refused("tag", task("tagging").run, words, "-o", tmp_path / "x")
    assert told.startswith(f"{words}, line 514: has the word 'aaa")
    prompts = "the\n" * 65 + "the dog runs. the dog sleeps.\n"
    err = cli("generate", task("language").run, "--max-length", 1, "-o", tmp_path / "out", stdin=prompts * 2)[2]
    lines = [line.partition(": has ")[0] for line in err.splitlines()]
    assert lines == [f"glassformer: warning: standard input, line {number}" for number in (66, 132)]
    assert not (tmp_path / "x").exists()


def test_a_file_that_is_not_there_is_not_read_as_a_text(refused: Callable[..., str], task: Task) -> None:
    run, words = task("classification").run, "the dog runs"
    assert refused("classify", run, "texts.txt").startswith("texts.txt: no such file; name one that exists, or give")
    for verb, name in (("tag", "tagging"), ("embed", "masked")):
        told = refused(verb, task(name).run, words)
        assert told.startswith(f"'{words}': no such file; send a text through standard input: echo")
    told = refused("tag", task("tagging").run, "precision=int8")
    assert told == "'precision=int8': no such file; commands with settings take decoding.KEY=VALUE"


def test_pictures_that_are_not_there(refused: Callable[..., str], task: Task, tmp_path: Path) -> None:
    run = task("images").run
    assert refused("classify", run, tmp_path / "p.png").startswith(f"{tmp_path}/p.png: no such file; name a PNG or")
    assert refused("classify", run, tmp_path).startswith(f"{tmp_path}: is a folder; name the pictures in it")
    assert refused("classify", run, stdin="\n").startswith("standard input, line 1: has no name; give the path")


@pytest.mark.parametrize("piped", [True, False])
def test_forecast_limits_the_lines_of_a_file_as_of_a_pipe(
    refused: Callable[..., str], task: Task, tmp_path: Path, piped: bool
) -> None:
    path, table = tmp_path / "table.csv", "date,low,high\n2024-01-01,1,2\n"
    path.write_text(table)
    line = refused("forecast", task("forecasting").run, "-" if piped else path, "--max-line-bytes", 13, stdin=table)
    shown = "standard input" if piped else path
    assert line == f"{shown}, line 2: has more than 13 bytes; break the line, or raise --max-line-bytes"


def test_a_forecast_names_its_own_options(refused: Callable[..., str], task: Task) -> None:
    run, start = task("forecasting").run, "date,low,high\n2024-01-01,1,2\n"
    told = refused("forecast", run, stdin=f"{start}2024-01-02,,3\n")
    assert told == "standard input, line 3, column low: '' is not a number; fill it in, or give --missing previous"
    assert refused("forecast", run, stdin="").startswith("standard input: is empty;")
    told = refused("forecast", run, stdin="date,low\n2024-01-01,1\n")
    assert told == "standard input: has no column 'high' (known: date, low); add or rename it"
    told = refused("forecast", run, "--date", "day", stdin=start)
    assert told.endswith("'day' (did you mean date?); correct --date, or give --date '' where there is none")


def test_an_array_of_vectors_is_whole_or_not_there(refused: Callable[..., str], task: Task, tmp_path: Path) -> None:
    (tmp_path / "v.npy").write_text("before")
    lines = b"the dog\n" * 600 + b"\xff\n"
    assert "line 601: not valid" in refused(
        "embed", task("masked").run, "--format", "npy", "-o", tmp_path / "v.npy", stdin=lines
    )
    assert [file.name for file in tmp_path.iterdir()] == ["v.npy"]
    assert (tmp_path / "v.npy").read_text() == "before"
    told = refused("embed", task("masked").run, "--format", "npy", "-o", tmp_path / "none" / "v.npy", stdin="the dog")
    assert "there is no folder" in told


def test_a_masked_model_without_its_run_is_measured_within_its_length(
    cli: Callable[..., tuple[int, str, str]], task: Task, tmp_path: Path
) -> None:
    """A document is cut to what the model sees, not to the default of a configuration that is not there."""
    alone = shutil.copytree(resolve(task("masked").run), tmp_path / "alone")
    (tmp_path / "long.txt").write_text("the dog runs. " * 60, encoding="utf-8")
    code, out, err = cli("evaluate", alone, tmp_path / "long.txt")
    assert (code, err) == (0, "")
    assert out.startswith("nll")


def test_tokenize_says_which_runs_read_text(refused: Callable[..., str], task: Task) -> None:
    told = refused("tokenize", task("images").run, stdin="the dog")
    assert "is a run of task=images, but this is for translation or language" in told
    assert "use glassformer cla" in told


@pytest.mark.parametrize(("name", "file"), [("masked", "text.txt"), ("classification", "train.tsv")])
def test_evaluate_on_the_validation_text_is_the_validation(
    cli: Callable[..., tuple[int, str, str]], task: Task, name: str, file: str
) -> None:
    tiny = task(name)
    best = RunFolder.open(tiny.run).best()
    assert best is not None
    scores = json.loads(cli("evaluate", tiny.run, tiny.folder / file, "--json")[1])
    target_values = -best.value if best.metric == "loss" else best.value
    assert scores["nll" if best.metric == "loss" else best.metric] == pytest.approx(target_values, rel=1e-5)


@pytest.mark.parametrize("name", ["language", "masked", "classification", "tagging", "images", "forecasting"])
def test_info(cli: Callable[..., tuple[int, str, str]], task: Task, name: str) -> None:
    tiny = task(name)
    told = json.loads(cli("info", tiny.run, "--json")[1])
    assert told["task"] == name
    assert told["parameters"]["total"] == sum(p.numel() for p in glassformer.load(tiny.run).model.parameters())
    assert f"task {name}\n" in cli("info", tiny.run)[1]


def test_info_prints_the_engines_that_trained_the_run(
    cli: Callable[..., tuple[int, str, str]], tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where training it now would take other engines."""
    run_to_the_end(tiny.config({"train.engine": "torch", "train.max_steps": 1}), tmp_path / "run")
    monkeypatch.setattr("glassformer.native.route", lambda *_: [])
    lines = cli("info", tmp_path / "run")[1].splitlines()
    assert "update (engine=torch)" in lines[lines.index("engine in training") + 1]


@pytest.mark.parametrize(
    ("verb", "name", "rest", "fits"),
    [
        (["translate"], "language", ["-"], "generate"),
        (["score"], "masked", ["a", "b"], "fill"),
        (["align"], "tagging", ["a", "b"], "tag"),
        (["generate"], "forecasting", ["a"], "forecast"),
        (["classify"], "language", ["a"], "generate"),
        (["embed"], "images", [], "classify"),
    ],
)
def test_a_verb_on_a_run_of_another_task(
    refused: Callable[..., str], task: Task, verb: list[str], name: str, rest: list[str], fits: str
) -> None:
    told = refused(*verb, task(name).run, *rest)
    assert f"is a run of task={name}, but this is for " in told
    assert told.endswith(f"; use glassformer {fits}")


def test_a_new_verb_on_a_translator(refused: Callable[..., str], tiny: TinyRun) -> None:
    assert refused("generate", tiny.run, "a").endswith(
        "task=translation, but this is for language; use glassformer translate"
    )
