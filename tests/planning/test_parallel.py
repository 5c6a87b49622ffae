"""Division over devices: closed forms of memory and communication, and limits that a plan must not cross."""

from dataclasses import replace

import pytest
from small_trainings import CONFIGS, small_training

from glassformer.planning import find_device
from glassformer.planning.parallel import (
    ModelSize,
    Settings,
    communication,
    data_parallel_bytes,
    memory,
    model_size,
    tensor_parallel_bytes,
)
from glassformer.planning.step import record_step


@pytest.mark.parametrize("world", [1, 2, 64, 4096])
def test_bytes_of_data_parallel_training(world: int) -> None:
    size = ModelSize({}, total=1000, in_stacks=900, largest_block=300)
    share = (world - 1) / world
    assert data_parallel_bytes("ddp", size, world) == pytest.approx(2 * share * 4000)
    assert data_parallel_bytes("fsdp", size, world) == pytest.approx(3 * share * 3600 + 2 * share * 400)
    assert data_parallel_bytes("fsdp", size, world, low_precision=True) == pytest.approx(share * (8 * 900 + 800))


def test_tensor_parallelism_reduces_four_activations_a_layer() -> None:
    values = small_training("gpt").values
    one = 5 * 32 * 4  # positions · d_model · bytes
    assert tensor_parallel_bytes(values, 2, (5,), 4) == 2 * 4 * one * 2 * (1 / 2)
    assert tensor_parallel_bytes(values, 1, (5,), 4) == 0


def test_float32_adam_takes_16_bytes_a_parameter() -> None:
    size = model_size(small_training("gpt").values)
    used = memory(size, Settings("ddp", 1, average=False, low_precision=False), 2, 0, 0)
    assert used.total == 16 * size.total
    average = memory(size, Settings("ddp", 1, average=True, low_precision=False), 2, 0, 0)
    assert average.total == 20 * size.total


def test_shards_of_fsdp_add_up() -> None:
    size = model_size(small_training("gpt", model={"n_layers": 4}).values)
    settings = Settings("fsdp", 1, average=False, low_precision=False)
    gathered = 4 * (2 * size.largest_block + size.total - size.in_stacks)
    for world in (2, 64, 4096):
        used = memory(size, settings, world, 0, 0)
        assert world * (used.total - gathered) == pytest.approx(16 * size.total)


def test_the_peak_of_one_device_is_at_the_end_of_the_forward_pass_or_at_the_update() -> None:
    size = model_size(small_training("gpt").values)
    settings = Settings("ddp", 1, average=False, low_precision=False)
    assert memory(size, settings, 1, 10 * size.total, 8).total == 22 * size.total + 8
    assert memory(size, settings, 1, size.total, 0).total == 16 * size.total


@pytest.mark.parametrize("name", sorted(CONFIGS.keys() - {"recurrent"}))
def test_tensor_parallel_devices_divide_the_products_of_the_layers(name: str) -> None:
    whole = small_training(name, model={"d_ff": 128})
    none = {"n_layers": 1, "n_encoder_layers": 1, "n_decoder_layers": 1}
    least = replace(whole, values=whole.values | {key: none[key] for key in none if key in whole.values})
    flops, parameters = [], []
    for n in (1, 2):
        flops.append(record_step(whole, 2, gpu=True, tensor=n).flops - record_step(least, 2, gpu=True, tensor=n).flops)
        parameters.append(model_size(whole.values, n).in_stacks)
    assert flops[0] == 2 * flops[1] > 0
    assert 0.5 < parameters[1] / parameters[0] < 0.52  # norms and some biases are not divided


def test_reduction_of_gradients_is_hidden_but_for_its_last_bucket() -> None:
    device = find_device("h100")
    n_bytes = 2 * 4 * 26_214_400 * 2.0  # 16 buckets
    hidden = communication(n_bytes, 0, device, 8, 1, backward_seconds=100.0)
    exposed = communication(n_bytes, 0, device, 8, 1, backward_seconds=0.0)
    assert exposed.exposed == exposed.seconds > 0
    assert hidden.exposed == pytest.approx(hidden.seconds / 8)
    across = communication(n_bytes, 0, device, 16, 1, backward_seconds=0.0)
    assert across.seconds > 5 * exposed.seconds  # the network is slower than the links of a node


@pytest.mark.parametrize("name", CONFIGS)
def test_sizes_count_every_parameter_once(name: str) -> None:
    size = model_size(small_training(name).values)
    assert sum(size.parts.values()) == size.total > 0
    assert size.largest_block <= size.in_stacks <= size.total
