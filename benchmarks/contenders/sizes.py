"""The models that are trained. Standard library only."""

SIZES = {
    "small": {"d_model": 256, "n_heads": 4, "d_ff": 1024, "n_layers": 3},
    "base": {"d_model": 512, "n_heads": 8, "d_ff": 2048, "n_layers": 6},
    "big": {"d_model": 1024, "n_heads": 16, "d_ff": 4096, "n_layers": 6},
}
