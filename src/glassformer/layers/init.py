"""Weight initialisation, stated once.

The paper does not give one; this is what its authors' code did: matrices uniform after Glorot & Bengio (2010),
embeddings normal with standard deviation d_model^-1/2 (so that × √d_model makes them of unit size), biases zero.
"""

import torch
from torch import nn

from glassformer.layers.embedding import OutputProjection, TokenEmbedding
from glassformer.layers.position import Learned


@torch.no_grad()
def initialise(model: nn.Module) -> None:
    """Fill every parameter of ``model`` in the order of its modules, from torch's global generator."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, TokenEmbedding | OutputProjection | Learned):
            nn.init.normal_(module.weight, std=module.weight.size(1) ** -0.5)
            if isinstance(module, OutputProjection) and module.bias is not None:
                nn.init.zeros_(module.bias)
