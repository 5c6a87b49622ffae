"""What the processor that runs the tests can compute."""

import warnings

import pytest
import torch

from glassformer.models.device import fast_in_bfloat16

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    _BFLOAT16 = fast_in_bfloat16(torch.device("cpu"))

LOW_PRECISION = "bfloat16" if _BFLOAT16 else "float32"
"""The lowest precision of training on this processor."""
needs_bfloat16 = pytest.mark.skipif(not _BFLOAT16, reason="this processor has no bfloat16 instructions")
PRECISIONS = ("float32", pytest.param("bfloat16", marks=needs_bfloat16))
"""Values of ``train.precision``, for ``pytest.mark.parametrize``."""
