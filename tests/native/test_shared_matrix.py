"""Gradients of the matrix that embeddings and the output projection of an accelerated model share."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from glassformer.models.registry import build_model
from glassformer.native import accelerate
from glassformer.native.library import kernels
from glassformer.train.loss import projection_loss

IDS = torch.randint(1, 40, (4, 9), generator=torch.Generator().manual_seed(0))
SMALL = {"vocab_size": 40, "d_model": 64, "n_heads": 2, "d_ff": 128, "dropout": 0.0}
LAYERS = {"kind": "encoder_decoder", "n_encoder_layers": 1, "n_decoder_layers": 1}
TIED = ("source_embedding", "target_embedding", "output_projection")


@pytest.fixture(autouse=True)
def _kernels() -> None:
    if kernels() is None:
        pytest.skip("there are no kernels here")


def built(**settings: Any) -> Any:
    torch.manual_seed(0)
    return build_model({**SMALL, **LAYERS, **settings}, "test").train()


def loss(model: Any) -> Tensor:
    hidden = model.hidden(IDS, IDS.flip(0))
    return projection_loss(model.output_projection, hidden.flatten(0, 1), IDS.flatten(), 0.1).loss


USES: dict[str, Callable[[Any], Tensor]] = {
    "loss": loss,
    "logits": lambda model: model(IDS, IDS.flip(0)).square().sum(),
    "embeddings alone": lambda model: model.hidden(IDS, IDS.flip(0)).sin().sum(),
    "one embedding": lambda model: model.encode(IDS).sin().sum(),
    "two passes": lambda model: loss(model) + 2 * loss(model),
}


def gradients(form: Any, of: nn.Module, use: Callable[[Any], Tensor] = loss) -> dict[str, Tensor | None]:
    """Gradients that ``use`` of ``form`` leaves in the parameters of ``of``."""
    of.zero_grad()
    use(form).backward()
    return {name: None if p.grad is None else p.grad.clone() for name, p in of.named_parameters()}


def assert_close(found: dict[str, Tensor | None], expected: dict[str, Tensor | None]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        one = found[name]
        assert (one is None) == (tensor is None), name
        if one is not None and tensor is not None and "key.bias" not in name:  # nothing but rounding
            assert one.layout == torch.strided, name
            assert (one - tensor).norm() <= 1e-4 * tensor.norm() + 1e-5, name


def share(model: Any, weight: nn.Parameter) -> None:
    for name in TIED:
        model.get_submodule(name).weight = weight


def weight_of(model: Any) -> nn.Parameter:
    weight: nn.Parameter = model.source_embedding.weight
    return weight


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("use", USES)
def test_gradients_are_dense_and_those_of_the_model(use: str, tied: bool) -> None:
    model = built(tie_embeddings=tied)
    assert_close(gradients(accelerate(model), model, USES[use]), gradients(model, model, USES[use]))


@torch.no_grad()
def doubled(weight: Tensor) -> None:
    weight.mul_(2)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "replaced": lambda model: share(model, nn.Parameter(2 * weight_of(model).detach())),
    "replaced in its memory": lambda model: share(model, nn.Parameter(weight_of(model).detach())),
    "untied": lambda model: setattr(model.target_embedding, "weight", nn.Parameter(2 * weight_of(model).detach())),
    "other memory": lambda model: setattr(weight_of(model), "data", 2 * weight_of(model).detach()),
    "in place": lambda model: weight_of(model).data.mul_(2),
    "in place, in a new version": lambda model: doubled(weight_of(model)),
    "loaded": lambda model: model.load_state_dict({name: 2 * w for name, w in model.state_dict().items()}),
    "assigned": lambda model: model.load_state_dict({n: 2 * w for n, w in model.state_dict().items()}, assign=True),
    "more tokens": lambda model: setattr(weight_of(model), "data", 2 * torch.cat([weight_of(model).detach()] * 2)),
    "converted and back": lambda model: model.double().float(),
    "frozen": lambda model: weight_of(model).requires_grad_(False),
    "hook on the parameter": lambda model: weight_of(model).register_hook(lambda gradient: 3 * gradient + 1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_of_the_parameter_takes_effect(change: str) -> None:
    model = built()
    form = accelerate(model)
    before = gradients(form, model)
    CHANGES[change](model)
    found = gradients(form, model)
    assert_close(found, gradients(model, model))
    if change not in ("replaced in its memory", "converted and back", "more tokens"):
        with pytest.raises(AssertionError):
            assert_close(before, found)


@pytest.mark.parametrize("tied", [True, False])
def test_optimizer_of_pytorch_trains_an_accelerated_model_as_it_trains_the_model(tied: bool) -> None:
    ends = []
    for accelerated in (True, False):
        model = built(tie_embeddings=tied)
        form = accelerate(model) if accelerated else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            loss(form).backward()
            optimizer.step()
        ends.append(model.state_dict())
    for name, weight in ends[1].items():
        torch.testing.assert_close(ends[0][name], weight, rtol=1e-4, atol=1e-5)


def test_replicated_model_trains_after_a_backward_pass_before_it() -> None:
    """DDP copies the weights of the first process into those of all, in place."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = built()
        form = accelerate(model)
        expected = gradients(form, model)
        replica = nn.parallel.DistributedDataParallel(form)
        model.zero_grad()
        replica(IDS, IDS.flip(0)).square().sum().backward()
        model.zero_grad()
        loss(form).backward()
        assert_close({name: p.grad for name, p in model.named_parameters()}, expected)
    finally:
        dist.destroy_process_group()


def test_loss_can_be_changed_in_place() -> None:
    model = built()
    form = accelerate(model)
    hidden = form.hidden(IDS, IDS.flip(0)).flatten(0, 1)
    found = projection_loss(form.output_projection, hidden, IDS.flatten(), 0.1)
    before = found.loss.item(), found.nll.item()  # type: ignore[union-attr]
    found.loss.div_(2)
    assert found.nll is not None
    found.nll.div_(4)
    assert (found.loss.item(), found.nll.item()) == pytest.approx((before[0] / 2, before[1] / 4))


def test_parameter_frozen_before_acceleration_can_be_unfrozen() -> None:
    model = built()
    weight_of(model).requires_grad_(False)
    form = accelerate(model)
    assert gradients(form, model)["source_embedding.weight"] is None
    weight_of(model).requires_grad_(True)
    assert_close(gradients(form, model), gradients(model, model))


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda form: pickle.loads(pickle.dumps(form))], ids=["copy", "pickle"]
)
def test_copy_has_gradients_of_its_own(copied: Callable[[Any], Any]) -> None:
    model = built()
    form = accelerate(model)
    expected = gradients(form, model)
    other = copied(form)
    model.zero_grad()
    assert_close(gradients(other, other), expected)
    assert all(p.grad is None for p in model.parameters())


def test_second_backward_pass_of_a_graph_gives_equal_gradients() -> None:
    model = built()
    value, weights = loss(accelerate(model)), list(model.parameters())
    first = torch.autograd.grad(value / 3, weights, retain_graph=True)
    second = torch.autograd.grad(value / 3, weights)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(value / 3, weights)


def test_backward_passes_accumulate() -> None:
    model = built()
    form = accelerate(model)
    once = gradients(form, model)
    loss(form).backward()
    assert_close(
        {name: p.grad for name, p in model.named_parameters()},
        {name: None if each is None else 2 * each for name, each in once.items()},
    )
