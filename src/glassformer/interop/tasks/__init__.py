"""What a model is used for: which class of theirs loads it, what both sides are given, and what stands beside it."""
