"""``glassformer plan``: table, JSON and picture, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import tomli_w

from glassformer.planning import find_device, known_devices

Cli = Callable[..., Any]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A language model whose text does not exist: 4 windows of 16 tokens a batch."""
    values = {
        "model": {"kind": "gpt", "d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "max_length": 16},
        "text": {"vocab_size": 300},
        "data": {"train": ["missing.txt"], "context": 16, "batch_tokens": 64},
        "train": {"max_steps": 1000},
    }
    path = tmp_path / "small.toml"
    path.write_text(tomli_w.dumps(values), encoding="utf-8")
    return path


def plan(cli: Cli, config: Path, *options: object) -> dict[str, Any]:
    result = cli("plan", config, *options, "--format", "json")
    assert result.code == 0, result.err
    values: dict[str, Any] = json.loads(result.out)
    return values


def test_table_has_a_row_for_each_number_of_devices_within_80_columns(cli: Cli, config: Path) -> None:
    result = cli("plan", config, "--device", "h200", "--world", "1..4096")
    assert result.code == 0
    lines = result.out.splitlines()
    assert max(map(len, lines)) <= 80 and "…" not in result.out
    rows = [line.split() for line in lines if line.split()[:1] and line.split()[0] in ("1", "2", "4", "8")]
    assert [row[:2] for row in rows] == [["1", "4"], ["2", "2"], ["4", "1"]]
    assert "more than 4 devices cannot be used" in " ".join(result.out.split())


def test_json_has_the_facts_of_the_run(cli: Cli, config: Path) -> None:
    values = plan(cli, config, "--world", "1,2", "--price", "3")
    one, two = values["estimates"]
    parameters = (300 + 16) * 16 + (4 * 16 * 16 + 4 * 16 + 2 * 16 * 32 + 32 + 16) + 3 * 2 * 16
    assert values["size"]["total"] == sum(values["size"]["parts"].values()) == parameters
    assert values["steps"] == 1000 and values["batch"]["targets_per_step"] == 64
    assert one["communication"]["n_bytes"] == 0
    assert two["communication"]["n_bytes"] == 4 * parameters
    assert two["memory"]["total"] == sum(two["memory"][kind] for kind in two["memory"] if kind != "total")
    assert two["cost"] == pytest.approx(2 * 3 * two["hours"])
    assert one["fits"]


def test_tokens_are_a_budget_of_predictions(cli: Cli, config: Path) -> None:
    assert plan(cli, config, "--world", "1", "--tokens", "6401")["steps"] == 101
    accumulated = plan(cli, config, "--world", "1", "--tokens", "6401", "train.accumulate=4")
    assert accumulated["steps"] == 26
    assert accumulated["flops"]["total"] == 4 * plan(cli, config, "--world", "1")["flops"]["total"]


def test_a_faster_device_and_a_lower_efficiency_change_the_time(cli: Cli, config: Path) -> None:
    wide = ["model.d_model=1024", "model.d_ff=4096", "data.batch_tokens=65536", "--world", "1"]
    seconds = [
        plan(cli, config, *wide, *options)["estimates"][0]["compute_seconds"]
        for options in (["--device", "p100"], ["--device", "h100"], ["--device", "h100", "--efficiency", "0.1"])
    ]
    assert seconds[0] > 2 * seconds[1] and seconds[2] > 2 * seconds[1]


def test_figure_is_a_picture_of_time_memory_and_cost(cli: Cli, config: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.svg"
    assert cli("plan", config, "--world", "1..4", "--figure", file).code == 0
    picture = ElementTree.fromstring(file.read_text(encoding="utf-8"))
    texts = {element.text for element in picture.iter() if element.text}
    assert {"time, hours", "memory of a device, GiB", "cost, US dollars", "devices", "4"} <= texts
    dots = [element for element in picture.iter() if element.tag.endswith("circle")]
    assert len(dots) == 3 * 3
    width, height = (float(picture.attrib[name]) for name in ("width", "height"))
    for dot in dots:
        assert 0 < float(dot.attrib["cx"]) < width and 0 < float(dot.attrib["cy"]) < height


def test_division_of_the_training_is_that_of_the_plan(cli: Cli, config: Path) -> None:
    options = plan(cli, config, "--parallel", "fsdp", "--tensor-parallel", "2", "--world", "2")
    assert plan(cli, config, "train.parallel=fsdp", "train.tensor_parallel=2", "--world", "2") == options
    whole = plan(cli, config, "--world", "2")
    assert whole["estimates"][0]["memory"]["weights"] > options["estimates"][0]["memory"]["weights"]


def test_measurement_of_this_machine(cli: Cli, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.planning.measure.LEAST_SECONDS", 0.01)
    monkeypatch.setattr("glassformer.planning.measure.COPIED_BYTES", 1 << 20)
    values = plan(cli, config, "--measure", "--world", "1,2", "train.device=cpu")
    assert values["device"]["name"].startswith("this machine")
    assert values["device"]["float32"] > 0 and values["device"]["bandwidth"] > 0
    one, two = values["estimates"]
    assert one["step_seconds"] > 0 and one["memory"]["activations"] > two["memory"]["activations"] > 0
    assert one["cost"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "h1000"], "--device h1000: not a known device; did you mean h100? (known: p100, v100, "),
        (["--world", "0"], "--world 0: a training needs at least one device"),
        (["--world", "0..8"], "--world 0: a training needs at least one device"),
        (["--world", "8"], "--world 8: a batch has 4 windows to share; choose at most 4 devices"),
        (["--world", "8..2"], "--world 8..2: the range is empty"),
        (["--world", "many"], "--world many: not a number of devices; write 8, 1,2,8 or 1..4096"),
        (["--tensor-parallel", "3", "--world", "6"], "--tensor-parallel 3 does not divide model.n_heads=2"),
        (
            ["--tensor-parallel", "2", "--world", "3"],
            "--world 3 is not a multiple of --tensor-parallel 2; choose 2, 4, 6, …",
        ),
        (["--measure", "--tensor-parallel", "2"], "--measure runs on one process"),
        (["--figure", "plan.png"], "plan.png: a plan is drawn as SVG"),
    ],
)
def test_settings_that_cannot_be(refused: Callable[..., str], config: Path, options: list[str], message: str) -> None:
    assert refused("plan", config, *options).startswith(message)


def test_sizes_that_the_data_decide_are_required(refused: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "images.toml"
    path.write_text('[model]\nkind = "vit"\n[data]\ntrain = ["missing"]\n', encoding="utf-8")
    assert refused("plan", path) == f"{path}: the data decide model.n_classes; add it, as in model.n_classes=10"


def test_every_known_device_has_a_source_and_possible_rates() -> None:
    for name, device in known_devices().items():
        assert find_device(name.upper()) is device
        assert device.source.startswith("https://")
        assert device.network <= device.link < device.bandwidth, name
        assert device.bfloat16 is None or device.bfloat16 > device.float32, name
