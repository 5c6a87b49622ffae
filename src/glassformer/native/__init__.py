"""The model's mathematics in C++ for CPUs (``csrc``), applied to a model from outside."""
