"""Routes: the engine of every part of a model, and the reason; engines that cannot compute it are refused."""

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from glassformer.errors import CheckpointError, ConfigError
from glassformer.generate.candidates import TorchSearch, search_of
from glassformer.models.registry import build_model
from glassformer.native import Accelerated, accelerate, describe, route
from glassformer.native.decoding import NativeDecoder
from glassformer.native.library import kernels, loaded
from glassformer.native.stack import NativeStack
from glassformer.predict.translator import Translator
from glassformer.storage.checkpoint import load_checkpoint, save_checkpoint
from glassformer.storage.run_folder import resolve
from glassformer.taps import record
from glassformer.train import parse_config, read_config
from glassformer.train.loss import projection_loss
from tiny_run import TinyRun, run_to_the_end

CONFIGS = Path(__file__).parents[2] / "configs"
SMALL = {"d_model": 64, "n_heads": 2, "d_ff": 128, "dropout": 0.0}
IDS, IMAGES, SERIES = torch.randint(1, 40, (2, 9)), torch.rand(2, 3, 8, 8), torch.rand(2, 24, 3)
KINDS: dict[str, tuple[dict[str, Any], tuple[Tensor, ...]]] = {
    "encoder_decoder": ({"vocab_size": 40, "n_encoder_layers": 1, "n_decoder_layers": 1}, (IDS, IDS)),
    "gpt": ({"vocab_size": 40, "n_layers": 1}, (IDS,)),
    "bert": ({"vocab_size": 40, "n_layers": 1}, (IDS,)),
    "vit": ({"n_classes": 5, "n_layers": 1, "image_size": [8, 8], "patch_size": 4}, (IMAGES,)),
    "series": ({"n_layers": 1, "context": 24, "horizon": 6, "patch_length": 6, "patch_stride": 3}, (SERIES,)),
    "recurrent": ({"vocab_size": 40, "d_hidden": 64, "n_encoder_layers": 1, "n_decoder_layers": 1}, (IDS, IDS)),
}
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "plain": {},
    "silu": {kind: {"activation": "silu"} for kind in ("encoder_decoder", "gpt", "bert", "vit", "series")},
    "llama": {"gpt": {"norm": "rms", "positions": "rotary", "activation": "silu", "gated": True, "bias": False}},
    "shared keys": {"gpt": {"n_heads": 4, "attention": {"n_kv_heads": 2, "d_head": 32}}},
    "one head of keys": {"gpt": {"attention": {"n_kv_heads": 1}}},
    "narrow": {"series": {"d_model": 48}, "vit": {"d_model": 48}},
    "narrow heads": {kind: {"n_heads": 8} for kind in ("encoder_decoder", "gpt", "bert", "vit", "series", "recurrent")},
}
CASES = [(kind, name) for name, kinds in VARIANTS.items() for kind in KINDS if name == "plain" or kind in kinds]


@pytest.fixture(autouse=True)
def _kernels() -> None:
    if kernels() is None:
        pytest.skip("there are no kernels here")


def model(kind: str, variant: str = "plain") -> Any:
    torch.manual_seed(0)
    values = KINDS[kind][0] | VARIANTS[variant].get(kind, {})
    sizes = {name: value for name, value in SMALL.items() if not (kind == "recurrent" and name == "d_ff")}
    return build_model({"kind": kind, **sizes, **values}, "test").train()


