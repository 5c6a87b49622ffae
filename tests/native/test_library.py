"""The kernels are used only if C++ and Python agree on the layout of what passes between them."""

import ctypes

import pytest

from glassformer.native import abi, library


@pytest.fixture
def made() -> library.Kernels:
    if (functions := library.kernels()) is None:
        pytest.skip("there are no kernels here")
    return functions


STRUCTS = [name for name, kind in vars(abi).items() if getattr(kind, "__base__", None) is ctypes.Structure]


def test_every_struct_is_compared() -> None:
    assert len(STRUCTS) == 20


@pytest.mark.parametrize("name", STRUCTS)
def test_kernels_refuse_a_struct_with_another_size(
    made: library.Kernels, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    class Longer(getattr(abi, name)):  # type: ignore[misc]
        _fields_ = (("more", ctypes.c_int64),)

    size = ctypes.sizeof(getattr(abi, name))
    monkeypatch.setattr(abi, name, Longer)
    with pytest.warns(
        UserWarning, match=rf"struct {name}: {size} bytes in C\+\+, {size + 8} in Python; install glassformer again"
    ):
        assert library._kernels.__wrapped__() is None


def test_kernels_refuse_a_struct_that_they_lack(made: library.Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(ctypes.Structure):
        _fields_ = (("field", ctypes.c_int64),)

    monkeypatch.setattr(abi, "Other", Other, raising=False)
    with pytest.warns(UserWarning, match="struct Other: -1 bytes in C"):
        assert library._kernels.__wrapped__() is None
