"""Collectives of a step of thousands of processes: their numbers and bytes are those of the formulas of a plan."""

import itertools
import math

import pytest
import torch
from small_trainings import CONFIGS, small_training
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset

from glassformer.layers.block import Stack
from glassformer.models.registry import build_uninitialized, weights_of
from glassformer.planning import Training
from glassformer.planning.collectives import count_collectives, fake_processes
from glassformer.planning.parallel import data_parallel_bytes, model_size, tensor_parallel_bytes
from glassformer.train.distributed import StepLoss
from glassformer.train.division import REPLICA, TENSOR, make_mesh
from glassformer.train.sharded import shard
from glassformer.train.tensor_parallel import divide_blocks

pytestmark = pytest.mark.filterwarnings("ignore:.broadcast_buffers. is deprecated:FutureWarning")
WORLDS = [64, 512, 4096]
ROWS = 2


def divisible(world: int) -> Training:
    """A GPT whose weights divide evenly among ``world`` processes: FSDP2 fills up the others."""
    sizes = {"d_model": world, "d_ff": 2 * world, "n_heads": 32, "max_length": world, "vocab_size": world}
    return small_training("gpt", model=sizes, data={"context": 64})


def filled(n_numbers: int, world: int) -> int:
    """Bytes of so many numbers in ``world`` equal parts."""
    return 4 * world * math.ceil(n_numbers / world)


@pytest.mark.parametrize("world", WORLDS)
def test_bytes_of_ddp_are_two_shares_of_the_gradients(world: int) -> None:
    training = small_training("gpt")
    total = model_size(training.values).total
    counted = count_collectives(training, world, rows=ROWS)
    assert counted.n_bytes == dict.fromkeys([("all-to-all", world), ("all-gather", world)], filled(total, world))
    planned = data_parallel_bytes("ddp", model_size(training.values), world)
    assert counted.sent == pytest.approx(planned * filled(total, world) / (4 * total))


def test_two_processes_reduce_gradients_at_once() -> None:
    training = small_training("gpt")
    counted = count_collectives(training, 2, rows=ROWS)
    assert counted.n_bytes == {("all-reduce", 2): 4 * model_size(training.values).total}
    assert counted.sent == data_parallel_bytes("ddp", model_size(training.values), 2)


@pytest.mark.parametrize("world", WORLDS)
def test_bytes_of_fsdp_are_three_shares_of_the_stacks_and_two_of_the_rest(world: int) -> None:
    training = divisible(world)
    size = model_size(training.values)
    counted = count_collectives(training, world, "fsdp", rows=ROWS)
    groups = training.values["n_layers"] + 1  # the blocks, and the last normalization of the stack
    assert counted.calls == {("all-gather", world): 2 * groups + 1, ("all-to-all", world): groups + 1}
    assert counted.n_bytes["all-gather", world] == 4 * (2 * size.in_stacks + size.total - size.in_stacks)
    assert counted.n_bytes["all-to-all", world] == 4 * size.total
    assert counted.sent == pytest.approx(data_parallel_bytes("fsdp", size, world))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ["gpt", "gpt_without_dropout", "encoder_decoder", "bert", "vit", "series"])
def test_layers_have_four_all_reduces_and_seven_where_they_read_a_source(name: str, world: int) -> None:
    training = small_training(name)
    counted = count_collectives(training, world, tensor=2, rows=ROWS)
    values = training.values
    layers = {"n_layers": 4, "n_encoder_layers": 4, "n_decoder_layers": 7}
    assert counted.calls["all-reduce", 2] == sum(n * values[key] for key, n in layers.items() if key in values)
    positions = tuple(ROWS * length for length in training.shape.tokens)
    assert counted.n_bytes["all-reduce", 2] == tensor_parallel_bytes(values, 2, positions, 4)  # 2 (n − 1)/n is 1
    for kind in ("all-to-all", "all-gather"):
        assert counted.n_bytes[kind, world // 2] == filled(model_size(values, 2).total, world // 2)


@pytest.mark.parametrize("world", WORLDS)
def test_both_divisions_together_are_the_sum_of_their_formulas(world: int) -> None:
    training, tensor = divisible(world), 4
    counted = count_collectives(training, world, "fsdp", tensor, ROWS)
    between = tensor_parallel_bytes(training.values, tensor, (ROWS * 64,), 4)
    of_weights = data_parallel_bytes("fsdp", model_size(training.values, tensor), world // tensor)
    assert counted.sent == pytest.approx(between + of_weights)


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("name", sorted(CONFIGS.keys() - {"recurrent"}))
def test_shards_of_all_processes_are_the_weights_once_each(name: str, tensor: int) -> None:
    """Also where sizes do not divide evenly, and with more processes than rows."""
    world = 48
    training = small_training(name)
    with fake_processes(world):
        mesh = make_mesh(world, tensor, torch.device("cpu"))
        with torch.device("meta"):
            model = build_uninitialized(training.values, "test")
        whole = {name: tuple(w.shape) for name, w in weights_of(model).items()}
        if tensor > 1:
            divide_blocks(model, mesh[TENSOR])
        shard(StepLoss(model, training.task.loss), mesh[REPLICA], low_precision=False)
        for name, w in weights_of(model).items():
            copies = math.prod(size for size, kind in zip(w.device_mesh.shape, w.placements) if kind.is_replicate())
            seen = torch.zeros(whole[name], dtype=torch.int64)
            for place in itertools.product(*map(range, w.device_mesh.shape)):
                shape, offset = _compute_local_shape_and_global_offset(
                    w.shape, w.device_mesh.shape, lambda axis, place=place: place[axis], w.placements, False
                )
                seen[tuple(slice(a, a + n) for a, n in zip(offset, shape, strict=True))] += 1
            assert (seen == copies).all(), name
    assert any(isinstance(module, Stack) for module in model.modules())
