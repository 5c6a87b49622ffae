"""Forecasts: patches of time, each variable for itself."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from glassformer.errors import ConfigError, DataError
from glassformer.layers.embedding import series_patches
from glassformer.models.series import SeriesConfig
from glassformer.taps import record

Build = Callable[..., Any]


def series(rows: int = 2, variables: int = 3) -> torch.Tensor:
    return torch.randn(rows, 12, variables, dtype=torch.float64)


def test_patches_overlap_and_the_last_value_is_repeated() -> None:
    patches = series_patches(torch.arange(7.0)[None], 3, 2)
    assert patches.tolist() == [[[0, 1, 2], [2, 3, 4], [4, 5, 6], [6, 6, 6]]]
    assert SeriesConfig.parse({"context": 7, "patch_length": 3, "patch_stride": 2}).n_patches == 4
    assert SeriesConfig().n_patches == 42
    for context in range(5, 12):
        config = SeriesConfig.parse({"context": context, "patch_length": 4, "patch_stride": 3})
        assert series_patches(torch.zeros(1, context), 4, 3).size(1) == config.n_patches


def test_variables_are_independent_in_any_number(build: Build) -> None:
    model, seen = build("series"), series()
    before = model(seen)
    assert before.shape == (2, 5, 3)
    changed = seen.clone()
    changed[0, 3, 1] += 1
    differs = (model(changed) != before).any(1)
    assert differs.tolist() == [[False, True, False], [False, False, False]]
    torch.testing.assert_close(model(seen[:, :, 2:]), before[:, :, 2:], atol=1e-12, rtol=1e-12)


def test_normalized_forecast_follows_level_and_scale(build: Build) -> None:
    """What the small constant in the deviation leaves: parts in 10⁵."""
    seen = series()
    model = build("series")
    torch.testing.assert_close(model(7 + 3 * seen), 7 + 3 * model(seen), atol=1e-3, rtol=1e-4)
    plain = build("series", normalize=False)
    assert not torch.allclose(plain(7 + 3 * seen), 7 + 3 * plain(seen), atol=1e-1)


def test_a_series_that_stands_still_has_a_finite_forecast_and_gradient(build: Build) -> None:
    model, seen = build("series"), torch.full((1, 12, 2), 5.0, dtype=torch.float64, requires_grad=True)
    forecast = model(seen)
    assert forecast.isfinite().all()
    forecast.sin().sum().backward()
    assert seen.grad is not None
    assert seen.grad.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_tensors_are_named(build: Build) -> None:
    model, seen = build("series"), series()
    with record(model) as recorded:
        traced = model(seen)
    torch.testing.assert_close(traced, model(seen), atol=1e-12, rtol=1e-12)
    expected = {
        "embedding.patches",
        "embedding.positioned",
        "encoder.normed",
        "memory",
        "mean",
        "deviation",
        "forecast",
    }
    assert expected <= set(recorded)
    assert recorded["encoder.layers.0.self_attention.weights"].shape == (6, 4, 4, 4)


def test_another_length_and_patches_that_do_not_fit_are_refused(build: Build) -> None:
    with pytest.raises(DataError, match="a series has 11 steps, but this model reads context=12; pass that many"):
        build("series")(series()[:, 1:])
    with pytest.raises(ConfigError, match="patch_length=16 is more than context=8; lower the first or raise the"):
        SeriesConfig.parse({"context": 8})
