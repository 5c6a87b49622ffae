"""What tasks have in common: sizes that their data decide, what is read and told, and starting from another run."""

import copy
import math
import os
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import glassformer
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.native.library import kernels
from glassformer.predict import evaluation
from glassformer.storage.checkpoint import load_checkpoint
from glassformer.storage.run_folder import RunFolder, resolve
from glassformer.train import Started, Validated, parse_config, read_config, train
from glassformer.train.build import build
from glassformer.train.loss import projection_loss
from glassformer.train.state import TrainState
from glassformer.train.step import train_step
from glassformer.train.tasks import make_task, masked
from tiny_run import run_to_the_end, state_of, write_lines
from tiny_tasks import SENTENCES, TinyTask, made


def settings(tiny: TinyTask, **changes: Any) -> dict[str, Any]:
    """Those of two steps, with ``data__context=9`` over them."""
    values = copy.deepcopy(tiny.values)
    values["train"]["max_steps"] = 2
    for name, value in changes.items():
        section, key = name.split("__")
        values[section][key] = value
    return values


def trained(tiny: TinyTask, path: Path, **changes: Any) -> list[Any]:
    return run_to_the_end(parse_config(settings(tiny, **changes), "tiny"), path)


# Sizes that the data decide


@pytest.mark.parametrize("task", ["images", "forecasting", "classification"])
def test_the_written_configuration_goes_on_and_trains_again(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, task: str
) -> None:
    trained(made(tmp_path_factory, task), tmp_path / "run")
    written = tmp_path / "run" / "config.toml"
    assert run_to_the_end(read_config(written), tmp_path / "again")[-1].step == 2
    again = read_config(written, ["train.max_steps=3"])
    assert run_to_the_end(again, tmp_path / "run", resume=True)[-1].step == 3


