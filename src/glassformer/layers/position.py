"""Section 3.5: positional encodings, since the model has neither recurrence nor convolution.

Sinusoidal (the paper's) and learned ones (its alternative, Table 3 row E) are added to embeddings. Rotary ones (Su et
al. 2021, arXiv:2104.09864) are not: queries and keys are rotated. Each encoding has its record in ``ENCODINGS``, which
all other files ask.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.errors import DataError

Encoding = Literal["sinusoidal", "learned", "rotary"]
Offset = int | Int[Tensor, " rows"]
"""Position of the first token; one for each row if rows of different length grow together."""


def positions_from(offset: Offset, length: int, device: torch.device | None = None) -> Int[Tensor, "*rows length"]:
    """``offset`` … ``offset + length - 1``."""
    if isinstance(offset, int):
        return torch.arange(offset, offset + length, device=device)
    return offset[:, None] + torch.arange(length, device=device)


def end_of(offset: Offset, length: int) -> int:
    """The position behind the last token of the longest row."""
    return length + (offset if isinstance(offset, int) else int(offset.max()) if len(offset) else 0)


def sinusoids(positions: Float[Tensor, "*length"], d_model: int) -> Float[Tensor, "*length d_model"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos of the same: interleaved, as in the paper."""
    rates = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64, device=positions.device) / d_model)
    angles = positions.double()[..., None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :d_model]


class Sinusoidal(nn.Module):
    """Fixed encodings of any length; the first ``max_length`` are computed in advance."""

    table: Tensor

    def __init__(self, max_length: int, d_model: int):
        super().__init__()
        self.d_model = d_model
        table = torch.empty(max_length, d_model)
        if not table.is_meta:  # an operation on meta tensors can import PyTorch's compiler, 800 modules
            table = sinusoids(torch.arange(max_length).double(), d_model).to(table.dtype)
        self.register_buffer("table", table, persistent=False)

    @property
    def n_positions(self) -> int:
        """Number of positions that are computed in advance."""
        return self.table.size(0)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """In another type the table is computed anew: float32's rounding must not stay in a float64 model."""
        super()._apply(fn, recurse)
        if not self.table.is_meta:
            positions = torch.arange(self.table.size(0), device=self.table.device).double()
            self.table = sinusoids(positions, self.d_model).to(self.table.dtype)
        return self

    def forward(self, offset: Offset, length: int) -> Float[Tensor, "*rows length d_model"]:
        """The encodings of positions ``offset`` … ``offset + length - 1``."""
        known = end_of(offset, length) <= self.n_positions
        if known and isinstance(offset, int):
            return self.table[offset : offset + length]
        positions = positions_from(offset, length, self.table.device)
        if known:
            return self.table[positions]
        return sinusoids(positions.double(), self.d_model).to(self.table.dtype)


class Learned(nn.Module):
    """One trained vector per position; there is none beyond ``max_length``."""

    def __init__(self, max_length: int, d_model: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_length, d_model))

    @property
    def n_positions(self) -> int:
        """Number of positions."""
        return self.weight.size(0)

    def forward(self, offset: Offset, length: int) -> Float[Tensor, "*rows length d_model"]:
        limit, end = self.n_positions, end_of(offset, length)
        if end > limit:
            raise DataError(
                f"{end} tokens are longer than max_length={limit}, and learned positions end there; "
                "shorten the text, or train with positions=sinusoidal"
            )
        if isinstance(offset, int):
            return self.weight[offset:end]
        return F.embedding(positions_from(offset, length, offset.device), self.weight)


