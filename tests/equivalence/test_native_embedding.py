"""An embedding that the kernels compute in one pass equals PyTorch's: values, gradients, dropout."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from glassformer.layers.dropout import Dropout
from glassformer.layers.embedding import SegmentEmbedding, TokenEmbedding
from glassformer.layers.norm import LayerNorm, RMSNorm
from glassformer.layers.position import Learned, Sinusoidal
from glassformer.native import embedding as native_embedding
from glassformer.native.embedding import NativeEmbedding
from glassformer.native.library import kernels
from glassformer.taps import record

D_MODEL, VOCAB = 64, 50
POSITIONS: dict[str, Callable[[], torch.nn.Module | None]] = {
    "sinusoidal": lambda: Sinusoidal(32, D_MODEL),
    "learned": lambda: Learned(32, D_MODEL),
    "none": lambda: None,
}
SENTENCES = {
    "packed": torch.tensor([[1, 1, 1, 2, 2, 2, 3, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1, 1]]),
    "padded": torch.tensor([[1, 1, 1, 1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0, 0]]).bool(),
    "whole": None,
}


NORMS = {"none": None, "layer": LayerNorm, "rms": RMSNorm}


def made(
    positions: str, dropout: float = 0.0, segments: bool = False, norm: type[torch.nn.Module] | None = None
) -> NativeEmbedding:
    torch.manual_seed(0)
    segment = SegmentEmbedding(3, D_MODEL) if segments else None
    normalization = None if norm is None else norm(D_MODEL)
    position = POSITIONS[positions]()
    module = NativeEmbedding(VOCAB, D_MODEL, position, Dropout(dropout), None, segment, normalization).train()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


@pytest.fixture
def in_one_pass(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """True for each call of the kernel."""
    if kernels() is None:
        pytest.skip("no kernels")
    found, apply = list[bool](), native_embedding._Embedded.apply

    def noted(*given: object) -> Tensor:
        found.append(True)
        return apply(*given)

    monkeypatch.setattr(native_embedding._Embedded, "apply", noted)
    return found


def ids() -> Tensor:
    """Some of them often, most of them never."""
    return torch.randint(7, 13, (2, 9))


@pytest.mark.parametrize("sentences", SENTENCES)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("segments", ["none", "first", "given"])
@pytest.mark.parametrize("norm", NORMS)
def test_values_and_gradients_are_those_of_single_steps(
    positions: str, sentences: str, segments: str, norm: str, in_one_pass: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = made(positions, segments=segments != "none", norm=NORMS[norm])
    some, factors = ids(), torch.randn(2, 9, D_MODEL)
    chosen = torch.tensor([0, 0, 2, 2, 2, 2, 1, 1, 1]).expand(2, 9) if segments == "given" else None
    results = []
    for one_pass in (True, False):
        if not one_pass:
            monkeypatch.setattr(native_embedding, "computes_gradient", lambda *_: False)
        module.zero_grad()
        x = module(some, SENTENCES[sentences], segments=chosen)
        (x * factors).sum().backward()
        results.append([x.detach(), *(p.grad for p in module.parameters())])
    assert in_one_pass == [True]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("positions", POSITIONS)
def test_the_gradient_is_that_of_what_dropout_left(positions: str, in_one_pass: list[bool]) -> None:
    """The result is linear in the weights: their product with the gradient is the loss, but for fixed positions."""
    module, some, sentences = made(positions, dropout=0.4), ids(), SENTENCES["packed"]
    factors = torch.randn(2, 9, D_MODEL)
    torch.manual_seed(1)
    x = module(some, sentences)
    torch.manual_seed(1)
    assert torch.equal(module(some, sentences), x)
    assert not torch.equal(module(some, sentences), x)
    assert 0.3 < (x[sentences != 0] == 0).float().mean() < 0.5
    (x * factors).sum().backward()
    explained = sum((p * p.grad).sum() for p in module.parameters())
    if positions == "sinusoidal":
        with torch.no_grad():
            module.weight.zero_()
        torch.manual_seed(1)
        explained = explained + (module(some, sentences) * factors).sum()
    torch.testing.assert_close(explained, (x * factors).sum(), atol=1e-3, rtol=1e-5)
    assert all(in_one_pass)


def test_weights_exchanged_for_others_of_half_a_panel_are_read_by_pytorch(in_one_pass: list[bool]) -> None:
    """The kernel computes full vectors only."""
    module, some = made("none"), ids()
    module.weight = torch.nn.Parameter(torch.randn(VOCAB, 40))
    assert module(some).shape == (2, 9, 40)
    assert not in_one_pass


@pytest.mark.parametrize("sentences", ["packed", "padded"])
def test_rows_may_share_their_sentences(sentences: str, in_one_pass: list[bool]) -> None:
    module, some, shared = made("learned"), ids(), SENTENCES[sentences][:1]
    assert torch.equal(module(some, shared), module(some, shared.expand(2, -1).clone()))
    assert in_one_pass == [True, True]


def test_tokens_that_change_before_the_gradient_are_noticed(in_one_pass: list[bool]) -> None:
    """As PyTorch does: the gradient would go to other rows, or to none that there are."""
    some = ids()
    x = made("sinusoidal")(some)
    some[0, 0] = -100
    with pytest.raises(RuntimeError, match="inplace"):
        x.sum().backward()


def test_positions_are_computed_once() -> None:
    module, asked = TokenEmbedding(VOCAB, 48, Sinusoidal(32, 48), Dropout(0.0)).train(), []
    module.position.register_forward_hook(lambda *_: asked.append(1))
    module(ids())
    assert asked == [1]


@pytest.mark.parametrize("norm", NORMS)
def test_threads_change_no_bit(norm: str, in_one_pass: list[bool]) -> None:
    module, many = made("learned", dropout=0.1, segments=True, norm=NORMS[norm]), torch.randint(VOCAB, (16, 32))
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            torch.manual_seed(2)
            module.zero_grad()
            x = module(many)
            x.square().sum().backward()
            found.append([x.detach(), *(p.grad for p in module.parameters())])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))
    assert all(in_one_pass)


@pytest.mark.parametrize("wrong", [-1, VOCAB])
def test_a_token_beyond_the_vocabulary_is_refused(wrong: int, in_one_pass: list[bool]) -> None:
    with pytest.raises(IndexError):
        made("sinusoidal")(torch.tensor([[3, wrong]]))


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_segment_beyond_the_table_is_refused(wrong: int, in_one_pass: list[bool]) -> None:
    with pytest.raises(IndexError, match="a segment is outside the 3 of the model"):
        made("learned", segments=True)(torch.tensor([[3, 4]]), segments=torch.tensor([[0, wrong]]))


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_the_gradient_goes_through_dropout_before_the_norm(norm: str, in_one_pass: list[bool]) -> None:
    """With the mask of the forward pass: elements that were dropped have no part in any gradient."""
    module, some, factors = made("learned", 0.4, True, NORMS[norm]), ids(), torch.randn(2, 9, D_MODEL)
    torch.manual_seed(1)
    x = module(some)
    kept = x.detach() != 0
    (x * factors).sum().backward()
    found = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    rate = module.dropout.rate
    module.dropout.set_share(0.0)
    (module(some) * factors * kept / (1 - rate)).sum().backward()
    for one, parameter in zip(found, module.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad, atol=1e-4, rtol=1e-4)
    assert in_one_pass == [True, True]


def test_weights_that_change_before_the_gradient_are_noticed(in_one_pass: list[bool]) -> None:
    """The norm's gradient computes the sums again."""
    module = made("learned", norm=LayerNorm)
    x = module(ids())
    with torch.no_grad():
        module.weight.zero_()
    with pytest.raises(RuntimeError, match="inplace"):
        x.sum().backward()


