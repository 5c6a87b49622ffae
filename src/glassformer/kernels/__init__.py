"""What is computed outside of PyTorch: C++ that is compiled for the processor at hand, and its functions."""