class Rotary(nn.Module):
    """Rotate each pair of query and key dimensions by an angle proportional to the position.

    The product q·k then depends on the distance alone. Angles are computed in
    float64 whatever the type of the model: eight bits cannot tell neighboring positions apart. The slowest pair turns
    once in about 2π · ``theta`` positions.
    """

    def __init__(self, d_head: int, theta: float = 10000.0):
        super().__init__()
        self.d_head = d_head
        self.theta = theta

    def forward(
        self,
        q: Float[Tensor, "rows heads length d_head"],
        k: Float[Tensor, "rows kv_heads length d_head"],
        offset: Offset,
    ) -> tuple[Float[Tensor, "rows heads length d_head"], Float[Tensor, "rows kv_heads length d_head"]]:
        """Queries and keys of the positions from ``offset`` on, rotated by the same angles."""
        angles = self.angles(q.size(-2), q.device, offset)
        if angles.dim() == 3:  # each row has its own angles, shared by its heads
            angles = angles[:, None]
        dtype = torch.promote_types(q.dtype, torch.float32)
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        return _rotate(q, cos, sin), _rotate(k, cos, sin)

    def angles(self, length: int, device: torch.device, offset: Offset = 0) -> Float[Tensor, "*rows length pairs"]:
        """Rotation angle of each pair at ``length`` positions from ``offset`` on, in float64."""
        positions = positions_from(offset, length, device)
        rates = self.theta ** (-torch.arange(0, self.d_head, 2, dtype=torch.float64, device=device) / self.d_head)
        return positions.double()[..., None] * rates


def _rotate(
    x: Float[Tensor, "rows heads length d_head"],
    cos: Float[Tensor, "*rows length pairs"],
    sin: Float[Tensor, "*rows length pairs"],
) -> Float[Tensor, "rows heads length d_head"]:
    """Each pair as a complex number, times cos + i · sin.

    16 prompts of 64 tokens with 6 heads of 64 take a fifth of the time of real products, whose elements are two apart.
    Real products where ``d_head`` is no multiple of 16: the last elements of a complex product round differently, so
    that a position's bits would depend on its place in the tensor. And while compiling: ONNX has no complex numbers,
    and TorchInductor generates no code for them.
    """
    if torch.compiler.is_compiling() or x.size(-1) % 16:
        even, odd = x[..., 0::2].to(cos.dtype), x[..., 1::2].to(cos.dtype)
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2).to(x.dtype)
    pairs = torch.view_as_complex(x.to(cos.dtype).unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.complex(cos, sin)).flatten(-2).to(x.dtype)


class EncodingRecord(NamedTuple):
    """The place of a positional encoding in a model, and its end."""

    added: Callable[[int, int], nn.Module] | None = None
    """Class of a module that adds to the embeddings; its arguments are ``max_length`` and d_model."""
    rotary: Callable[[int, float], Rotary] | None = None
    """Module, made from the width of a head and θ, that turns queries and keys of self-attention."""
    bounded: bool = False
    """True if there is no encoding beyond ``max_length``."""

    def check_width(self, name: str, d_k: int) -> None:
        """Raise ``ValueError`` if heads of ``d_k``, the value of the setting ``name``, cannot be rotated."""
        if self.rotary is not None and d_k % 2:
            raise ValueError(
                f"rotary positions rotate pairs of dimensions, but {name}={d_k} is odd; choose an even {name}"
            )

    def on_embeddings(self, max_length: int, d_model: int) -> nn.Module | None:
        return None if self.added is None else self.added(max_length, d_model)

    def on_heads(self, d_k: int, theta: float = 10000.0) -> Rotary | None:
        return None if self.rotary is None else self.rotary(d_k, theta)


def encoding_of(added: nn.Module | None, rotary: nn.Module | None) -> str:
    """Name of the encoding with these modules, on embeddings and in attention; "none" without either.

    A class without a record has its own name, in small letters.
    """
    if added is None:
        return "none" if rotary is None else "rotary"
    return next((name for name, one in ENCODINGS.items() if one.added is type(added)), type(added).__name__.lower())


ENCODINGS: dict[str, EncodingRecord] = {
    "none": EncodingRecord(),  # of recurrent models
    "sinusoidal": EncodingRecord(added=Sinusoidal),
    "learned": EncodingRecord(added=Learned, bounded=True),
    "rotary": EncodingRecord(rotary=Rotary),
}