def gradients(made: Any, of: Any, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """Output of ``made``, and the gradients that it leaves in the parameters of ``of``."""
    of.zero_grad()
    output = made(*inputs)
    output.square().sum().backward()
    found = {name: p.grad.clone() for name, p in of.named_parameters() if p.grad is not None}
    return found | {"output": output.detach()}


def assert_close(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in other.items():
        torch.testing.assert_close(one[name], tensor, atol=2e-4 * float(tensor.abs().max()) + 1e-5, rtol=1e-3)


@pytest.mark.parametrize(("kind", "variant"), CASES)
def test_every_engine_gives_the_output_and_gradients_of_the_model(kind: str, variant: str) -> None:
    made, inputs = model(kind, variant), KINDS[kind][1]
    expected = gradients(made, made, inputs)
    for engine in ("auto", "torch"):
        assert_close(gradients(accelerate(made, engine), made, inputs), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_in_the_model_runs_under_every_engine(kind: str) -> None:
    made, inputs, calls = model(kind), KINDS[kind][1], list[str]()
    expected = gradients(made, made, inputs)
    for name, module in made.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda *_, name=name: calls.append(name))
    for engine in ("auto", "torch"):
        calls.clear()
        assert_close(gradients(accelerate(made, engine), made, inputs), expected)
        assert calls
    once = sorted(calls)
    calls.clear()
    made(*inputs)
    assert sorted(calls) == once


@pytest.mark.parametrize("kind", KINDS)
def test_a_trace_of_the_model_is_the_same_beside_an_accelerated_form(kind: str) -> None:
    made, inputs = model(kind), KINDS[kind][1]
    with record(made) as before:
        made(*inputs)
    accelerate(made)(*inputs)
    with record(made) as after:
        made(*inputs)
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_trace_of_the_model_records_a_call_of_its_accelerated_form(kind: str) -> None:
    made, inputs = model(kind), KINDS[kind][1]
    with record(made) as one:
        made(*inputs)
    with record(made) as other:
        accelerate(made)(*inputs)
    assert list(one) == list(other)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("kind", KINDS)
def test_an_accelerated_form_has_the_parameters_of_the_model(kind: str) -> None:
    made = model(kind)
    forms = dict(accelerate(made).named_parameters())
    assert list(forms) == [name for name, _ in made.named_parameters()]
    assert all(forms[name] is parameter for name, parameter in made.named_parameters())


@pytest.mark.parametrize(
    ("kind", "variant", "part", "reason"),
    [
        ("series", "narrow", "encoder", "d_model=48 is not a multiple of 64"),
        ("gpt", "one head of keys", "decoder", "2 heads, 1 of keys and values, of 32 do not fill a multiple of 64"),
        ("recurrent", "plain", "decoder", "no kernel for the whole part"),
        ("vit", "plain", "embedding", "no kernel for the whole part"),
    ],
)
def test_a_part_that_is_not_native_has_a_reason(kind: str, variant: str, part: str, reason: str) -> None:
    made = model(kind, variant)
    (found,) = (one for one in route(made) if one.part == part)
    assert found.engine in ("native operations", "torch")
    assert found.reason == reason
    assert f"{part} ({reason})" in describe([found])
    with pytest.raises(ConfigError, match=rf"engine=native cannot compute .*\({reason}\).*; choose engine=auto"):
        accelerate(made, "native")


@pytest.mark.parametrize("preset", ["paper_base", "paper_big", "multi30k", "multi30k_quick", "multi30k_tok"])
def test_presets_of_translation_are_native_in_all_parts(preset: str) -> None:
    config = read_config(CONFIGS / f"{preset}.toml", [])
    with torch.device("meta"):
        made = build_model(config.model.model_dump() | {"vocab_size": 100}, preset)
    for precision in ("float32", "bfloat16") if loaded().has_bfloat16 else ("float32",):
        routes = route(made, "native", precision, torch.device("cpu"))
        assert {one.engine for one in routes} == {"native"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_a_model_converted_afterwards_is_computed_by_pytorch(dtype: torch.dtype) -> None:
    made = model("encoder_decoder")
    accelerated = accelerate(made)
    assert isinstance(accelerated.encoder, NativeStack)
    made.to(dtype)
    plain, found = made.hidden(IDS, IDS), accelerated.to(dtype).hidden(IDS, IDS)
    torch.testing.assert_close(found, plain, atol=0.1 if dtype == torch.bfloat16 else 1e-10, rtol=0.1)
    target = IDS.flatten()
    losses = [projection_loss(each.output_projection, plain.flatten(0, 1), target, 0.1) for each in (accelerated, made)]
    torch.testing.assert_close(losses[0].loss, losses[1].loss)


def test_bfloat16_reaches_the_loss_of_float32_weights() -> None:
    """A processor without bfloat16 computes it by PyTorch: its kernel would read twice the memory."""
    made = model("encoder_decoder")
    projection = accelerate(made).output_projection
    hidden = torch.randn(4096, projection.weight.size(1), generator=torch.manual_seed(0)).bfloat16()
    target = torch.arange(4096) % len(projection.weight)
    given = [hidden.clone().requires_grad_() for _ in range(2)]
    losses = [
        projection_loss(*each, target, 0.1).loss
        for each in ((projection, given[0]), (made.output_projection, given[1]))
    ]
    for loss in losses:
        loss.backward()
    assert projection.computes(hidden, target) == loaded().has_bfloat16
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-3, atol=0)
    found, expected = (cast(Tensor, each.grad).float() for each in given)
    assert (found - expected).norm() <= 0.01 * expected.norm()  # some entries cancel to rounding errors of their terms


@pytest.mark.parametrize(
    "part", ["encoder.layers.0.feed_forward.outer", "decoder.layers.0.cross_attention.value", "source_embedding"]
)
def test_weights_set_afterwards_may_lie_by_columns(part: str) -> None:
    made = model("encoder_decoder")
    accelerated, module = accelerate(made), made.get_submodule(part)
    module.weight = nn.Parameter(module.weight.detach().t().contiguous().t())
    assert not module.weight.is_contiguous()
    assert_close(gradients(accelerated, made, (IDS, IDS)), gradients(made, made, (IDS, IDS)))


def test_the_loss_reads_weights_by_columns_in_pytorch() -> None:
    made = model("encoder_decoder")
    projection, hidden, target = accelerate(made).output_projection, torch.randn(5, 64), torch.arange(5)
    assert projection.computes(hidden, target)
    made.output_projection.weight = nn.Parameter(torch.randn(64, 40).t())
    assert not projection.computes(hidden, target)
    losses = [projection_loss(each, hidden, target, 0.1).loss for each in (projection, made.output_projection)]
    torch.testing.assert_close(*losses)


def test_a_layer_converted_afterwards_raises_the_error_of_pytorch() -> None:
    made = model("encoder_decoder")
    accelerated = accelerate(made)
    made.encoder.layers[0].self_attention.to(torch.bfloat16)
    for each in (made, accelerated):
        with pytest.raises(RuntimeError, match="same dtype"):
            each(IDS, IDS)


@pytest.mark.parametrize("change", ["shape", "device"])
def test_weights_of_another_shape_or_device_raise_the_error_of_pytorch(change: str) -> None:
    made = model("encoder_decoder")
    accelerated, feed_forward = accelerate(made), made.encoder.layers[0].feed_forward
    if change == "shape":
        feed_forward.inner.weight = nn.Parameter(torch.zeros(64, 64))  # of 128 × 64
    else:
        feed_forward.to("meta")
    for each in (made, accelerated):
        with pytest.raises(RuntimeError):
            each(IDS, IDS).sum().item()


def test_a_search_of_a_model_converted_afterwards_is_pytorchs() -> None:
    made = model("gpt").eval()
    search = search_of(accelerate(made))
    for dtype in (torch.float64, torch.bfloat16):
        logits = torch.randn(3, 40).to(dtype)
        torch.testing.assert_close(search.log_sum(logits), TorchSearch().log_sum(logits))
        assert torch.equal(search.best(logits, 2)[0], TorchSearch().best(logits, 2)[0])


def test_weights_that_the_kernels_cannot_read_have_a_reason() -> None:
    strided, mixed = model("gpt"), model("gpt")
    strided.embedding.weight = nn.Parameter(torch.randn(64, 40).t())
    for block in mixed.decoder.layers:
        block.feed_forward_norm.bfloat16()
    reasons = [{one.part: one.reason for one in route(made)} for made in (strided, mixed)]
    assert reasons[0]["embedding"] == "weights with strides"
    assert reasons[1]["decoder"] == "weights of several types"


def test_a_stack_without_cross_attention_ignores_a_memory() -> None:
    made, x = model("encoder_decoder"), torch.randn(2, 9, 64)
    found = accelerate(made).encoder(x, None, torch.randn(2, 5, 64))
    torch.testing.assert_close(found, made.encoder(x), atol=1e-5, rtol=1e-5)


def test_a_model_with_hooks_or_active_dropout_is_not_packed() -> None:
    hooked, active = model("encoder_decoder").eval(), model("encoder_decoder").eval()
    hooked.decoder.register_forward_hook(lambda *_: None)
    active.encoder.layers[0].self_attention.dropout.train()
    for made in (hooked, active):
        assert {one.reason for one in route(made) if one.part == "decoder"} == {"hooks, or modules in training mode"}
        assert not isinstance(accelerate(made), NativeDecoder)


def test_weights_written_before_they_are_packed_are_not_stale() -> None:
    made = model("encoder_decoder").eval()
    accelerated = Accelerated(made)
    accelerated.form("torch", "float32")
    with torch.no_grad():
        made.output_projection.weight.mul_(2)
    assert isinstance(accelerated.form("auto", "float32"), NativeDecoder)


@pytest.mark.parametrize(("engine", "precision"), [("nativ", "float32"), ("auto", "fp16"), ("compile", "float32")])
def test_accelerate_refuses_unknown_names(engine: Any, precision: Any) -> None:
    with pytest.raises(ConfigError, match=r"is not known; choose from"):
        accelerate(model("gpt").eval(), engine, precision)


def test_an_unknown_engine_is_refused(tiny: TinyRun) -> None:
    with pytest.raises(ConfigError, match=r"train\.engine='fast'.*'auto', 'torch', 'native' or 'compile'"):
        tiny.config({"train.engine": "fast"})
    with pytest.raises(ConfigError, match=r"engine='compile'.*'auto', 'torch' or 'native'"):
        tiny.translator.configure(engine="compile")


def test_training_refuses_an_engine_that_cannot_compute_a_part(tiny: TinyRun, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^train\.engine=native cannot compute .*; choose engine=auto"):
        run_to_the_end(tiny.config({"train.engine": "native", "model.d_ff": 100}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("first", "second"), [("auto", "torch"), ("torch", "native")])
def test_a_run_resumes_on_the_same_engine_only(tiny: TinyRun, tmp_path: Path, first: str, second: str) -> None:
    sizes = {"model.d_model": 64, "model.n_heads": 2, "model.d_ff": 128}
    run_to_the_end(tiny.config({**sizes, "train.max_steps": 2, "train.engine": first}), tmp_path / "run")
    there, here = (
        tiny.config({**sizes, "train.max_steps": 3, "train.engine": second}),
        "continues exactly only on the same",
    )
    with pytest.raises(CheckpointError, match=rf"{here} engine; set train\.engine"):
        run_to_the_end(there, tmp_path / "run", resume=True)
    same = tiny.config({**sizes, "train.max_steps": 3, "train.engine": "native" if first == "auto" else first})
    assert run_to_the_end(same, tmp_path / "run", resume=True)[-1].step == 3


@pytest.mark.parametrize(
    ("setting", "reason"), [("engine", "native"), ("precision", "bfloat16"), ("precision", "int8")]
)
def test_decoding_settings_that_validation_cannot_use_are_refused_before_the_first_step(
    tiny: TinyRun, tmp_path: Path, setting: str, reason: str
) -> None:
    state = torch.get_rng_state()
    model = {"kind": "recurrent", "d_model": 16, "d_hidden": 16, "n_decoder_layers": 1}
    config = parse_config(tiny.settings({f"decoding.{setting}": reason}) | {"model": model})
    with pytest.raises(ConfigError, match=rf"^decoding\.{setting}={reason} is "):
        run_to_the_end(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert torch.equal(torch.get_rng_state(), state)


def test_a_checkpoint_that_stores_bfloat16_decodes_on_a_cpu_in_float32(tiny: TinyRun, tmp_path: Path) -> None:
    stored = load_checkpoint(resolve(tiny.run))
    config = {**stored.config, "decoding": {**stored.config["decoding"], "precision": "bfloat16"}}
    save_checkpoint(
        checkpoint := tmp_path / "copied", config=config, tokenizer=stored.tokenizer, weights=stored.weights
    )
    with pytest.warns(
        UserWarning,
        match=r"config\.json: decoding\.precision=bfloat16 is slower than float32 on a CPU, .*; using float32",
    ):
        translator = Translator.load(checkpoint)
    assert translator.translate(["the dog runs."]) == tiny.translator.translate(["the dog runs."])
    with pytest.raises(ConfigError, match="slower than float32 on a CPU"):
        translator.translate(["the dog runs."], precision="bfloat16")


def test_the_first_event_of_a_training_names_its_engines(tiny: TinyRun, tmp_path: Path) -> None:
    started = run_to_the_end(tiny.config({"train.max_steps": 1, "train.engine": "torch"}), tmp_path / "run")[0]
    assert started.engine.startswith("torch: source_embedding")
    assert started.engine.endswith("(engine=torch)")


def test_the_setting_before_engine_is_read(tiny: TinyRun) -> None:
    assert tiny.translator.configure(compiled=False).engine == "torch"
    assert tiny.translator.configure(compiled=True).engine == "auto"


class Added(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


def test_a_stack_with_a_subclass_of_a_linear_layer_trains_block_by_block() -> None:
    plain = model("encoder_decoder")
    plain.decoder.layers[0].feed_forward.inner.__class__ = Added
    routes = {one.part: one for one in route(plain)}
    assert (routes["decoder"].engine, routes["decoder"].reason) == ("native operations", "no kernel for Added")
    assert routes["encoder"].engine == "native"
    ids = torch.randint(3, 40, (2, 9))
    found, expected = (one.hidden(ids, ids) for one in (accelerate(plain), plain))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
