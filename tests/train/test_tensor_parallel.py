"""Tensor parallelism: the steps of one process, alone and beside data parallelism; dropout; resume; what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from process_group import Job, train_in_group
from test_distributed import EXACT, TASKS, bits, losses, values_of

from glassformer.errors import ConfigError
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.dropout import Dropout
from glassformer.train import parse_config
from glassformer.train.distributed import World
from glassformer.train.division import check_divided
from glassformer.train.tensor_parallel import separate_dropout

STEPS = 6
LLAMA = {
    "norm": "rms",
    "positions": "rotary",
    "gated": True,
    "activation": "silu",
    "bias": False,
    "tie_embeddings": False,
    "n_heads": 4,
    "attention": {"n_kv_heads": 2, "d_head": 6},
}


def changed(values: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {**part, **sections.get(name, {})} if isinstance(part, dict) else part for name, part in values.items()
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of each task by one process and by two; runs of four, with DDP, FSDP2 and dropout."""
    folder = tmp_path_factory.mktemp("tensor_parallel")
    tasks = {task: changed(values_of(tmp_path_factory, task), train={"engine": "torch"}) for task in TASKS}
    heads = changed(tasks["translation"], model={"n_heads": 4}, optimizer={"clip_norm": 0.5}, train={"ema": 0.9})
    tasks |= {"llama": changed(tasks["language"], model=LLAMA), "heads": heads}
    tasks["accumulated"] = changed(heads, train={"accumulate": 2})
    exact = EXACT | {"llama", "heads", "accumulated"}

    def job(run: str, values: dict[str, Any], n: int = 1, resume: bool = False, **train: Any) -> Job:
        values = changed(values, train={"tensor_parallel": n, **train})
        return Job(values, folder / run, float64=run.partition("-")[0] in exact, resume=resume)

    def dropping(run: str, n: int, **model: float) -> Job:
        return job(f"heads-{run}", changed(heads, model=model), n)

    one = [job(task, values) for task, values in tasks.items()]
    assert train_in_group(1, one, folder / "one") == [[""]] * len(one)
    two = [job(f"{task}-2", values, 2) for task, values in tasks.items()]
    two += [dropping("residual_2", 2, dropout=0.3), dropping("all_2", 2, dropout=0.3, attention_dropout=0.3)]
    two += [job("single-2_4", heads, 2, max_steps=2, save_every=2)]
    two += [replace(job("heads-stopped", heads, 2), fault="stop_signal")]
    assert train_in_group(2, two, folder / "two") == [["", ""]] * len(two)
    four = [job("heads-ddp", heads, 2), job("accumulated-ddp", tasks["accumulated"], 2)]
    four += [job(f"{name}-fsdp", tasks[name], 2, parallel="fsdp") for name in ("heads", "llama", "accumulated")]
    shards = {"parallel": "fsdp", "save_every": 3}
    four += [job("single-whole", heads, 2, **shards), job("single-half", heads, 2, max_steps=3, **shards)]
    four += [job("single-half", heads, 2, resume=True, **shards)]
    four += [dropping("residual_4", 4, dropout=0.3), dropping("all_4", 4, dropout=0.3, attention_dropout=0.3)]
    four += [job("single-2_4", heads, 4, resume=True)]
    assert train_in_group(4, four, folder / "four") == [[""] * 4] * len(four)
    return folder


@pytest.mark.parametrize("task", [*TASKS, "llama", "heads", "accumulated"])
def test_two_processes_take_the_steps_of_one(folder: Path, task: str) -> None:
    expected = losses(folder / task)
    assert len(expected) == STEPS
    exact = task not in ("images", "forecasting")
    assert losses(folder / f"{task}-2") == pytest.approx(expected, rel=1e-9 if exact else 1e-6, abs=0.0)


@pytest.mark.parametrize("run", ["heads-ddp", "heads-fsdp", "llama-fsdp", "accumulated-ddp", "accumulated-fsdp"])
def test_tensor_and_data_parallelism_together_take_the_steps_of_one_process(folder: Path, run: str) -> None:
    assert losses(folder / run) == pytest.approx(losses(folder / run.partition("-")[0]), rel=1e-9, abs=0.0)


