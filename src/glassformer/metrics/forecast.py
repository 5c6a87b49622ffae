"""Errors of forecasts, and the baselines that a model should beat.

Published figures are means over every standardized value of every test window. Many leave out the last windows, those
that do not fill a batch; here all count.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from glassformer.errors import ConfigError, DataError

Window = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class ForecastErrors:
    """Mean squared and mean absolute error, over all known values and of each variable."""

    windows: int
    mse: float
    mae: float
    variable_mse: tuple[float, ...]
    variable_mae: tuple[float, ...]

    def in_units(self, deviation: list[float]) -> "ForecastErrors":
        """The errors of standardized values in the variables' own units (squared, for the MSE).

        The means over variables then mix units: they say something only where all variables have the same.
        """
        squares = tuple(error * scale**2 for error, scale in zip(self.variable_mse, deviation, strict=True))
        sizes = tuple(error * scale for error, scale in zip(self.variable_mae, deviation, strict=True))
        return ForecastErrors(self.windows, sum(squares) / len(squares), sum(sizes) / len(sizes), squares, sizes)


def forecast_errors(pairs: Iterable[tuple[Tensor, Tensor]]) -> ForecastErrors:
    """Errors over batches of (forecast, future), each ``[rows, horizon, variables]``, summed in float64; a future
    that is NaN is not known, and does not count."""
    squares = sizes = values = torch.zeros(())
    windows = 0
    for forecast, future in pairs:
        if forecast.shape != future.shape:
            raise DataError(
                f"forecasts have shape {tuple(forecast.shape)} and futures {tuple(future.shape)}; give equal ones"
            )
        unknown = future.isnan()
        error = torch.where(unknown, 0.0, forecast.detach().double() - future.double())
        squares, sizes = squares + error.square().sum((0, 1)).cpu(), sizes + error.abs().sum((0, 1)).cpu()
        windows, values = windows + len(error), values + (~unknown).sum((0, 1)).cpu()
    if not (count := int(values.sum())):
        raise DataError("there is no forecast to measure; give at least one window")
    mse, mae = (squares.sum() / count).item(), (sizes.sum() / count).item()
    return ForecastErrors(windows, mse, mae, tuple((squares / values).tolist()), tuple((sizes / values).tolist()))


def repeat_last(
    context: Float[Tensor, "rows time variables"], horizon: int
) -> Float[Tensor, "rows {horizon} variables"]:
    """The last value, again and again."""
    return context[:, -1:].expand(-1, horizon, -1)


def seasonal_naive(
    context: Float[Tensor, "rows time variables"], horizon: int, period: int
) -> Float[Tensor, "rows {horizon} variables"]:
    """The last ``period`` values, again and again: a day as the day before, with a period of 24 hours."""
    if not 1 <= period <= context.shape[1]:
        raise ConfigError(f"period={period} does not fit a context of {context.shape[1]}; give 1 to that")
    repeats = -(-horizon // period)
    return context[:, -period:].repeat(1, repeats, 1)[:, :horizon]


@dataclass(frozen=True)
class LinearForecast:
    """One linear map from context to horizon for all variables, on values less the last one, which is added again.

    The model of NLinear (Zeng et al. 2023, arXiv:2205.13504), solved rather than trained: the least squares of all
    windows have one solution.
    """

    weight: Float64[Tensor, "horizon time"]
    bias: Float64[Tensor, " horizon"]

    def __call__(self, context: Float[Tensor, "rows time variables"]) -> Float[Tensor, "rows horizon variables"]:
        last = context[:, -1:].double()
        moved = torch.einsum("ht,rtv->rhv", self.weight.to(last.device), context.double() - last)
        return (moved + self.bias.to(last.device)[:, None] + last).to(context.dtype)

    @classmethod
    def fit(cls, windows: Iterable[Window], ridge: float = 1e-3) -> "LinearForecast":
        """Least squares over batches of (context, future) in float64, with ``ridge`` × the mean square on the weights.

        One pass; memory grows with the square of the context, not with the windows.
        """
        if not ridge > 0:
            raise ConfigError(f"ridge={ridge}: without any, values that depend on each other have no one solution")
        gram = cross = torch.zeros(())
        for context, future in windows:
            inputs, targets = _relative(context, future)
            gram, cross = gram + inputs.T @ inputs, cross + inputs.T @ targets
        if not gram.numel() > 1:
            raise DataError("there is no window to fit; give at least one")
        penalty = (ridge * gram.diagonal()[:-1].mean()).clamp(min=1e-12).repeat(len(gram))
        penalty[-1] = 0.0  # the bias is free
        solution = torch.linalg.solve(gram + torch.diag(penalty), cross)
        return cls(solution[:-1].T.contiguous(), solution[-1])


def _relative(
    context: Float[Tensor, "rows time variables"], future: Float[Tensor, "rows horizon variables"]
) -> tuple[Float64[Tensor, "series time_and_1"], Float64[Tensor, "series horizon"]]:
    """Each variable of each window whose future is known as a row, less its last value; a 1 at the end of the inputs,
    for the bias."""
    last = context[:, -1:].double()
    inputs, targets = ((side.double() - last).transpose(1, 2).flatten(0, 1) for side in (context, future))
    known = targets.isfinite().all(1)
    return torch.cat((inputs, inputs.new_ones(len(inputs), 1)), dim=1)[known], targets[known]
