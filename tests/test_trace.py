"""Recording and editing tensors by name, and leaving the model as it was."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from glassformer import ConfigError, tap, trace, tracing
from glassformer.explain import view_tensor
from glassformer.generate import DecodingConfig, SpecialTokens, generate
from glassformer.models.encoder_decoder import EncoderDecoder

WEIGHTS = "decoder.layers.1.cross_attention.weights"


SHOWN_ONLY = {"one_hot", "mask", "masked_scores", "mean", "deviation", "log_probabilities", "probabilities"}


def inputs() -> tuple[Tensor, Tensor]:
    return torch.randint(3, 12, (2, 6)), torch.randint(3, 12, (2, 4))


def test_tensors_are_recorded_under_the_path_of_their_module(make_model: Callable[..., EncoderDecoder]) -> None:
    model = make_model()
    with trace(model) as recorded:
        logits = model(*inputs())
    assert recorded[WEIGHTS].shape == (2, 2, 4, 6)
    assert torch.equal(recorded["output_projection.logits"], logits)
    assert not recorded["output_projection.logits"].requires_grad
    assert recorded["source_embedding.tokens"].size(1) == 6
    assert recorded["target_embedding.tokens"].size(1) == 4
    modules = dict(model.named_modules())
    assert len(recorded) > 50
    assert all(name.rpartition(".")[0] in modules for name in recorded)
    assert all(len(recorded.axes(name)) == recorded[name].ndim for name in recorded)
    assert not any("axis_" in axis for name in recorded for axis in recorded.axes(name))


def test_keep_is_a_glob_over_names(make_model: Callable[..., EncoderDecoder]) -> None:
    with trace(model := make_model(), keep="*.cross_attention.weights") as recorded:
        model(*inputs())
    assert list(recorded) == ["decoder.layers.0.cross_attention.weights", WEIGHTS]
    with pytest.raises(ConfigError, match=rf"nothing was recorded under '{WEIGHTS}s'; did you mean {WEIGHTS}\?"):
        recorded[WEIGHTS + "s"]


def test_tracing_and_edits_that_change_nothing_change_only_rounding(make_model: Callable[..., EncoderDecoder]) -> None:
    """A trace runs the definition instead of fused attention; edits that change nothing change no bit of that."""
    model, (source, target) = make_model().train(), inputs()
    plain = model(source, target)
    with trace(model) as recorded:
        traced = model(source, target)
    torch.testing.assert_close(traced, plain, atol=1e-12, rtol=1e-12)
    computed = [name for name in recorded if name.rpartition(".")[2] not in SHOWN_ONLY]
    with trace(model, edits={name: lambda tensor: tensor for name in computed}):
        assert torch.equal(model(source, target), traced)
    assert torch.equal(model(source, target), plain)


def test_an_edit_takes_the_place_of_the_tensor(make_model: Callable[..., EncoderDecoder]) -> None:
    """Attention weights set to zero leave no context; weights taken from another run bring its output."""
    model, (source, target) = make_model(), inputs()
    with trace(model, edits={WEIGHTS: torch.zeros_like}) as recorded:
        model(source, target)
    assert recorded["decoder.layers.1.cross_attention.context"].count_nonzero() == 0
    assert recorded["decoder.layers.0.cross_attention.context"].count_nonzero() > 0
    memory = "encoder.layers.1.feed_forward_norm.normed"
    with trace(model) as other:
        expected = model(source.flip(1), target)
    with trace(model, edits={memory: lambda _: other[memory]}):
        torch.testing.assert_close(model(source, target), expected, atol=1e-12, rtol=1e-12)


def test_impossible_traces_are_errors(make_model: Callable[..., EncoderDecoder]) -> None:
    model, (source, target) = make_model(), inputs()
    with (
        pytest.raises(ConfigError, match="the trace recorded nothing: the model did not run, or ran compiled"),
        trace(model),
    ):
        make_model()(source, target)
    with pytest.raises(ConfigError, match=r"no tensor matches keep='\*\.weigths'; "), trace(model, keep="*.weigths"):
        model(source, target)
    with (
        pytest.raises(ConfigError, match=rf"no tensor to edit under '{WEIGHTS}s'; did you mean {WEIGHTS}\?"),
        trace(model, edits={WEIGHTS + "s": torch.zeros_like}),
    ):
        model(source, target)


def test_error_ends_the_trace(make_model: Callable[..., EncoderDecoder]) -> None:
    model = make_model()
    with pytest.raises(IndexError), trace(model):
        model(torch.tensor([[99]]), torch.tensor([[1]]))
    assert not tracing()


def test_threads_do_not_see_each_other(make_model: Callable[..., EncoderDecoder]) -> None:
    """Both trace one model at one time, one of them with an edit; a third does not trace."""
    model, (source, target), barrier, found = make_model().train(), inputs(), threading.Barrier(3), {}

    def record(name: str, edits: dict[str, Callable[[Tensor], Tensor]]) -> None:
        with trace(model, keep=WEIGHTS, edits=edits) as recorded:
            barrier.wait(10)
            found[name] = model(source, target)
            barrier.wait(10)
        found[f"{name} weights"] = recorded.all(WEIGHTS)

    def run() -> None:
        barrier.wait(10)
        found["untraced"], found["tracing"] = model(source, target), tracing()
        barrier.wait(10)

    threads = [threading.Thread(target=record, args=("plain", {}))]
    threads += [
        threading.Thread(target=record, args=("edited", {WEIGHTS: torch.zeros_like})),
        threading.Thread(target=run),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found["tracing"] is False
    torch.testing.assert_close(found["untraced"], found["plain"], atol=1e-12, rtol=1e-12)
    assert not torch.equal(found["edited"], found["plain"])
    assert len(found["plain weights"]) == len(found["edited weights"]) == 1
    assert found["edited weights"][0].count_nonzero() == 0 < found["plain weights"][0].count_nonzero()


def test_a_tap_is_the_identity_outside_a_trace() -> None:
    module, tensor = torch.nn.Identity(), torch.ones(2)
    assert tap(module, "x", tensor) is tensor


def test_compiled_model_is_one_graph_and_its_empty_trace_is_an_error() -> None:
    class Tapped(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return tap(self, "double", 2 * x)

    module = Tapped()
    module.compile(backend="eager", fullgraph=True)
    assert torch.equal(module(torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(ConfigError, match="or ran compiled; trace it uncompiled"), trace(module):
        module(torch.ones(2))


def test_a_trace_of_a_search_holds_the_logits_as_the_model_gave_them(make_model: Callable[..., EncoderDecoder]) -> None:
    """The search sets what may not follow to −∞, in its own copy."""
    model, symbols = make_model(), SpecialTokens(pad=0, start=1, end=2)
    for beam_size in (1, 3):
        with trace(model, keep="output_projection.logits") as recorded:
            generate(model, [[5, 7, 2]], symbols, DecodingConfig(beam_size=beam_size, max_length=3))
        assert all(logits.isfinite().all() for logits in recorded.all("output_projection.logits"))


def test_a_trace_of_a_search_holds_the_candidates_of_each_step(make_model: Callable[..., EncoderDecoder]) -> None:
    """Greedy takes the best of each step; what a beam of 2 ends with is among what it considered."""
    model, symbols = make_model(), SpecialTokens(pad=0, start=1, end=2)
    for beam_size in (1, 2):
        config = DecodingConfig(beam_size=beam_size, max_length=3)
        with trace(model, keep="candidate_*") as recorded:
            ((best, *_),) = generate(model, [[5, 7, 2]], symbols, config)
        steps = recorded.all("candidate_tokens")
        assert len(steps) == len(recorded.all("candidate_scores"))
        for token, shown in zip(best.tokens, steps, strict=False):
            assert token in shown[0][: 2 * beam_size]
        first = recorded.all("candidate_scores")[0][0, 0]
        torch.testing.assert_close(first, model_log_probability(model, [5, 7, 2], int(steps[0][0, 0])))
        assert ("candidate_parents" in list(recorded)) == (beam_size > 1)


def model_log_probability(model: EncoderDecoder, source: list[int], token: int) -> Tensor:
    with trace(model, keep="*log_probabilities") as recorded, torch.no_grad():
        model(torch.tensor([source]), torch.tensor([[1]]))
    return recorded.at("output_projection.log_probabilities", position=0, vocab=token)


def test_a_number_is_found_by_the_names_of_its_axes(make_model: Callable[..., EncoderDecoder]) -> None:
    model, (source, target) = make_model(), inputs()
    with trace(model) as recorded:
        model(source, target)
    assert recorded.axes(WEIGHTS) == ("batch", "head", "query", "key")
    assert torch.equal(recorded.at(WEIGHTS, batch=1, head=0, key=2), recorded[WEIGHTS][1, 0, :, 2])
    with pytest.raises(ConfigError, match=r"has no axis 'heads'; its axes are batch, head, query, key"):
        recorded.at(WEIGHTS, heads=0)
    with pytest.raises(ConfigError, match=r"query=4 is outside .*; choose from 0 to 3"):
        recorded.at(WEIGHTS, query=4)


def test_edits_of_notes_and_of_shapes_are_refused(make_model: Callable[..., EncoderDecoder]) -> None:
    model, (source, target) = make_model(), inputs()
    shown = "output_projection.probabilities"
    with (
        pytest.raises(ConfigError, match=f"nothing is computed from {shown}, so an edit of it has no effect"),
        trace(model, edits={shown: torch.zeros_like}),
    ):
        model(source, target)
    with (
        pytest.raises(ConfigError, match=r"the edit of .* gives a shape of \[2, 2, 4\] instead of \[2, 2, 4, 6\]"),
        trace(model, edits={WEIGHTS: lambda weights: weights[..., 0]}),
    ):
        model(source, target)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_trace_written_to_a_file_is_read_back_with_its_axes(
    make_model: Callable[..., EncoderDecoder], tmp_path: Path, dtype: torch.dtype
) -> None:
    model, (source, target) = make_model().to(dtype), inputs()
    with trace(model) as recorded:
        model(source, target)
        model(source, target)
    recorded.to_npz(tmp_path / "t.npz")
    recorded.to_safetensors(tmp_path / "t.safetensors")
    with np.load(tmp_path / "t.npz") as arrays:
        assert np.array_equal(arrays[f"{WEIGHTS}@1"], recorded[WEIGHTS].to(torch.float64))
        assert json.loads(str(arrays["axes"]))[f"{WEIGHTS}@1"] == ["batch", "head", "query", "key"]
    with safe_open(tmp_path / "t.safetensors", framework="pt") as file:
        assert set(file.keys()) == {f"{name}@{number}" for name in recorded for number in (0, 1)}
        assert torch.equal(file.get_tensor(f"{WEIGHTS}@0"), recorded.all(WEIGHTS)[0])
        assert json.loads(file.metadata()["axes"])["memory@0"] == ["batch", "position", "d_model"]


def test_in_a_notebook_names_are_text_and_never_markup(
    make_model: Callable[..., EncoderDecoder],
) -> None:
    class Tapped(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return tap(self, "<script>", x)

    module = Tapped()
    with trace(module) as recorded:
        module(torch.tensor([1.0, -torch.inf]))
    page = recorded._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "axis_0 2" in page
    assert "1 … 1" in page


def test_a_view_of_a_tensor_is_its_matrices(make_model: Callable[..., EncoderDecoder]) -> None:
    model, (source, target) = make_model(), inputs()
    with trace(model) as recorded:
        model(source, target)
    view = view_tensor(recorded, WEIGHTS)
    assert view.scale.title == "weights"
    assert view_tensor(recorded, WEIGHTS.replace("weights", "scores")).scale.title == "scores"
    assert [matrix.title for matrix in view.matrices] == ["head 0", "head 1"]
    assert (view.row_axis, view.column_axis) == ("query", "key")
    assert np.array_equal(view.matrices[1].values, recorded[WEIGHTS][0, 1])
    assert np.array_equal(view_tensor(recorded, "memory", batch=1).matrices[0].values, recorded["memory"][1])
    assert view_tensor(recorded, "memory", position=2).matrices[0].values.shape == (1, 16)
    html = view_tensor(recorded, "decoder.layers.0.self_attention.masked_scores")._repr_html_()
    assert "inf" not in html
    assert "−∞" in html


def test_edit_glob_applies_to_every_matching_tensor(make_model: Callable[..., EncoderDecoder]) -> None:
    """Equals editing each name, and several patterns apply in order."""
    model, (source, target) = make_model(), inputs()
    with trace(model) as plain:
        model(source, target)
    names = [name for name in plain if name.startswith("decoder.") and name.endswith("cross_attention.weights")]
    assert len(names) > 1
    with trace(model, edits=dict.fromkeys(names, torch.zeros_like)) as one_by_one:
        model(source, target)
    with trace(model, edits={"decoder.*.cross_attention.weights": torch.zeros_like}) as together:
        model(source, target)
    assert list(together) == list(one_by_one)
    assert all(torch.equal(together[name], one_by_one[name]) for name in one_by_one)
    with trace(model, edits={WEIGHTS: torch.zeros_like, "*.weights": torch.ones_like}) as recorded:
        model(source, target)
    assert recorded[WEIGHTS].eq(1).all()


def test_edit_that_returns_no_tensor_is_refused(make_model: Callable[..., EncoderDecoder]) -> None:
    model, (source, target) = make_model(), inputs()

    def in_place(weights: Tensor) -> None:
        weights[:, 0] = 0

    with (
        pytest.raises(
            ConfigError, match=rf"^the edit of {WEIGHTS} returns None; return a tensor of shape \["
        ) as caught,
        trace(model, edits={WEIGHTS: in_place}),  # type: ignore[dict-item]
    ):
        model(source, target)
    assert "\n" not in str(caught.value)
    with (
        pytest.raises(ConfigError, match="returns a float; return a tensor"),
        trace(model, edits={WEIGHTS: lambda weights: 0.0}),  # type: ignore[dict-item,return-value]
    ):
        model(source, target)


def test_edit_pattern_without_a_match_is_refused(make_model: Callable[..., EncoderDecoder]) -> None:
    model, (source, target) = make_model(), inputs()
    with (
        pytest.raises(ConfigError, match=r"no tensor to edit under '\*\.weight'; did you mean .*\.weights\?$"),
        trace(model, edits={"*.weight": torch.zeros_like}),
    ):
        model(source, target)


def test_a_recorded_tensor_is_replaced_by_one_of_its_shape(make_model: Callable[..., EncoderDecoder]) -> None:
    model, (source, target) = make_model(), inputs()
    with trace(model) as recorded:
        model(source, target)
        model(source, target)
    first, other = recorded.all(WEIGHTS)[0], torch.zeros_like(recorded[WEIGHTS])
    recorded[WEIGHTS] = other
    assert recorded[WEIGHTS] is other
    assert recorded.all(WEIGHTS)[0] is first
    with pytest.raises(
        ConfigError, match=r"has a shape of \[2, 2, 4, 6\], not \[2, 2, 4\]; give a tensor of that shape"
    ):
        recorded[WEIGHTS] = other[..., 0]
    with pytest.raises(ConfigError, match="nothing was recorded under 'weigths'"):
        recorded["weigths"] = other


def test_tap_with_a_dot_in_its_name_has_numbered_axes() -> None:
    class Dotted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return tap(self, "not.a.module", x)

    module = Dotted()
    with trace(module) as t:
        module(torch.zeros(2, 3))
    assert len(t.axes("not.a.module")) == 2