def test_gradient_norms_are_those_of_one_process(folder: Path) -> None:
    """The norm of all gradients counts a shard once, however many processes have it."""
    expected = losses(folder / "heads", "gradient_norm")
    for run in ("heads-2", "heads-ddp", "heads-fsdp"):
        assert losses(folder / run, "gradient_norm") == pytest.approx(expected, rel=1e-9)


def test_resume_is_bit_identical_and_may_change_the_number(folder: Path) -> None:
    assert len(bits(folder / "single-half")) == 2
    assert bits(folder / "single-half") == bits(folder / "single-whole")
    assert losses(folder / "single-2_4") == pytest.approx(losses(folder / "single-whole"), rel=1e-6)


def test_signal_to_any_process_of_a_group_stops_after_the_step(folder: Path) -> None:
    assert len(losses(folder / "heads-stopped")) == 2
    assert (folder / "heads-stopped" / "checkpoints" / "step_00000002").is_dir()


def test_dropout_of_common_activations_does_not_depend_on_the_division(folder: Path) -> None:
    """If two processes dropped other elements of the residual stream, 2 and 4 of them would take other steps."""
    assert losses(folder / "heads-residual_2") == pytest.approx(losses(folder / "heads-residual_4"), rel=1e-9)
    assert losses(folder / "heads-all_2")[0] != pytest.approx(losses(folder / "heads-all_4")[0], rel=1e-6)


def dropped(rank: int | None, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Output of attention whose weights have dropout, in process ``rank``, and the next number of the generator."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 2, 4, 4, Dropout(0.5))
    if rank is not None:
        separate_dropout(attention, rank)
    torch.manual_seed(seed)
    return attention(torch.ones(3, 5, 8) * torch.arange(5)[:, None]), torch.rand(())


def test_dropout_of_heads_is_their_own_and_leaves_the_common_sequence() -> None:
    results = [dropped(rank, seed) for rank in (0, 1) for seed in (1, 2)]
    outputs, following = zip(*results, strict=True)
    assert all(not torch.equal(a, b) for i, a in enumerate(outputs) for b in outputs[i + 1 :])
    assert following[0] == following[2] != following[1] == following[3]
    assert torch.equal(dropped(0, 1)[0], outputs[0])


@pytest.mark.parametrize(
    ("task", "model", "train", "size", "message"),
    [
        ("translation", {}, {"tensor_parallel": 3}, 3, r"model\.n_heads=2; choose one of 1, 2$"),
        ("translation", {"d_ff": 33}, {"tensor_parallel": 2}, 2, r"model\.d_ff=33; choose one of 1$"),
        ("language", LLAMA, {"tensor_parallel": 4}, 4, r"attention\.n_kv_heads=2; choose one of 1, 2$"),
        ("translation", {}, {"tensor_parallel": 2}, 3, r"number of processes, 3; start 2, 4, 6, … processes"),
        ("translation", {}, {"tensor_parallel": 2}, 1, r"number of processes, 1; .* to one of 1$"),
        ("translation", {}, {"tensor_parallel": 2, "engine": "native"}, 2, r"divides them; choose engine=auto"),
        ("translation", {}, {"tensor_parallel": 2, "precision": "bfloat16"}, 2, r"parallel=fsdp only"),
        ("translation", {}, {"parallel": "fsdp", "engine": "compile"}, 2, r"or parallel=ddp$"),
    ],
)
def test_numbers_and_settings_that_cannot_be_divided(
    tmp_path_factory: pytest.TempPathFactory,
    task: str,
    model: dict[str, Any],
    train: dict[str, Any],
    size: int,
    message: str,
) -> None:
    values = changed(values_of(tmp_path_factory, task), model=model, train=train)
    with pytest.raises(ConfigError, match=message):
        check_divided(parse_config(values), World(0, size))


def test_models_without_heads_and_guided_heads_are_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    values = changed(values_of(tmp_path_factory, "translation"), train={"tensor_parallel": 2})
    recurrent = {**values, "model": {"kind": "recurrent", "d_model": 16, "d_hidden": 16}}
    with pytest.raises(ConfigError, match=r"and model\.kind=recurrent has none$"):
        check_divided(parse_config(recurrent), World(0, 2))
    with pytest.raises(ConfigError, match="cannot train a guided head"):
        check_divided(parse_config(changed(values, data={"alignments": ["links"]})), World(0, 2))
