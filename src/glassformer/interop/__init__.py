"""Weights and tokenizers from and to other libraries, by two-way tables of names; both sides must compute the same."""
