"""What each verb prints."""

import io
import json
import math
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassformer.metrics import bleu, chrf
from glassformer.storage.checkpoint import average, fingerprint, load_checkpoint
from glassformer.storage.run_folder import RunFolder, resolve
from tiny_run import TinyRun, run_to_the_end, state_of, write_lines

Cli = Callable[..., Any]
LINES = ["the old cat sleeps", "", "she sees a tree", "  ", "I love you"]


# train


def test_training_tells_what_it_read_and_did(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    config = tiny.write_config(tmp_path / "tiny.toml")
    overrides = ["train.max_steps=3", "train.log_every=2", "validation.metric=loss", "decoding.max_extra=2"]
    result = cli("train", config, *overrides, "--run", tmp_path / "run")
    assert (result.code, result.out) == (0, "")
    told = result.err.splitlines()
    assert told[0] == f"run: {tmp_path}/run"
    assert told[1] == f"{tiny.folder}/train: 300 read, 300 kept"
    assert re.fullmatch(r"unknown tokens: source 0 of [\d,]+ \(0\.00%\), target 0 of [\d,]+ \(0\.00%\)", told[2])
    assert told[3] == "validation: BLEU by sacreBLEU's tokenizer 13a (validation.tokenize=auto)"
    assert re.fullmatch(r"[\d,]+ parameters; \d+ batches an epoch, \d+\.\d% padding; step 0 of 3", told[4])
    assert re.fullmatch(r"engine: (native|torch).*source_embedding.*", told[5])
    assert re.fullmatch(r"step 2/3  epoch 1  loss \d\.\d{4}  nll .* target tokens/s  0:0\d gone, 0:0\d left", told[6])
    assert told[7].startswith("step 3/3  epoch 1")
    assert re.fullmatch(r"step 3  validation: BLEU .*  chrF2 .*  perplexity .*  best so far", told[8])
    assert re.fullmatch(r"step 3: train\.max_steps=3 is reached; 0:0\d of training", told[9])
    assert len(told) == 10
    one = ["data.batch_tokens=100000", "train.max_steps=1"]
    assert "; 1 batch an epoch, " in cli("train", config, *overrides, *one, "--run", tmp_path / "one").err
    again = cli("train", config, *overrides, "--run", tmp_path / "run", "--resume")
    assert "nothing is left to do" in again.err.splitlines()[-1]


def test_the_run_is_named_by_its_configuration(
    cli: Cli, tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny.write_config(tmp_path / "small.toml", {"data.validation": []})
    assert cli("train", "small.toml", "train.max_steps=1").code == 0
    assert state_of(tmp_path / "runs" / "small")["checkpoints"] == ["step_00000001"]


def test_a_line_of_a_million_characters_is_accounted_for(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    for language in ("en", "fr"):
        text = (tiny.folder / f"train.{language}").read_text()
        (tmp_path / f"long.{language}").write_text(text + "a" * 1_000_000 + "\n" + "b c " * 250_000 + "\n")
    config = tiny.write_config(tmp_path / "long.toml", {"data.train": [str(tmp_path / "long")], "data.validation": []})
    result = cli("train", config, "train.max_steps=1", "--run", tmp_path / "run")
    assert result.code == 0
    assert f"{tmp_path}/long: 302 read, 300 kept, too_long 2 (line 301, 302)" in result.err.splitlines()


# translate


def test_a_line_in_is_a_line_out(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    """The same through stdin, named or not, and through files; an empty line stays empty."""
    expected = tiny.translator.translate(LINES)
    assert expected[1] == expected[3] == ""
    text = "".join(f"{line}\n" for line in LINES)
    result = cli("translate", tiny.run, stdin=text)
    assert (result.code, result.err) == (0, "")
    assert result.out.split("\n") == [*expected, ""]
    assert cli("translate", tiny.run, "-", stdin=text).out == result.out
    file = write_lines(tmp_path / "in.en", LINES)
    assert cli("translate", tiny.run, file, "-o", tmp_path / "out.fr") == (0, "", "")
    assert (tmp_path / "out.fr").read_bytes() == result.out.encode()
    assert sorted(item.name for item in tmp_path.iterdir()) == ["in.en", "out.fr"]
    assert cli("translate", tiny.run, stdin="").out == ""


def test_text_is_utf_8_whatever_the_locale(cli: Cli, tiny: TinyRun, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert cli("tokenize", tiny.run, "--target", stdin="été\r\n").code == 0
    assert raw.getvalue().decode("utf-8").replace(" ", "").replace("</w>", "") == "été\n"


def test_n_best_rows_carry_line_number_and_score(cli: Cli, tiny: TinyRun) -> None:
    """Every row has the three columns, those of an empty line too."""
    expected = tiny.translator.hypotheses(LINES[:2], n_best=3)
    rows = cli("translate", tiny.run, "--n-best", "3", stdin="".join(f"{line}\n" for line in LINES[:2])).out
    assert rows.splitlines() == [
        *(f"0 ||| {one.text} ||| {one.score:.4f}" for one in expected[0]),
        "1 |||  ||| 0.0000",
    ]
    assert len(expected[0]) == 3
    sampled = cli("translate", tiny.run, "--sample", "--n-best", "2", "--seed", "3", stdin="I love you\n").out
    assert (
        sampled
        == cli("translate", tiny.run, "-s", "sample=true", "-s", "n_best=2", "-s", "seed=3", stdin="I love you\n").out
    )
    assert sampled != cli("translate", tiny.run, "--sample", "--n-best", "2", "--seed", "4", stdin="I love you\n").out


def test_json_holds_every_token_and_its_probability(cli: Cli, tiny: TinyRun) -> None:
    out = cli("translate", tiny.run, "--json", "--alignments", "--n-best", "2", stdin="\n".join(LINES)).out
    found = [json.loads(line) for line in out.splitlines()]
    assert [one["source"] for one in found] == LINES
    assert [len(one["translations"]) for one in found] == [2, 1, 2, 1, 2]
    vocabulary = tiny.translator.tokenizers.target
    for line, expected in zip(found, tiny.translator.hypotheses(LINES, n_best=2), strict=True):
        for one, hypothesis in zip(line["translations"], expected, strict=True):
            assert one["text"] == hypothesis.text
            assert one["log_prob"] == pytest.approx(sum(one["token_log_probs"]), abs=1e-5)
            assert one["score"] == hypothesis.score
            assert len(one["token_log_probs"]) == len(one["tokens"])
            assert one["finish_reason"] == "end"
            if line["source"].strip():
                assert one["tokens"] == [*vocabulary.tokens(hypothesis.hypothesis.tokens), "</s>"]
            assert len(one["alignment"].split()) == len(one["text"].split())


def test_translate_json_of_a_cut_text_has_no_end_token(cli: Cli, tiny: TinyRun) -> None:
    for search in (["--beam-size", 1], ["--sample"]):
        out = cli("translate", tiny.run, "--json", "-s", "max_length=2", *search, stdin=f"{LINES[2]}\n").out
        (one,) = json.loads(out)["translations"]
        assert one["finish_reason"] == "length"
        assert len(one["tokens"]) == 2 == len(one["token_log_probs"])
        assert "</s>" not in one["tokens"]
        assert one["log_prob"] == pytest.approx(sum(one["token_log_probs"]), abs=1e-6)


def test_alignments_follow_the_text(cli: Cli, tiny: TinyRun) -> None:
    text, links = cli("translate", tiny.run, "--alignments", stdin=f"{LINES[0]}\n").out.rstrip("\n").split(" ||| ")
    assert text == tiny.translator.translate(LINES[:1])[0]
    assert links == " ".join(f"{s}-{t}" for s, t in tiny.translator.align(LINES[0], text))


def read_again(tiny: TinyRun) -> list[str]:
    """Lines whose translations have the same tokens when they are read again."""
    lines = [*LINES, *(tiny.folder / "train.en").read_text(encoding="utf-8").splitlines()[:60]]
    translator, kept = tiny.translator, []
    for line, found in zip(lines, translator.hypotheses(lines), strict=True):
        if found[0].text and translator.tokenizers.target.encode(found[0].text) == found[0].hypothesis.tokens:
            kept.append(line)
    return kept


def test_the_attention_of_a_translation_sums_to_one(cli: Cli, tiny: TinyRun) -> None:
    found = json.loads(cli("translate", tiny.run, "--json", "--attention", stdin=f"{read_again(tiny)[0]}\n").out)
    best = found["translations"][0]
    seen = best["cross_attention"]
    assert seen["target"] == best["tokens"]
    assert seen["source"][-1] == "</s>"
    rows = [row for layer in seen["weights"] for head in layer for row in head]
    assert len(rows) == 2 * 2 * len(seen["target"])
    assert all(len(row) == len(seen["source"]) and sum(row) == pytest.approx(1, abs=1e-3) for row in rows)
    assert cli("translate", tiny.run, "--attention", stdin="").code == 2


def test_prefixes_begin_the_translations(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    starts = write_lines(tmp_path / "starts", ["le chat", "", "un"])
    out = cli("translate", tiny.run, "--prefix", starts, stdin="the cat\nshe sleeps\na dog\n").out.splitlines()
    assert out[0].startswith("le chat")
    assert out[2].startswith("un")
    assert out[1] == tiny.translator.translate(["she sleeps"])[0]


def test_an_ensemble_of_one_model_twice_is_the_model(cli: Cli, tiny: TinyRun) -> None:
    text = "".join(f"{line}\n" for line in LINES)
    assert (
        cli("translate", tiny.run, "--ensemble", tiny.run, stdin=text).out == cli("translate", tiny.run, stdin=text).out
    )


def test_translate_reads_long_lines_at_once_up_to_max_source(cli: Cli, tiny: TinyRun) -> None:
    """Sinusoidal positions go on for ever. The tail decides too, so nothing was cut off."""
    text = "the cat " * 400 + "sleeps"
    options = ("-s", "max_length=3", "--max-source", 2000, "--json")
    result = cli("translate", tiny.run, *options, stdin=f"she sleeps\n{text}\n")
    assert result.code == 0
    assert result.err == ""
    other = cli("translate", tiny.run, *options, stdin=f"{text} you\n").out
    found = json.loads(result.out.splitlines()[1])["translations"][0]
    assert found["log_prob"] != json.loads(other)["translations"][0]["log_prob"]


# score, evaluate, average, info, tokenize


def test_the_score_of_a_translation_is_its_log_probability(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "source", read_again(tiny)[:2])
    found = [json.loads(line) for line in cli("translate", tiny.run, source, "--json").out.splitlines()]
    best = [one["translations"][0] for one in found]
    target = write_lines(tmp_path / "target", [one["text"] for one in best])
    for one, line in zip(best, cli("score", tiny.run, source, target, "--json").out.splitlines(), strict=True):
        scored = json.loads(line)
        assert scored["tokens"] == one["tokens"]
        assert scored["log_prob"] == pytest.approx(one["log_prob"], abs=1e-4)
        assert scored["token_log_probs"] == pytest.approx(one["token_log_probs"], abs=1e-4)
        assert scored["score"] == pytest.approx(one["score"], abs=1e-4)
    assert cli("score", tiny.run, source, target, "-o", tmp_path / "scores").out == ""
    lines = (tmp_path / "scores").read_text().splitlines()
    assert [float(line) for line in lines] == pytest.approx([one["log_prob"] for one in best], abs=1e-3)


def test_scored_tokens_are_told_as_they_are_written(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    source, target = (write_lines(tmp_path / name, [text]) for name, text in (("s", "the cat"), ("t", "été")))
    out = cli("score", tiny.run, source, target, "--json").out
    assert "\\u" not in out
    assert len(out.splitlines()) == 1


def test_evaluate_is_the_score_of_translate(cli: Cli, tiny: TinyRun) -> None:
    sides = [f"{tiny.folder}/validation.en", f"{tiny.folder}/validation.fr"]
    result = cli("evaluate", tiny.run, *sides, "--json", "-s", "beam_size=1", "--baseline", tiny.run)
    report = json.loads(result.out)
    sources, references = (Path(side).read_text().splitlines() for side in sides)
    found = tiny.translator.translate(sources, beam_size=1)
    assert report["bleu"] == bleu(found, references)._asdict()
    assert report["chrf"] == chrf(found, references)._asdict()
    assert report["bleu"]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert report["sentences"] == 10
    assert report["against"]["chrf"]["first"] == report["against"]["chrf"]["second"] == report["chrf"]["score"]
    text = cli("evaluate", tiny.run, *sides, "-s", "beam_size=1", "--tokenize", "none").out.splitlines()
    assert text[0].startswith("BLEU ")
    assert "tok:none" in text[0]
    assert text[1].split()[:2] == ["chrF2", f"{report['chrf']['score']:.2f}"]


def test_bleu_is_of_the_words_that_the_run_was_validated_on(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    run = tmp_path / "tokenized"
    run_to_the_end(tiny.config({"validation.tokenize": "none", "train.max_steps": 2}), run)
    sides = [write_lines(tmp_path / name, LINES) for name in ("source", "target")]
    for given, shown in (([], "tok:none"), (["--tokenize", "char"], "tok:char")):
        assert shown in cli("evaluate", run, *sides, "-s", "beam_size=1", *given).out


def test_average_is_the_mean_of_the_last_checkpoints(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    result = cli("average", tiny.run, "-n", "2", "-o", tmp_path / "mean")
    assert result == (0, f"{tmp_path}/mean\n", "averaged step_00000120, step_00000160\n")
    expected = average(RunFolder.open(tiny.run).checkpoints()[-2:])
    assert fingerprint(load_checkpoint(tmp_path / "mean").weights) == fingerprint(expected)
    assert cli("translate", tmp_path / "mean", stdin="the cat\n").code == 0


def test_info_counts_the_same_before_and_after_training(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    config = tiny.write_config(tmp_path / "tiny.toml")
    before = json.loads(cli("info", config, "--json").out)
    after = json.loads(cli("info", tiny.run, "--json").out)
    total = sum(p.numel() for p in tiny.translator.models[0].parameters())
    assert before["parameters"] == after["parameters"]
    assert after["parameters"]["total"] == total == sum(after["parameters"].values()) - total
    assert after["checkpoint"] == str(resolve(tiny.run))
    assert before["memory"]["weights_bytes"] == 4 * total
    wider = json.loads(cli("info", config, "model.d_ff=64", "--json").out)
    assert wider["parameters"]["total"] - total == 3 * (2 * 16 * 32 + 32)
    text = cli("info", tiny.run).out
    assert re.search(rf"^  total +{total:,}$", text, re.MULTILINE)
    settings = tomllib.loads(text[text.index("[model]") : text.index("parameters\n")])
    assert settings["model"]["n_heads"] == 2
    assert settings["text"]["joint"] is True
    assert cli("info", tiny.run, "model.d_ff=64").code == 2


def test_info_names_pytorch_for_decoding_without_a_cache(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    config = tiny.write_config(tmp_path / "tiny.toml")
    routes = json.loads(cli("info", config, "decoding.use_cache=false", "--json").out)["routes"]["use"]
    model = {(one["engine"], one["reason"]) for one in routes if one["part"] != "search"}
    assert model == {("torch", "use_cache=false")}


def test_tokenize_shows_what_the_model_sees(cli: Cli, tiny: TinyRun) -> None:
    tokenizer = tiny.translator.tokenizers.source
    ids = tokenizer.encode(LINES[0])
    text = f"{LINES[0]}\n\n"
    assert cli("tokenize", tiny.run, stdin=text).out == " ".join(tokenizer.tokens(ids)) + "\n\n"
    assert cli("tokenize", tiny.run, "--ids", stdin=text).out == " ".join(map(str, ids)) + "\n\n"
    out = cli("tokenize", tiny.run, "--json", stdin=text).out.splitlines()
    assert json.loads(out[0]) == {"tokens": tokenizer.tokens(ids), "ids": ids}
    assert json.loads(out[1]) == {"tokens": [], "ids": []}


def test_perplexity_in_the_metrics_is_that_of_score(cli: Cli, tiny: TinyRun) -> None:
    sides = [f"{tiny.folder}/validation.en", f"{tiny.folder}/validation.fr"]
    best = RunFolder.open(tiny.run).best()
    assert best is not None
    recorded = next(
        line
        for line in RunFolder.open(tiny.run).metrics()
        if line["event"] == "validated" and line["step"] == int(best.checkpoint.name[5:])
    )
    scored = [json.loads(line) for line in cli("score", tiny.run, *sides, "--json").out.splitlines()]
    tokens = sum(len(one["token_log_probs"]) for one in scored)
    nll = -sum(one["log_prob"] for one in scored) / tokens
    assert recorded["nll"] == pytest.approx(nll, rel=1e-4)
    assert recorded["perplexity"] == pytest.approx(math.exp(nll), rel=1e-4)