@pytest.mark.parametrize("norm", NORMS)
def test_saved_tensors_may_be_stored_elsewhere(norm: str, in_one_pass: list[bool]) -> None:
    """As checkpointing does: each unpacking makes new tensors."""
    module, some = made("learned", segments=True, norm=NORMS[norm]), ids()
    module(some).square().sum().backward()
    expected = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x.clone()):
        x = module(some)
        x.square().sum().backward()
    assert all(torch.equal(p.grad, one) for p, one in zip(module.parameters(), expected, strict=True))
    checkpoint(lambda some: module(some).square().sum(), some, use_reentrant=False).backward()
    assert in_one_pass == [True] * 4


@pytest.mark.parametrize("part", ["position", "segment", "norm", "dropout"])
def test_a_hook_on_a_part_is_called(part: str, in_one_pass: list[bool]) -> None:
    module, calls = made("learned", segments=True, norm=LayerNorm), []
    expected = module(ids())
    module.get_submodule(part).register_forward_hook(lambda *_: calls.append(1))
    torch.manual_seed(0)
    module(ids())
    assert calls == [1]
    assert expected.requires_grad
    assert in_one_pass == [True]


@pytest.mark.parametrize("change", ["segments in bfloat16", "no normalization"])
def test_a_module_that_changed_is_computed_as_it_is(change: str, in_one_pass: list[bool]) -> None:
    module, some = made("learned", segments=True, norm=LayerNorm), ids()
    if change == "no normalization":
        module.norm = torch.nn.Identity()
    else:
        module.segment.bfloat16()
    expected = TokenEmbedding.forward(module, some)
    torch.testing.assert_close(module(some), expected)
    assert in_one_pass == []


def test_embedding_under_a_trace_or_in_decoding_uses_single_operations(in_one_pass: list[bool]) -> None:
    module = made("sinusoidal")
    with record(module) as found:
        module(ids())
    assert "scaled" in found
    with torch.no_grad():
        module(ids())
    module.eval()(ids())
    module.train().dropout.register_forward_hook(lambda *_: None)
    module(ids())
    assert in_one_pass == []
