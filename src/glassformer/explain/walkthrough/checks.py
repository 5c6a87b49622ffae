"""Checks of whole tensors, also of what no table shows; ``walkthrough.toml`` names them by step."""

import math
from collections.abc import Callable

import numpy as np
import torch

from glassformer.explain.example import Example
from glassformer.explain.formula.dataflow import output_of
from glassformer.explain.walkthrough.step import StepCheck
from glassformer.models.series import EPSILON
from glassformer.text.decimals import difference

TOLERANCES = {"float64": 1e-9, "float32": 1e-5, "bfloat16": 2e-2, "float16": 5e-3}
PATCH_TOLERANCE = 1e-4


def one_hot_rows_have_one_entry(example: Example, path: str) -> StepCheck:
    ones = example.trace[f"{path}.one_hot"].sum(-1)
    return StepCheck("every one-hot vector holds a single 1", bool((ones == 1).all()))


def target_is_shifted(example: Example, path: str) -> StepCheck:
    start = example.target_ids[0] == example.translator.symbols.start
    shifted = example.target_ids[1:] == example.predicted_ids[:-1]
    return StepCheck("position i reads what position i − 1 was to say", start and shifted)


def attention_sums_to_one(example: Example, path: str) -> StepCheck:
    """Every row of every head, also those that are not shown."""
    weights = example.trace[f"{path}.weights"]
    off = float((weights.double().sum(-1) - 1).abs().max())
    limit = TOLERANCES[str(weights.dtype).removeprefix("torch.")]
    rows = math.prod(weights.shape[:-1])
    if not off <= limit:
        return StepCheck(f"not every row of the {rows:,} sums to 1: one is off by {difference(off)}", False)
    return StepCheck(
        f"all {rows:,} rows of all {weights.size(1)} heads sum to 1: largest deviation {difference(off)}", True
    )


def no_later_word(example: Example, path: str) -> StepCheck:
    weights = example.trace[f"{path}.weights"]
    future = torch.ones(weights.shape[-2:], dtype=torch.bool, device=weights.device).triu(1)
    return StepCheck("every weight on a later word is exactly 0, in all heads", not weights[..., future].any())


def memory_leaves_the_stack(example: Example, path: str) -> StepCheck:
    """The memory is recorded by itself."""
    t, norm = example.trace, example.model.get_submodule(path).final_norm
    same = bool((t["memory"] == t[output_of(example.model, path)]).all())
    what, last = "the memory" if example.translated else "this", "layer" if norm is None else "normalization"
    return StepCheck(f"{what} is what leaves the last {last}, bit for bit", same)


def stack_gives_the_logits(example: Example, path: str) -> StepCheck:
    """The model's own output projection, once more."""
    logits = example.model.output_projection(example.trace[output_of(example.model, path)])
    same = bool((logits == example.trace["output_projection.logits"]).all())
    return StepCheck("the logits are computed from exactly this", same)


def memory_is_the_last_states(example: Example, path: str) -> StepCheck:
    last = len(example.model.get_submodule(path).rightward) - 1
    same = bool((example.trace["memory"] == example.trace[f"{path}.states_{last}"]).all())
    return StepCheck("the memory is the last layer's states, bit for bit", same)


def probabilities_sum_to_one(example: Example, path: str) -> StepCheck:
    probabilities = example.trace[f"{path}.probabilities"]
    off = float((probabilities.double().sum(-1) - 1).abs().max())
    what = "the classes" if probabilities.ndim == 2 else "every position"
    return StepCheck(f"the probabilities of {what} sum to 1: largest deviation {difference(off)}", off <= 1e-2)


def patches_are_the_series(example: Example, path: str) -> StepCheck:
    """Mean, deviation and patches, computed again from what was read."""
    config, values = example.model.config, example.values
    assert values is not None
    rows = values.T
    if config.normalize:
        centered = rows - rows.mean(-1, keepdims=True)
        rows = centered / np.sqrt(np.square(centered).mean(-1, keepdims=True) + EPSILON)
    padded = np.pad(rows, ((0, 0), (0, config.patch_stride)), mode="edge")
    cut = np.lib.stride_tricks.sliding_window_view(padded, config.patch_length, axis=1)[:, :: config.patch_stride]
    off = float(np.abs(cut - example.trace[f"{path}.patches"].double().cpu().numpy()).max())
    return StepCheck(
        f"the patches are the series, computed again from what was read: largest |Δ| {difference(off)}",
        off <= PATCH_TOLERANCE,
    )


CHECKS: dict[str, Callable[..., StepCheck]] = {
    check.__name__: check
    for check in (
        one_hot_rows_have_one_entry,
        target_is_shifted,
        attention_sums_to_one,
        no_later_word,
        memory_leaves_the_stack,
        stack_gives_the_logits,
        memory_is_the_last_states,
        probabilities_sum_to_one,
        patches_are_the_series,
    )
}
"""Checks by the name that ``walkthrough.toml`` has for them: (example, path of the module) → check."""
