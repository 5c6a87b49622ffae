"""Examples of arrays: images of a Vision Transformer, and series."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.images import ImageFormat
from glassformer.data.series_table import read_table
from glassformer.data.time_series import SeriesFormat
from glassformer.errors import DataError
from glassformer.explain.example import Example, ExampleInput, Side
from glassformer.explain.trace import trace
from glassformer.models.series import SeriesModel
from glassformer.models.vit import ViT
from glassformer.predict.loading import load_run
from glassformer.predict.memory import fitting_memory
from glassformer.taps import Edit

Edits = Mapping[str, Edit] | None


def examine_image(model: ViT, format: ImageFormat, file: str | Path, keep: str = "*", edits: Edits = None) -> Example:
    """An image file through a Vision Transformer, and its class."""
    return examine_pixels(model, format, format.load([Path(file)]), Path(file).name, keep, edits)


@torch.no_grad()
def examine_pixels(
    model: ViT, format: ImageFormat, image: Tensor, name: str, keep: str = "*", edits: Edits = None
) -> Example:
    """``image`` is normalized, ``[1, channel, row, column]``, as ``format`` gives it."""
    weight, patches = model.output_projection.weight, model.config.n_patches
    matrices = 5 * model.config.n_heads * model.config.n_layers
    with fitting_memory(patches + 1, 4 * matrices * patches**2), trace(model, keep, edits) as t:
        logits = model(image.to(weight))
    mean, deviation = (torch.tensor(values)[:, None, None] for values in (format.mean, format.deviation))
    pixels = (image[0].cpu() * deviation + mean).clamp(0, 1).permute(1, 2, 0).double().numpy()
    across = model.config.image_size[1] // model.config.patch_size
    places = [f"{number // across},{number % across}" for number in range(patches)]
    side = Side("image", ["[CLS]", *places], name)
    output = format.classes[int(logits[0].argmax())]
    return Example(
        model, t, "images", "is of the class", output, (side,), [], labels=tuple(format.classes), values=pixels
    )


@torch.no_grad()
def examine_series(
    model: SeriesModel, format: SeriesFormat, values: NDArray[np.float64], keep: str = "*", edits: Edits = None
) -> Example:
    """The last ``context`` rows of ``values`` (in their own units, ``[time, variable]``), and their forecast."""
    config = model.config
    if len(values) < config.context:
        raise DataError(f"the series has {len(values)} rows and the model sees {config.context}; give at least those")
    steps = torch.from_numpy(format.standardize(np.asarray(values, np.float64)[-config.context :]))
    with trace(model, keep, edits) as t:
        batch = steps.to(model.forecast.weight)[None]
        forecast = model(batch)[0].double().cpu().numpy()
    length, stride = config.patch_length, config.patch_stride
    labels = [f"{start}–{start + length - 1}" for start in range(0, stride * config.n_patches, stride)]
    side = Side("series", labels, f"{config.context} steps of {', '.join(format.columns)}")
    return Example(
        model,
        t,
        "forecasting",
        "are followed by",
        f"{config.horizon} more steps",
        (side,),
        [],
        labels=tuple(format.columns),
        values=batch[0].double().cpu().numpy(),
        forecast=forecast,
    )


def examine_image_file(run: str | Path, example: ExampleInput) -> Example:
    loaded = load_run(run, device=example.device)
    format = ImageFormat.parse(loaded.setting("format"), "format")
    if not Path(example.text).is_file():
        raise DataError(f"{example.text}: there is no such picture; this run reads PNG and JPEG files")
    return examine_image(loaded.model, format, example.text, example.keep, example.edits)


def examine_table(run: str | Path, example: ExampleInput) -> Example:
    loaded = load_run(run, device=example.device)
    format = SeriesFormat.parse(loaded.setting("format"), "format")
    table = read_table(example.text, date="", columns=list(format.columns))
    return examine_series(loaded.model, format, table.values, example.keep, example.edits)
