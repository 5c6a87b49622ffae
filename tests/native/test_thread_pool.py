"""Threads of the kernels: the same bits with any number, beside other threads, after a fork, and if none starts."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from glassformer.native import accelerate
from glassformer.native.library import kernels
from glassformer.native.ops import NativeDropout, product
from own_process import ENVIRONMENT

SIZES = {"vocab_size": 200, "d_model": 64, "n_heads": 2, "d_ff": 256, "n_encoder_layers": 2, "n_decoder_layers": 2}


@pytest.fixture(autouse=True)
def _threads() -> None:
    if kernels() is None:
        pytest.skip("there are no kernels here")


def training_pass() -> list[Tensor]:
    """Output and gradients of a model of one seed."""
    torch.manual_seed(0)
    model = EncoderDecoder(EncoderDecoderConfig(**SIZES, dropout=0.1))
    source, target = torch.randint(1, 200, (20, 60)), torch.randint(1, 200, (20, 47))
    output = accelerate(model).hidden(source, target)
    output.square().sum().backward()
    return [output.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def with_threads(count: int) -> list[Tensor]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        return training_pass()
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("count", [2, 3, 16, 70])
def test_gradients_do_not_depend_on_the_number_of_threads(count: int) -> None:
    for one, several in zip(with_threads(1), with_threads(count), strict=True):
        assert torch.equal(one, several)


def test_gradients_stay_equal_while_the_number_of_threads_changes() -> None:
    expected = with_threads(1)
    for count in (5, 2, 70, 3, 2):
        for one, several in zip(expected, with_threads(count), strict=True):
            assert torch.equal(one, several)


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_products_in_concurrent_threads_equal_those_of_one_thread() -> None:
    generator = torch.Generator().manual_seed(1)
    pairs = [
        (torch.randn(400, 192, generator=generator), torch.randn(192, 256, generator=generator)) for _ in range(40)
    ]
    expected = [product(*pair) for pair in pairs]
    with ThreadPoolExecutor(6) as several:
        found = list(several.map(lambda pair: product(*pair), pairs))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


ENDED = """
import os, threading, time, torch
from glassformer.native.ops import product
torch.set_num_threads(3)
a, b, helpers = torch.ones(800, 192), torch.ones(192, 256), []
def count():
    return len(os.listdir("/proc/self/task"))
def work():
    before = count()
    product(a, b)
    helpers.append(count() - before)
before = count()
for _ in range(8):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    end = time.monotonic() + 20
    while count() > before and time.monotonic() < end:  # Python does not wait for the end of the system's thread
        time.sleep(0.01)
print(helpers, count() - before)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="the system does not list threads")
def test_threads_end_with_the_thread_that_called_them() -> None:
    assert output_of(ENDED) == f"{[2] * 8} 0"


@pytest.mark.usefixtures("three_threads")
def test_threads_take_over_the_floating_point_mode_of_the_caller() -> None:
    """Flushing of denormal numbers is a setting of a thread. AMX flushes those of products in any mode."""
    x, dropout = torch.full((800, 192), 1e-39), NativeDropout(1 / 256)

    def scaled() -> Tensor:
        torch.manual_seed(0)
        return dropout(x)

    expected = scaled()
    assert (expected != 0).float().mean() > 0.9
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush denormal numbers")
    try:
        assert not any(scaled().any() for _ in range(20))
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(scaled(), expected)


FORKED = """
import os, torch
from glassformer.native.ops import product
torch.set_num_threads(3)
a, b = torch.ones(800, 192), torch.ones(192, 256)
expected = product(a, b).numpy().tobytes()
child = os.fork()
if child == 0:  # PyTorch's own threads do not survive a fork, so nothing of it runs in parallel here
    equal = product(a, b).numpy().tobytes() == expected
    os._exit(0 if equal and len(os.listdir("/proc/self/task")) == 3 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_starts_threads_of_its_own() -> None:
    assert output_of(FORKED) == "0"


LOCKED = """
import os, signal
from glassformer.native import library
library.kernels()
library._one_at_a_time.acquire()  # as another thread does while it asks for the kernels
child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit(0 if library.kernels() is not None else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_process_forked_while_another_thread_loads_the_kernels_loads_them_too() -> None:
    assert output_of(LOCKED) == "0"


LIMITED = """
import resource, torch
from glassformer.native import ops
a, b = torch.ones(800, 192), torch.ones(192, 256)
expected = ops.product(a, b).numpy().tobytes()
torch.set_num_threads(64)
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (4 << 20), -1))
print(ops.product(a, b).numpy().tobytes() == expected)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not tell the size of a process")
def test_process_without_helper_threads_computes_alone() -> None:
    """A thread's stack does not fit into the address space that is left."""
    assert output_of(LIMITED) == "True"


def output_of(code: str) -> str:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=120
    ).stdout.strip()


AFFINITIES = """
import os, torch
from glassformer.native.ops import product
torch.set_num_threads(3)
allowed, existing = os.sched_getaffinity(0), set(os.listdir("/proc/self/task"))
product(torch.ones(800, 192), torch.ones(192, 256))
helpers = set(os.listdir("/proc/self/task")) - existing
fewer = [len(allowed) - len(os.sched_getaffinity(int(helper))) for helper in helpers]  # of PyTorch's threads too
print(fewer.count(1), os.sched_getaffinity(0) == allowed)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="the system does not list threads")
def test_helpers_avoid_the_processor_of_the_caller() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one processor")
    assert output_of(AFFINITIES) == "2 True"


SMALL = """
import os, torch
from glassformer.layers.dropout import Dropout
from glassformer.native.embedding import NativeEmbedding
from glassformer.native.ops import NativeDropout, NativeRotary
torch.set_num_threads(8)
embedding = NativeEmbedding(50, 64, None, Dropout(0.1)).train()
q, ids = torch.ones(2, 2, 8, 32, requires_grad=True), torch.arange(16).view(2, 8)
torch.ones(8, 16, dtype=torch.float64).cos()  # for which PyTorch starts threads
existing = len(os.listdir("/proc/self/task"))
results = NativeDropout(0.5)(q), *NativeRotary(32)(q, q, 0), embedding(ids)
print(len(os.listdir("/proc/self/task")) - existing)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="the system does not list threads")
def test_small_work_stays_on_one_thread() -> None:
    assert output_of(SMALL) == "0"


AGAIN = """
import os, resource, time, torch
from glassformer.native.ops import product
a, b = torch.ones(800, 192), torch.ones(192, 256)
torch.set_num_threads(3)
product(a[:200], b[:, :64])  # allocates what a loop needs
threads = lambda: len(os.listdir("/proc/self/task"))
torch.set_num_threads(9)
pages, existing = int(open("/proc/self/statm").read().split()[0]), threads()
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (4 << 20), -1))
product(a, b)
refused = threads() - existing
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
time.sleep(1.2)
product(a, b)
print(refused, threads() - existing > 0)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not tell the size of a process")
def test_threads_that_were_refused_are_started_later() -> None:
    assert output_of(AGAIN) == "0 True"


MANY = """
import os, torch
from glassformer.native.ops import product
torch.set_num_threads(300)
a, b, existing = torch.ones(800, 192), torch.ones(192, 256), len(os.listdir("/proc/self/task"))
product(a, b)
print(0 < len(os.listdir("/proc/self/task")) - existing < max(64, os.cpu_count()))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="the system does not list threads")
def test_threads_are_not_more_than_64_or_the_processors() -> None:
    assert output_of(MANY) == "True"
