"""Arguments that do not fit each other raise errors; a process of its own, in which nothing else checks shapes."""

import subprocess
import sys

import pytest

from glassformer.native.library import kernels
from own_process import ENVIRONMENT

PROGRAM = """
import sys, torch
from glassformer.layers.mask import Mask
from glassformer.models.gpt import GPT, GPTConfig
from glassformer.native import accelerate
from glassformer.models.registry import build_model
from glassformer.native.decoding import NativeDecoder, NativeGPT
from glassformer.native.library import loaded
from glassformer.native.ops import NativeLinear, NativeRotary, attention, product
from glassformer.native.embedding import NativeOutputProjection
from glassformer.native.gradients import add_
ones = torch.ones
projection = NativeOutputProjection(9, 64, False)
sizes = {"d_model": 64, "n_heads": 2, "n_layers": 1, "d_ff": 64, "vocab_size": 9, "max_length": 8}
gpt = NativeGPT(GPT(GPTConfig.parse(sizes)).eval(), loaded())
translator = {"kind": "encoder_decoder", "vocab_size": 9, "d_model": 64, "n_heads": 2, "d_ff": 64}
translator = NativeDecoder(build_model(translator, "test").eval(), loaded())
narrow = NativeOutputProjection(9, 40, False)
stack = accelerate(GPT(GPTConfig.parse(sizes)).train()).decoder
try:
    print(eval(sys.argv[1]))
except (IndexError, RuntimeError, ValueError) as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.parametrize(
    ("call", "outcome"),
    [
        ("product(ones(800, 12), ones(11, 5))", "RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        ("product(ones(800, 12), ones(12, 5), ones(4))", "RuntimeError: The expanded size of the tensor"),
        ("product(ones(800, 12), ones(12, 5).double())", "RuntimeError: expected m1 and m2 to have the same dtype"),
        (
            "attention(ones(1, 2, 5, 32), ones(1, 2, 5, 32).double(), ones(1, 2, 5, 32), None)",
            "ValueError: q, k, v are torch.float32, torch.float64, torch.float32 on cpu; give float32 or bfloat16 on a",
        ),
        (
            "attention(ones(1, 2, 5, 32), ones(1, 2, 5, 32).bfloat16(), ones(1, 2, 5, 32), None)",
            "ValueError: q, k, v are torch.float32, torch.bfloat16, torch.float32 on cpu; give float32 or bfloat16",
        ),
        *(
            (
                f"attention(ones(2, 2, 5, 32), ones{k}, ones{v}, None)",
                f"ValueError: q [2, 2, 5, 32], k {[*k]} and v {[*v]} do not fit each other",
            )
            for k, v in [
                ((3, 2, 5, 32), (3, 2, 5, 32)),
                ((2, 3, 5, 32), (2, 3, 5, 32)),
                ((2, 2, 5, 33), (2, 2, 5, 32)),
                ((2, 2, 6, 32), (2, 2, 5, 32)),
            ]
        ),
        (
            "attention(ones(1, 1, 5, 32), ones(1, 1, 5, 32), ones(1, 1, 5, 32), ones(5, 5))",
            "ValueError: the mask is torch.float32; give booleans, True for what may be seen",
        ),
        (
            "attention(ones(1, 0, 9, 32), ones(1, 0, 0, 32), ones(1, 0, 0, 32), ones(20, 3).bool())",
            "ValueError: the mask [20, 3] does not fit the scores [1, 0, 9, 0]",
        ),
        (
            "gpt.begin(ones(2, 4).long(), ones(2, 3).bool(), shared=3)",
            "ValueError: the mask is [2, 3], the prompts [2, 4]; use one shape",
        ),
        *(
            (f"{form}.begin(ones(2, 4).long(), ones(2, 4).long())", "ValueError: the mask is torch.int64; give bool")
            for form in ("gpt", "translator")
        ),
        ("NativeRotary(32)(ones(2, 2, 7, 32), ones(2, 2, 7, 40), 0)", "RuntimeError: The size of tensor a"),
        ("NativeRotary(32)(ones(2, 2, 7, 32), ones(2, 2, 9, 32), 0)", "RuntimeError: The size of tensor a"),
        (
            "projection.cross_entropy(ones(5, 64), torch.zeros(4, dtype=torch.long), 0.1)",
            "ValueError: hidden [5, 64] and targets [4] do not fit each other or d_model=64",
        ),
        *(
            (
                f"{name}.cross_entropy(ones(5, {width}), torch.zeros(5, dtype=torch.long), 0.1)",
                "ValueError: the kernel cannot read hidden states of torch.float32 with these weights; give float32 "
                "hidden states and contiguous float32 weights on a CPU, of a width that is a multiple of 64",
            )
            for name, width in (("narrow", 40), ("NativeOutputProjection(9, 0, False)", 0))
        ),
        (
            "projection.cross_entropy(ones(5, 128), torch.zeros(5, dtype=torch.long), 0.1)",
            "ValueError: hidden [5, 128] and targets [5] do not fit each other or d_model=64",
        ),
        (
            "projection.cross_entropy(ones(5, 64).double(), torch.zeros(5, dtype=torch.long), 0.1)",
            "ValueError: the kernel cannot read hidden states of torch.float64 with these weights; give float32 hidden",
        ),
        (
            "stack(ones(2, 5, 64), Mask(allowed=ones(1, 1, 5, 5)))",
            "ValueError: the mask is torch.float32; give booleans, True for what may be seen",
        ),
        (
            "add_(ones(3, 4), torch.sparse_coo_tensor([[5]], ones(1, 4), (3, 4), check_invariants=False, "
            "is_coalesced=True))",
            "IndexError: a row is outside the matrix",
        ),
        (
            "stack(ones(2, 5, 64), selected=torch.tensor([10]))",
            "IndexError: a selected token is outside the 2 × 5 tokens of the batch",
        ),
        ("NativeLinear(0, 3, bias=False)(ones(200, 0)).shape", "torch.Size([200, 3])"),
        ("NativeLinear(5, 0, bias=False)(ones(200, 5).requires_grad_()).sum().backward()", "None"),
    ],
)
def test_error_names_the_mismatched_argument(call: str, outcome: str) -> None:
    if kernels() is None:
        pytest.skip("there are no kernels here")
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, call]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith(outcome)
