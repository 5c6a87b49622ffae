"""Formulas of recorded numbers: one rule an operation, and a check that computes each again."""
