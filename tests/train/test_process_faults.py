"""Faults of one of several processes: found before they change a checkpoint, with the processes named."""

import re
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from threading import Thread, local
from time import sleep
from typing import Any

import faults
import pytest
import torch
import torch.distributed as dist
from process_group import Job, train_in_group
from tiny_settings import values_of

from glassformer.storage.run_folder import RunFolder
from glassformer.train import parse_config, peers
from glassformer.train.distributed import World
from glassformer.train.tasks import make_task


@pytest.mark.parametrize("task", ["translation", "language", "masked", "classification", "images", "forecasting"])
def test_digest_of_a_batch_depends_on_every_field(tmp_path_factory: pytest.TempPathFactory, task: str) -> None:
    first, again, other = (make_task(parse_config(values_of(tmp_path_factory, task))).batches for _ in range(3))
    batch = first.next()
    other.next()
    assert batch.digest() == again.next().digest() != other.next().digest()
    for field in fields(batch):
        value = getattr(batch, field.name)
        if value is not None:
            changed = ~value if getattr(value, "dtype", None) == torch.bool else value + 1
            assert replace(batch, **{field.name: changed}).digest() != batch.digest()


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[list[str], RunFolder]]:
    """The errors of both processes and the run folder of a training, by the fault of its second process.

    "divided" is a fault in the shape of a batch where both processes divide the layers.
    """
    folder = tmp_path_factory.mktemp("faulty")
    values = values_of(tmp_path_factory, "translation")
    values["train"] |= {"save_every": 1, "threads": 0}
    jobs = [Job(values, folder / fault, fault=fault) for fault in faults.FAULTS]
    tensor = {**values, "train": values["train"] | {"tensor_parallel": 2}}
    jobs.append(Job(tensor, folder / "divided", fault="fewer_rows"))
    for name, parallel, limit in (("skipped", "fsdp", 1), ("stopped", "ddp", 0), ("stopped_sharded", "fsdp", 0)):
        changed = {**values, "train": values["train"] | {"parallel": parallel, "max_bad_steps": limit}}
        jobs.append(Job(changed, folder / name, fault="not_finite"))
    names = [job.run.name for job in jobs]
    errors = dict(zip(names, train_in_group(2, jobs, folder / "group"), strict=True))
    return lambda fault: (errors[fault], RunFolder(folder / fault))


@pytest.mark.parametrize("fault", ["other_batch", "fewer_rows", "divided"])
def test_differing_batches_end_the_step_before_its_update(faulty: Any, fault: str) -> None:
    errors, run = faulty(fault)
    text = "step 3, training batch: process 1 has other values than process 0; give every process the same data files"
    assert errors == [f"DataError: {text}", f"FailedElsewhereError: {text}"]
    assert [line["step"] for line in run.metrics() if line["event"] == "progress"] == [1, 2]
    assert [path.name for path in run.checkpoints()] == ["step_00000001", "step_00000002"]


@pytest.mark.parametrize("run", ["not_finite", "skipped"])
def test_loss_that_is_not_finite_in_one_process_skips_the_step_in_all(faulty: Any, run: str) -> None:
    errors, folder = faulty(run)
    assert errors == ["", ""]
    assert [line["step"] for line in folder.metrics() if line["event"] == "skipped"] == [3]
    second, third, fourth = ((path / "model.safetensors").read_bytes() for path in folder.checkpoints()[:3])
    assert second == third != fourth


@pytest.mark.parametrize("run", ["stopped", "stopped_sharded"])
def test_losses_that_are_not_finite_in_one_process_stop_all_at_the_limit(faulty: Any, run: str) -> None:
    errors, folder = faulty(run)
    text = "step 3: loss or gradient is not finite, 1 times in this run"
    assert [error.partition(" (")[0] for error in errors] == [f"DataError: {text}", f"FailedElsewhereError: {text}"]
    assert folder.checkpoints()[-1].name == "step_00000002"


@pytest.mark.parametrize("fault", ["changed_weight", "changed_moment"])
def test_differing_replicas_are_not_saved(faulty: Any, fault: str) -> None:
    errors, run = faulty(fault)
    kind, _, message = errors[0].partition(": ")
    assert kind == "DataError"
    assert re.fullmatch(
        rf"step 2, {'optimizer.' if fault == 'changed_moment' else ''}\S+: process 1 has other values than process 0; "
        "nothing is saved; .* with --resume",
        message,
    )
    assert message.split(":")[0].endswith(".exp_avg") == (fault == "changed_moment")
    assert errors[1] == f"FailedElsewhereError: {message}"
    assert [path.name for path in run.checkpoints()] == ["step_00000001"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("other_version", r"the version of glassformer is '.*' in process 0, but '0\.0\.1' in process 1; install"),
        ("other_python", r"the version of Python is '3\.\d+' in process 0, but '3\.1' in process 1; install the same"),
        ("more_threads", "the number of threads is 1 in process 0, but 2 in process 1; set train.threads"),
        ("other_instructions", "the instruction set of PyTorch is '.*' in process 0, but 'DEFAULT' in process 1; t"),
        ("other_kernels", "the instruction set of the kernels is '.*' in process 0, but 'none' in process 1; train"),
    ],
)
def test_programs_that_compute_other_bits_do_not_begin(faulty: Any, fault: str, message: str) -> None:
    errors, run = faulty(fault)
    assert re.match(f"ConfigError: {message}", errors[0])
    assert errors[1] == errors[0].replace("ConfigError", "FailedElsewhereError")
    assert run.checkpoints() == []


def test_process_that_waits_for_a_value_of_the_store_still_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    first = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    second = dist.TCPStore("127.0.0.1", first.port, is_master=False)
    monkeypatch.setattr(peers, "_get_default_store", lambda: second)
    monkeypatch.setattr(peers, "POLL_SECONDS", 0.05)
    with peers.watching_peers(World(1, 2)):
        waiting = Thread(target=second.get, args=("late",))
        waiting.start()
        try:
            first.set(peers.QUESTION, "")
            first.wait([f"{peers.ANSWER}1"], timedelta(seconds=10))
        finally:
            first.set("late", "")
            waiting.join()


def test_process_with_the_store_stays_until_every_survivor_knows_who_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = [dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)]
    stores.append(dist.TCPStore("127.0.0.1", stores[0].port, is_master=False))
    stores[0].set(f"{peers.HOST}2", "there")
    own = local()
    monkeypatch.setattr(peers, "_get_default_store", lambda: stores[own.rank])
    monkeypatch.setattr(peers, "ANSWER_SECONDS", 3.0)
    messages: dict[int, str] = {}
    known_before_the_end: list[bool] = []

    def lose_the_third(rank: int) -> None:
        with peers.watching_peers(World(rank, 3)):
            sleep(0.5 * rank)  # each process notices the loss in its own time
            raise RuntimeError("[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:4040. This is")

    def survive(rank: int) -> None:
        own.rank = rank
        with pytest.raises(peers.ProcessLostError) as caught:
            lose_the_third(rank)
        messages[rank] = str(caught.value)
        if rank == 0:
            known_before_the_end.append(stores[0].check([f"{peers.KNOWN}1"]))

    threads = [Thread(target=survive, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert known_before_the_end == [True]
    assert all("process 2 on there has ended" in message for message in messages.values())
