"""Every shape annotation of the package is checked while the tests run; every test starts from the same seed."""

import os
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeVar

if os.environ.get("GLASSFORMER_TEST_GPU") != "1":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # device=auto is the CPU in tests; before PyTorch looks for GPUs

import pytest
import torch
from jaxtyping import install_import_hook

from shape_checker import modules_with_shapes
from slow_tests import listed

if TYPE_CHECKING:
    from glassformer.models.encoder_decoder import EncoderDecoder

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

# Only what is imported after this is checked, so nothing of the package is imported above.
install_import_hook(modules_with_shapes(), "shape_checker.check")

# The configurations of tests say train.threads=1, which a training does not set for the process that it runs in.
torch.set_num_threads(1)

REQUIRED_IN_CI = (
    "Chromium",
    "playwright",
    "axe-core",
    "fastapi",
    "uvicorn",
    "httpx2",
    "compiler",
    "there are no kernels",
)
"""Words in skip reasons that make a skipped test fail if ``CI=true``."""


MARKED = {
    "browser": (
        "explain/test_report_in_a_browser",
        "explain/test_reports_of_others",
        "web/test_canvas_in_a_browser",
        "web/test_explorer_in_a_browser",
    ),
    "kill": (
        "train/test_killed",
        "storage/test_run_folder_killed",
        "cli/test_interrupt",
        "cli/test_ending",
        "cli/test_endless_input",
        "data/test_corpus_cache",
        "data/shards/test_preparation_killed",
    ),
    "peer": ("interop/",),
}
"""Markers of whole files and folders."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests as ``slow`` (``slow_tests.txt``), and by what they need."""
    slow = listed()
    for item in items:
        function = item.nodeid.partition("[")[0]
        if function in slow:
            item.add_marker("slow")
        for marker, places in MARKED.items():
            if function.removeprefix("tests/").startswith(places):
                item.add_marker(marker)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that CI would skip because a browser, a compiler or the kernels are missing."""
    return _without_skips((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a test module that CI would skip for the same reason."""
    return _without_skips((yield))


def _without_skips(report: Report) -> Report:
    without_kernels = os.environ.get("GLASSFORMER_ENGINE") == "torch"
    words = REQUIRED_IN_CI[:-1] if without_kernels else REQUIRED_IN_CI
    if os.environ.get("CI") == "true" and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if any(word in reason for word in words):
            report.outcome, report.longrepr = "failed", f"CI may not skip this: {reason}"
    return report


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def make_model() -> "Callable[..., EncoderDecoder]":
    """Builds a small model for equivalence tests: float64, evaluation mode, d_k ≠ d_v; any value can be given."""

    from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig

    def make(seed: int = 0, **values: object) -> EncoderDecoder:
        small = {"vocab_size": 12, "d_model": 16, "n_heads": 2, "d_k": 6, "d_v": 4, "d_ff": 24, "max_length": 32}
        layers = {"n_encoder_layers": 2, "n_decoder_layers": 2, "dropout": 0.0}
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = EncoderDecoder(EncoderDecoderConfig.parse({**small, **layers, **values}))
            # Vectors other than 0 and 1 where a fresh model has biases and norms, so that none can be forgotten.
            for name, parameter in model.named_parameters():
                if name.endswith("bias") or ".norm." in name or "final_norm" in name:
                    torch.nn.init.normal_(parameter, mean=parameter.detach().mean().item(), std=0.2)
        return model.double().eval()

    return make