@pytest.mark.parametrize(
    ("task", "key", "told"),
    [
        ("images", "n_channels", r"^model\.n_channels=7, but the images have 1; leave it out$"),
        ("forecasting", "horizon", r"^model\.horizon=7, but the data have 6; leave it out$"),
        ("classification", "n_classes", r"^model\.n_classes=7, but the data have 2; leave it out$"),
        ("tagging", "n_tags", r"^model\.n_tags=7, but the data have 3; leave it out$"),
    ],
)
def test_a_size_that_the_data_do_not_have_is_refused(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, task: str, key: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        trained(made(tmp_path_factory, task), tmp_path / "run", **{f"model__{key}": 7})


# The tokens that a loss reads


def loss_of_all_tokens(task: str, model: Any, batch: Any) -> torch.Tensor:
    """Sum of −log p, from the outputs of all tokens."""
    if task == "images":
        return cross_entropy(model(batch.images), batch.labels, reduction="sum")
    hidden = model.hidden(batch.tokens, batch.mask, batch.segments)
    if task == "masked":
        logits = model.output_projection(model.transform(hidden))[batch.predicted]
        return cross_entropy(logits, batch.labels[batch.predicted], reduction="sum")
    if task == "tagging":
        return cross_entropy(model.tags(hidden)[batch.word_starts], batch.tags[batch.word_starts], reduction="sum")
    return cross_entropy(model.classes(hidden), batch.labels, reduction="sum")


@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.parametrize("task", ["masked", "classification", "tagging", "images"])
def test_a_loss_equals_that_of_all_tokens(tmp_path_factory: pytest.TempPathFactory, task: str, engine: str) -> None:
    values = settings(made(tmp_path_factory, task), model__d_model=64, model__d_ff=64, model__dropout=0.0)
    values["train"]["engine"] = engine
    state = build(parse_config(values, "tiny"))
    batch = state.batches.next()
    loss = state.task.loss(state.compute_model, batch).loss
    assert loss.isfinite()
    torch.testing.assert_close(loss, loss_of_all_tokens(task, state.model, batch), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mixup", [0.0, 0.4])
def test_a_loss_of_images_and_its_gradients_are_those_of_all_logits(
    tmp_path_factory: pytest.TempPathFactory, mixup: float
) -> None:
    """The labels may be probabilities of the classes."""
    values = settings(made(tmp_path_factory, "images"), model__d_model=64, model__d_ff=64, model__dropout=0.0)
    values["data"]["augment"], values["train"]["label_smoothing"] = {"mixup": mixup}, 0.1
    state = build(parse_config(values, "tiny"))
    batch = state.batches.next()
    assert batch.labels.is_floating_point() == bool(mixup)
    found = state.task.loss(state.compute_model, batch).loss
    expected = cross_entropy(state.model(batch.images), batch.labels, reduction="sum", label_smoothing=0.1)
    weights = list(state.model.parameters())
    for one, other in zip(
        (found, *torch.autograd.grad(found, weights)), (expected, *torch.autograd.grad(expected, weights)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_label_that_no_class_has_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    values = settings(made(tmp_path_factory, "images"), model__d_model=64, model__d_ff=64)
    state = build(parse_config(values, "tiny"))
    batch = state.batches.next()
    batch.labels[0] = 2
    with pytest.raises(IndexError, match=r"a label is outside the 2 classes|Target 2 is out of bounds"):
        state.task.loss(state.compute_model, batch)


def test_hooks_of_the_class_projection_are_called(tmp_path_factory: pytest.TempPathFactory) -> None:
    values = settings(made(tmp_path_factory, "images"), model__d_model=64, model__d_ff=64)
    state, calls = build(parse_config(values, "tiny")), []
    batch = state.batches.next()
    state.compute_model.output_projection.register_forward_hook(lambda *_: calls.append(1))
    state.task.loss(state.compute_model, batch)
    assert calls == [1]


@pytest.mark.parametrize(
    ("task", "change"),
    [
        ("masked", "selected tokens"),
        ("classification", "selected tokens"),
        ("tagging", "selected tokens"),
        ("images", "selected tokens"),
        ("images", "final norm"),
        ("language", "final norm"),
    ],
)
def test_a_run_of_other_kernels_is_refused(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, task: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels() is None:
        pytest.skip("there are no kernels here")
    wide = {"model__d_model": 64, "model__d_ff": 64}
    trained(made(tmp_path_factory, task), tmp_path / "run", **wide)
    restore = TrainState.restore

    def earlier(state: TrainState, weights: Any, saved: Any, origin: str) -> None:
        saved.values["kernels"] = saved.values["kernels"].replace(f", {change}", "")
        restore(state, weights, saved, origin)

    monkeypatch.setattr(TrainState, "restore", earlier)
    values = settings(made(tmp_path_factory, task), **wide, train__max_steps=3)
    with pytest.raises(CheckpointError, match=rf"kernels of version .*, but this process has .*, {change}.*; a run"):
        run_to_the_end(parse_config(values, "tiny"), tmp_path / "run", resume=True)


def test_a_run_of_other_routes_with_the_same_settings_needs_its_version(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Former versions computed BERT's embeddings by operations."""
    if kernels() is None:
        pytest.skip("there are no kernels here")
    wide = {"model__d_model": 64, "model__d_ff": 64}
    trained(made(tmp_path_factory, "masked"), tmp_path / "run", **wide)
    restore = TrainState.restore

    def earlier(state: TrainState, weights: Any, saved: Any, origin: str) -> None:
        for stored in saved.values["routes"]:
            stored[1] = "native operations" if stored[0] == "embedding" else stored[1]
        restore(state, weights, saved, origin)

    monkeypatch.setattr(TrainState, "restore", earlier)
    values = settings(made(tmp_path_factory, "masked"), **wide, train__max_steps=3)
    told = r"trained with embedding by native operations, .*; resume with the glassformer version and the kind of"
    with pytest.raises(CheckpointError, match=told):
        run_to_the_end(parse_config(values, "tiny"), tmp_path / "run", resume=True)


# In the kernels

WIDE = {"d_model": 64, "d_ff": 64, "dropout": 0.2}
LLAMA = {"norm": "rms", "positions": "rotary", "activation": "silu", "gated": True, "bias": False}
WHOLE: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("language", {**WIDE, **LLAMA, "n_heads": 4, "attention": {"n_kv_heads": 2, "d_head": 32}}),
    "bert": ("masked", {**WIDE, "n_heads": 8}),
    "vit": ("images", {**WIDE, "n_heads": 4, "attention_dropout": 0.1}),
    "series": ("forecasting", {**WIDE, "n_heads": 16}),
}


def kernels_for(precision: str) -> bool:
    made = kernels()
    return made is not None and (precision == "float32" or made.has_bfloat16)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", WHOLE)
def test_a_stack_trained_in_kernels_resumes_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, form: str, precision: str
) -> None:
    if not kernels_for(precision):
        pytest.skip("no kernels that train in this type")
    task, model = WHOLE[form]
    values = settings(made(tmp_path_factory, task))
    values["model"] |= model
    values["train"] |= {"max_steps": 6, "save_every": 3, "log_every": 1, "precision": precision, "ema": 0.9}
    config = parse_config(values, "tiny")
    run_to_the_end(config, tmp_path / "whole")
    run = RunFolder.create(tmp_path / "parts")
    list(islice(train(config, run), 5))
    run_to_the_end(config, run.path, resume=True)
    assert state_of(run.path) == state_of(tmp_path / "whole")
    saved = load_checkpoint(resolve(run.path), training=True).training
    assert saved is not None
    part = "decoder" if task == "language" else "encoder"
    assert [part, "native", ""] in saved.values["routes"]


def test_hidden_tokens_are_projected_in_the_type_of_the_stack(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernels_for("bfloat16"):
        pytest.skip("no kernels that train in this type")
    values, types = settings(made(tmp_path_factory, "masked")), list[torch.dtype]()
    values["model"] |= WIDE
    values["train"] |= {"precision": "bfloat16"}
    state = build(parse_config(values, "tiny"))

    def noted(projection: Any, hidden: Any, *rest: Any) -> Any:
        types.append(hidden.dtype)
        return projection_loss(projection, hidden, *rest)

    monkeypatch.setattr(masked, "projection_loss", noted)
    train_step(state, RunFolder(Path(os.devnull)))
    assert types == [torch.bfloat16]


# What is read


def test_resumed_run_may_add_test_data(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    tiny = made(tmp_path_factory, "images")
    trained(tiny, tmp_path / "run")
    config = parse_config(settings(tiny, data__test=tiny.values["data"]["train"], train__max_steps=3))
    assert run_to_the_end(config, tmp_path / "run", resume=True)[-1].step == 3


@pytest.mark.parametrize("task", ["masked", "classification", "tagging", "language"])
def test_text_that_is_encoded_once_has_no_bpe_dropout(tmp_path_factory: pytest.TempPathFactory, task: str) -> None:
    values = settings(made(tmp_path_factory, task)) | {"text": {"bpe_dropout": 0.1}}
    with pytest.raises(ConfigError, match=r"text\.bpe_dropout=0\.1 is for translation; .* set it to 0$"):
        parse_config(values)


def test_dropped_validation_lines_are_reported(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    held_out = write_lines(tmp_path / "held_out.tsv", ["text\tlabel", "the dog runs.\tquiet", "the dog", "\tloud"])
    tiny = made(tmp_path_factory, "classification")
    started = trained(tiny, tmp_path / "run", data__validation=[held_out])[0]
    assert isinstance(started, Started)
    told = f"validation: {held_out}: 3 read, 1 kept, empty 1 (line 4), malformed 1 (line 3)"
    assert told in started.accounts
    assert f"{tiny.folder}/train.tsv: 16 read, 16 kept" in started.accounts


def test_validation_text_of_one_token_is_an_early_error(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    values = settings(made(tmp_path_factory, "language")) | {"validation": {"max_tokens": 1}}
    with pytest.raises(DataError, match=r"^the validation text has 1 token, and at least 2 are needed; add text, or"):
        run_to_the_end(parse_config(values), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_documents_that_are_trained_apart_are_measured_apart(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """To the last digit but rounding, the likelihood is that of each document alone."""
    changes: dict[str, Any] = {"model__max_length": 64, "data__context": 64, "data__validation_share": 0.0}
    changes |= {"data__documents": "line", "data__within_documents": True, "optimizer__learning_rate": 0.1}
    held_out = write_lines(tmp_path / "held_out.txt", SENTENCES[:3])
    tiny = made(tmp_path_factory, "language")
    events = trained(tiny, tmp_path / "run", data__validation=[held_out], **changes)
    scores = next(event.scores for event in events if isinstance(event, Validated))
    generator, total, count = glassformer.load(tmp_path / "run"), 0.0, 0
    end = [generator.tokenizer.end_id]
    for number, text in enumerate(SENTENCES[:3]):
        ids = end * (number > 0) + generator.tokenizer.encode(text) + end * (number < 2)
        with torch.no_grad():
            logits = generator.model(torch.tensor([ids[:-1]]))[0]
        total += cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum").item()
        count += len(ids) - 1
    assert scores["nll"] == pytest.approx(total / count, rel=1e-5)
    assert generator.within_documents
    evaluated = evaluation.language_scores(generator, read_config(tmp_path / "run" / "config.toml").data, [held_out])
    assert evaluated["nll"] == pytest.approx(scores["nll"], rel=1e-6)


def test_missing_values_are_neither_learned_nor_scored(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """What stands there instead is read as the past, and is no answer."""
    tiny = made(tmp_path_factory, "forecasting")
    header, *rows = (tiny.folder / "series.csv").read_text().splitlines()
    rows[-1] = rows[-1].rsplit(",", 1)[0] + ","  # of a test window
    rows[71] = rows[71].rsplit(",", 1)[0] + ","  # the last row of training, and of contexts of validation
    path = write_lines(tmp_path / "gaps.csv", [header, *rows])
    changes = {"data__file": path, "data__missing": "previous"}
    started, *_ = trained(tiny, tmp_path / "run", **changes)
    assert started.accounts[0].endswith("; 2 missing values are the previous ones again")
    task = make_task(parse_config(settings(tiny, **changes)))
    forecaster = glassformer.load(tmp_path / "run")
    squares, series = list[torch.Tensor](), task.series
    for batch in series.ordered("test", 8):
        with torch.no_grad():
            error = (forecaster.model(batch.context) - batch.future).square()
        squares += [error[batch.future.isfinite()]]
    found = forecaster.errors(series)
    assert found.mse == pytest.approx(torch.cat(squares).mean().item(), rel=1e-5)
    assert len(torch.cat(squares)) == 19 * 6 * 2 - 1
    batch = series.batch(series.windows("train")[-1:])
    assert batch.future.isnan().sum() == 1
    assert task.loss(forecaster.model, batch).loss.isfinite()


# Going on, and starting from another run


def test_a_run_of_another_task_is_not_gone_on_with(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    """Other settings differ as well; the task is what is told."""
    trained(made(tmp_path_factory, "classification"), tmp_path / "run")
    other = parse_config(settings(made(tmp_path_factory, "tagging"), train__max_steps=3))
    told = r"^task='tagging', but the run began with 'classification'; set task='classification', or start a new run$"
    with pytest.raises(ConfigError, match=told):
        run_to_the_end(other, tmp_path / "run", resume=True)


def test_start_from_reports_the_copied_weights(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    begun, tiny = made(tmp_path_factory, "masked").run, made(tmp_path_factory, "classification")
    changes = {"train__start_from": str(begun), "optimizer__learning_rate": 1e-9, "model__max_length": 20}
    started = trained(tiny, tmp_path / "run", **changes)[0]
    assert started.accounts[-1] == (
        f"train.start_from={resolve(begun)}: 20 of 25 weights are taken; embedding.position.weight, "
        "classes.pooler.dense.weight, classes.pooler.dense.bias, classes.projection.weight, classes.projection.bias "
        "begin afresh"
    )
    before = load_checkpoint(resolve(begun)).weights
    after = load_checkpoint(RunFolder.open(tmp_path / "run").checkpoints()[-1]).weights
    taken = before.keys() & after.keys() - {"embedding.position.weight"}
    assert len(taken) == 20
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in taken)


def test_start_from_refuses_text_outside_its_vocabulary(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    begun, tiny = made(tmp_path_factory, "masked").run, made(tmp_path_factory, "tagging")
    foreign = write_lines(tmp_path / "train.conll", ["дом NOUN", "горит VERB", ""])
    changes: dict[str, Any] = {"data__train": [foreign], "data__validation": [], "data__max_length": 16}
    changes |= {"train__start_from": str(begun)}
    told = (
        rf"^80\.00% of the tokens are unknown to the vocabulary of train\.start_from={begun}, more than "
        r"text\.max_unknown_rate=0\.01; start from a run that knows them, or raise text\.max_unknown_rate to accept it$"
    )
    with pytest.raises(DataError, match=told):
        trained(tiny, tmp_path / "run", **changes)


@pytest.mark.parametrize("task", ["classification", "tagging"])
def test_only_the_head_that_is_trained_is_built(tmp_path_factory: pytest.TempPathFactory, task: str) -> None:
    values = settings(made(tmp_path_factory, task))
    del values["model"]["masked_tokens"]
    assert make_task(parse_config(values)).new_model().output_projection is None
    values["model"]["masked_tokens"] = True
    assert make_task(parse_config(values)).new_model().output_projection is not None


@pytest.mark.parametrize(
    ("key", "value", "before"), [("n_heads", 4, 2), ("d_ff", 48, 32), ("activation", "relu", "gelu")]
)
def test_start_from_refuses_weights_of_another_meaning(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, key: str, value: Any, before: Any
) -> None:
    """Heads of another width and another activation have weights of the same shape."""
    begun, tiny = made(tmp_path_factory, "masked").run, made(tmp_path_factory, "classification")
    told = rf"^model\.{key}={value!r}, but the weights of train\.start_from=.* with {key}={before!r}; set it to that$"
    with pytest.raises(ConfigError, match=told):
        trained(tiny, tmp_path / "run", train__start_from=str(begun), **{f"model__{key}": value})


def test_a_run_without_a_vocabulary_is_no_start_for_one_of_text(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    begun, tiny = made(tmp_path_factory, "images").run, made(tmp_path_factory, "classification")
    with pytest.raises(
        ConfigError, match=r"^train\.start_from=.*: this run reads no text, so it has no vocabulary; name"
    ):
        trained(tiny, tmp_path / "run", train__start_from=str(begun))


# Bits per character and per byte


CODE = "def f(a):\n    if a:\n\n        return  a\n" * 12


@pytest.mark.parametrize("text", [{"kind": "bytes"}, {"kind": "char"}, {"kind": "bpe"}, {"kind": "word"}])
def test_bits_count_the_text_of_the_predicted_tokens(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, text: dict[str, Any]
) -> None:
    """A vocabulary that collapses spaces predicts fewer characters, which must not look like fewer bits."""
    file = tmp_path / "code.txt"
    file.write_text(CODE, encoding="utf-8")
    values = settings(made(tmp_path_factory, "language"), data__train=[str(file)], data__validation=[str(file)])
    values["data"]["validation_share"] = 0.0
    values["validation"] = {"metric": "bits_per_byte"}
    config = parse_config(values | {"text": {"vocab_size": 300, **text}}, "tiny")
    scores = next(event.scores for event in run_to_the_end(config, tmp_path / "run") if isinstance(event, Validated))
    generator = glassformer.load(tmp_path / "run")
    ids = generator.tokenizer.encode(CODE)
    predicted = len(generator.tokenizer.decode(ids)) - len(generator.tokenizer.decode(ids[:1]))
    expected = scores["nll"] * (len(ids) - 1) / math.log(2) / predicted
    assert scores["bits_per_character"] == pytest.approx(expected)
    assert scores["bits_per_byte"] == pytest.approx(expected)  # ASCII text
    assert (predicted > len(CODE) - 10) == (text["kind"] in ("bytes", "char"))
    evaluated = evaluation.language_scores(generator, config.data, [str(file)])
    assert evaluated["bits_per_byte"] == pytest.approx(evaluated["nll"] * evaluated["tokens"] / math.log(2) / predicted)
    assert generator.score([CODE])[0].characters == predicted


def test_language_models_are_byte_level_by_default(tmp_path_factory: pytest.TempPathFactory) -> None:
    values = settings(made(tmp_path_factory, "language"))
    assert parse_config(values | {"text": {"vocab_size": 300}}).text.kind == "bytes"
    assert parse_config({key: value for key, value in values.items() if key != "text"}).text.kind == "bytes"
    assert parse_config(values).text.kind == "char"
    assert parse_config(settings(made(tmp_path_factory, "masked")) | {"text": {}}).text.kind == "bpe"
