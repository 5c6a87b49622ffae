"""What several models' configurations ask of their sizes."""


def head_size(d_model: int, n_heads: int) -> int:
    """d_model / n_heads (section 3.2.2); a ``ValueError`` names the numbers of heads that divide."""
    if d_model % n_heads:
        whole = ", ".join(str(n) for n in range(1, min(d_model, 64) + 1) if d_model % n == 0)
        raise ValueError(f"d_model={d_model} is not divisible by n_heads={n_heads}; choose n_heads from {whole}")
    return d_model // n_heads


def both_sides(vocab_size: int | tuple[int, int] | None) -> tuple[int, int]:
    """Entries of the source and of the target vocabulary, which may be one."""
    if vocab_size is None:
        raise ValueError("vocab_size is not known yet; it comes from the tokenizer")
    return vocab_size if isinstance(vocab_size, tuple) else (vocab_size, vocab_size)
