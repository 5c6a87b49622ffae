"""Section 3.2.2: heads share d_model, so that together they cost what one of full width would."""


def head_size(d_model: int, n_heads: int) -> int:
    """d_model / n_heads; a ``ValueError`` names the numbers of heads that divide."""
    if d_model % n_heads:
        whole = ", ".join(str(n) for n in range(1, min(d_model, 64) + 1) if d_model % n == 0)
        raise ValueError(f"d_model={d_model} is not divisible by n_heads={n_heads}; choose n_heads from {whole}")
    return d_model // n_heads
