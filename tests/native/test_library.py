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
    assert len(STRUCTS) == 25


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
        assert isinstance(library.load(), str)


@pytest.mark.parametrize("name", STRUCTS)
def test_kernels_refuse_a_struct_with_two_fields_exchanged(
    made: library.Kernels, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Two fields of one size, so that the size of the struct stays."""
    fields = [*getattr(abi, name)._fields_]
    places = [getattr(getattr(abi, name), field) for field, _ in fields]
    i, j = next((i, j) for j in range(len(fields)) for i in range(j) if places[i].size == places[j].size)
    fields[i], fields[j] = fields[j], fields[i]
    monkeypatch.setattr(abi, name, type(name, (ctypes.Structure,), {"_fields_": fields}))
    size, here, there = places[j].size, places[j].offset, places[i].offset
    message = (
        rf"struct {name}: field {fields[i][0]} is {size} bytes at {here} in C\+\+, {size} bytes at {there} in Python; "
        "install glassformer again"
    )
    with pytest.warns(UserWarning, match=message):
        assert isinstance(library.load(), str)


def test_kernels_refuse_a_field_of_another_name(made: library.Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = [("row" if name == "rows" else name, kind) for name, kind in abi.MatrixProduct._fields_]
    monkeypatch.setattr(abi, "MatrixProduct", type("MatrixProduct", (ctypes.Structure,), {"_fields_": fields}))
    with pytest.warns(UserWarning, match=r"MatrixProduct: field row is missing in C\+\+, 8 bytes at 0 in Python"):
        assert isinstance(library.load(), str)


def test_kernels_refuse_a_struct_that_they_lack(made: library.Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(ctypes.Structure):
        _fields_ = (("field", ctypes.c_int64),)

    monkeypatch.setattr(abi, "Other", Other, raising=False)
    with pytest.warns(UserWarning, match=r"struct Other: no bytes in C\+\+, 8 in Python"):
        assert isinstance(library.load(), str)
