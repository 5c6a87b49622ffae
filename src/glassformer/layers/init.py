"""Weight initialization, stated once.

The paper does not give one; this is what its authors' code did: matrices uniform after Glorot & Bengio (2010),
embeddings normal with standard deviation d_model^-1/2 (so that × √d_model makes them of unit size), biases zero.
Its descendants draw everything from one normal distribution (Radford et al. 2018 and 2019, Devlin et al. 2019).
"""

import torch
from torch import nn

from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.embedding import OutputProjection, PatchEmbedding, SegmentEmbedding, TokenEmbedding
from glassformer.layers.feed_forward import FeedForward, GatedFeedForward
from glassformer.layers.position import Learned

STD = 0.02
"""Initialization of GPT, BERT and ViT."""


@torch.no_grad()
def initialize(model: nn.Module) -> None:
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


@torch.no_grad()
def initialize_normal(model: nn.Module, residuals: int = 1) -> None:
    """Every matrix and vector of an embedding N(0, 0.02²), biases zero.

    ``residuals`` sub-layers add to the residual stream; GPT-2 divides the deviation of what leaves them by its root,
    so that the sum starts as large whatever the depth (Radford et al. 2019, section 2.3). 1 divides by nothing.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | OutputProjection):
            nn.init.normal_(module.weight, std=STD)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, TokenEmbedding | SegmentEmbedding | Learned):
            nn.init.normal_(module.weight, std=STD)
        elif isinstance(module, PatchEmbedding) and module.class_token is not None:
            nn.init.normal_(module.class_token, std=STD)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.output.weight.mul_(residuals**-0.5)
        elif isinstance(module, FeedForward | GatedFeedForward):
            module.outer.weight.mul_(residuals**-0.5)
