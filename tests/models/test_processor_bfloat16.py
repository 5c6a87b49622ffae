"""The choice of bfloat16 or float32 for layers on a processor."""

import platform
import warnings
from pathlib import Path

import pytest
import torch

from glassformer.models import device

CPU = torch.device("cpu")


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file with the features of an emulated ARM processor, not written yet."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(device, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(device, "_processor_has_bfloat16", device._processor_has_bfloat16.__wrapped__)
    return tmp_path / "cpuinfo"


def test_arm_processors_with_bfloat16_compute_in_it(arm: Path) -> None:
    arm.write_text("Features\t: fp asimd asimddp sve svebf16 i8mm bf16\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert device.fast_in_bfloat16(CPU)


def test_arm_processors_without_bfloat16_compute_in_float32_with_a_warning(arm: Path) -> None:
    arm.write_text("Features\t: fp asimd asimddp\n")
    with pytest.warns(UserWarning, match="no bfloat16 instructions; glassformer computes in float32"):
        assert not device.fast_in_bfloat16(CPU)


def test_arm_processors_whose_features_cannot_be_read_compute_in_bfloat16(arm: Path) -> None:
    assert not arm.exists()
    assert device.fast_in_bfloat16(CPU)


def test_processors_of_other_kinds_compute_in_bfloat16(arm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arm.write_text("isa\t: rv64imafdcv\n")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert device.fast_in_bfloat16(CPU)
