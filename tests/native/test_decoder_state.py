"""The state of a decoder in the kernels after an error, and with other rows than its sentences have."""

from typing import Any

import pytest
import torch

from glassformer.models.registry import build_model
from glassformer.native.decoding import NativeDecoder
from glassformer.native.library import kernels

SIZES = {"vocab_size": 40, "d_model": 64, "n_heads": 2, "d_ff": 128, "n_encoder_layers": 1, "n_decoder_layers": 2}
IDS = torch.randint(1, 40, (4, 6), generator=torch.Generator().manual_seed(0))
MASK = torch.ones(IDS.shape, dtype=torch.bool)


@pytest.fixture
def decoder() -> NativeDecoder:
    loaded = kernels()
    if loaded is None:
        pytest.skip("there are no kernels here")
    torch.manual_seed(0)
    made: Any = build_model({"kind": "encoder_decoder", **SIZES}, "test").eval()
    return NativeDecoder(made, loaded)


@torch.no_grad()
def test_a_step_that_ran_out_of_memory_can_be_taken_again(
    decoder: NativeDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise MemoryError

    expected, state = decoder.begin(IDS, MASK), decoder.begin(IDS, MASK)
    for each in (expected, state):
        decoder.step(IDS[:, :1], each)
    with monkeypatch.context() as patch:
        patch.setattr(decoder.packed.kernels, "decode", fail)
        with pytest.raises(MemoryError):
            decoder.step(IDS[:, 1:2], state)
    found = decoder.step(IDS[:, 1:2], state).clone()
    assert torch.equal(found, decoder.step(IDS[:, 1:2], expected))


@torch.no_grad()
def test_a_search_needs_as_many_hypotheses_of_each_sentence(decoder: NativeDecoder) -> None:
    state = decoder.begin(IDS, MASK)
    assert state.has_rows(4)
    state.select(torch.tensor([0]))
    assert not state.has_rows(1)  # of four sentences: the kernel would divide by 0
    state.select_sentences(torch.tensor([0]))
    assert state.has_rows(1)
    assert not state.has_rows(5)
