"""Rows that have ended stay for a while, idle, so that the others are not copied and products keep their shapes."""

from torch import Tensor


def kept_size(count: int) -> int:
    """Number of rows to continue with when ``count`` are needed: the next of 1 … 8, 10, 12, 14, 16, 20, 24, 28, 32 …

    Dropping each row as it ends would copy all that is kept of the others every time, and make every product one of a
    new shape, which on a CPU costs it half a millisecond.
    """
    step = 1 << max(0, (count - 1).bit_length() - 3)
    return -(-count // step) * step


def keep(needed: Tensor) -> Tensor | None:
    """The rows to go on with when only ``needed`` [rows] are still of use: those, and idle ones up to ``kept_size``.

    None when all are kept. They stay in their order.
    """
    if (rows := needed.size(0)) == 1:
        return None
    count = int(needed.sum())
    if kept_size(count) >= rows:
        return None
    idle = (~needed).nonzero().squeeze(1)[: kept_size(count) - count]
    kept = needed.clone()
    kept[idle] = True
    return kept.nonzero().squeeze(1)
