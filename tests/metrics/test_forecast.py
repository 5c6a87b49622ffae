"""Errors of forecasts by hand, and simple forecasts where they are exact."""

import pytest
import torch

from glassformer.errors import ConfigError, DataError
from glassformer.metrics.forecast import LinearForecast, forecast_errors, repeat_last, seasonal_naive


def windows(series: torch.Tensor, context: int, horizon: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Every window of a series ``[rows, variables]``."""
    both = series.unfold(0, context + horizon, 1).transpose(1, 2)
    return both[:, :context], both[:, context:]


def test_errors_by_hand_do_not_depend_on_batches() -> None:
    forecast = torch.tensor([[[1.0, 0.0], [2.0, 0.0]], [[0.0, 0.0], [0.0, 4.0]]])
    future = torch.tensor([[[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])
    whole = forecast_errors([(forecast, future)])
    assert (whole.windows, whole.mse, whole.mae) == (2, 14 / 8, 6 / 8)
    assert whole.variable_mse == (5 / 4, 9 / 4)
    assert whole.variable_mae == (3 / 4, 3 / 4)
    assert forecast_errors(zip(forecast.split(1), future.split(1), strict=True)) == whole
    units = whole.in_units([2.0, 10.0])
    assert units.variable_mse == (5.0, 225.0)
    assert units.variable_mae == (1.5, 7.5)
    assert units.mae == 4.5
    in_units = forecast_errors([(forecast * torch.tensor([2.0, 10.0]), future * torch.tensor([2.0, 10.0]))])
    assert in_units == units


def test_a_last_small_batch_counts_by_its_windows() -> None:
    errors = forecast_errors(
        [(torch.ones(9, 2, 1), torch.zeros(9, 2, 1)), (torch.zeros(1, 2, 1), torch.zeros(1, 2, 1))]
    )
    assert errors.mse == pytest.approx(0.9)


def test_a_future_that_is_not_known_does_not_count() -> None:
    forecast, future = torch.ones(1, 3, 2), torch.tensor([[[0.0, 3.0], [float("nan"), 0.0], [0.0, 0.0]]])
    errors = forecast_errors([(forecast, future)])
    assert (errors.mse, errors.mae) == (8 / 5, 6 / 5)
    assert errors.variable_mse == (1.0, 2.0)
    assert errors.variable_mae == (1.0, pytest.approx(4 / 3))
    context, expected = torch.arange(36.0).sin().reshape(9, 4, 1), torch.arange(18.0).cos().reshape(9, 2, 1)
    gap = expected.clone()
    gap[3, 1] = torch.nan
    kept = [n for n in range(9) if n != 3]
    alike = LinearForecast.fit([(context, gap)]), LinearForecast.fit([(context[kept], expected[kept])])
    assert torch.equal(alike[0].weight, alike[1].weight)
    assert torch.equal(alike[0].bias, alike[1].bias)


def test_forecast_errors_refuse_empty_and_mismatched_input() -> None:
    with pytest.raises(DataError, match="no forecast to measure"):
        forecast_errors([])
    with pytest.raises(DataError, match=r"shape \(1, 2, 3\) and futures \(1, 2, 4\)"):
        forecast_errors([(torch.zeros(1, 2, 3), torch.zeros(1, 2, 4))])


def test_naive_forecasts() -> None:
    context = torch.arange(10.0).reshape(1, 5, 2)
    assert repeat_last(context, 3).tolist() == [[[8.0, 9.0]] * 3]
    assert seasonal_naive(context, 5, 2)[0, :, 0].tolist() == [6.0, 8.0, 6.0, 8.0, 6.0]
    assert torch.equal(seasonal_naive(context, 4, 1), repeat_last(context, 4))
    daily = torch.sin(torch.arange(50.0) * 2 * torch.pi / 8)[:, None]
    assert torch.allclose(seasonal_naive(*[windows(daily, 16, 5)[0]], 5, 8), windows(daily, 16, 5)[1], atol=1e-4)
    for period in (0, 6):
        with pytest.raises(ConfigError, match=f"period={period} does not fit a context of 5"):
            seasonal_naive(context, 3, period)


def test_a_linear_series_is_forecast_exactly() -> None:
    time = torch.arange(200.0, dtype=torch.float64)
    series = torch.stack((torch.sin(time / 3) + 0.1 * time, torch.cos(time / 3 + 1) - 4 + 0.1 * time), 1)
    context, future = windows(series[:120], 12, 6)
    model = LinearForecast.fit([(context, future)], ridge=1e-12)
    later = windows(series[120:], 12, 6)
    assert forecast_errors([(model(later[0]), later[1])]).mse < 1e-8
    assert forecast_errors([(repeat_last(later[0], 6), later[1])]).mse > 0.1


def test_the_solution_is_that_of_least_squares() -> None:
    generator = torch.Generator().manual_seed(3)
    context, future = (torch.randn(80, n, 2, generator=generator, dtype=torch.float64) for n in (4, 3))
    model = LinearForecast.fit(zip(context.split(7), future.split(7), strict=True), ridge=1e-9)
    last = context[:, -1:]
    inputs, expected = ((side - last).transpose(1, 2).reshape(160, -1) for side in (context, future))
    inputs = torch.cat((inputs[:, :-1], torch.ones(160, 1, dtype=torch.float64)), 1)  # the last is 0 in all
    solution = torch.linalg.lstsq(inputs, expected).solution
    assert torch.allclose(model.weight[:, :-1], solution[:-1].T, atol=1e-6)
    assert torch.allclose(model.bias, solution[-1], atol=1e-6)
    for _ in range(5):  # no other map is better
        other = LinearForecast(model.weight + 0.01 * torch.randn_like(model.weight), model.bias)
        assert forecast_errors([(model(context), future)]).mse < forecast_errors([(other(context), future)]).mse


def test_a_shift_of_all_values_shifts_the_forecast() -> None:
    context, future = windows(torch.randn(60, 3), 6, 2)
    model = LinearForecast.fit([(context, future)])
    assert torch.allclose(model(context + 5), model(context) + 5, atol=1e-4)
    assert model(context).dtype == torch.float32


def test_ridge_shrinks_to_the_mean_change() -> None:
    context, future = windows(torch.randn(60, 1), 6, 2)
    model = LinearForecast.fit([(context, future)], ridge=1e9)
    assert model.weight.abs().max() < 1e-6
    assert torch.allclose(model.bias, (future - context[:, -1:]).double().mean((0, 2)), atol=1e-5)


def test_a_fit_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="ridge=0: without any"):
        LinearForecast.fit([windows(torch.randn(9, 1), 3, 2)], ridge=0)
    with pytest.raises(DataError, match="no window to fit"):
        LinearForecast.fit([])
