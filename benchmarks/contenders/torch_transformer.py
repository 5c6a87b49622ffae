"""torch.nn.Transformer in a plain loop: tied embeddings, sinusoidal positions, Adam, label smoothing."""

import math

import torch
from plain_loop import train_plainly
from sizes import SIZES
from timing import DROPOUT, PAD, arguments
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self, vocab: int, d_model: int, n_heads: int, d_ff: int, n_layers: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab, d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.body = nn.Transformer(d_model, n_heads, n_layers, n_layers, d_ff, DROPOUT, batch_first=True)
        self.dropout = nn.Dropout(DROPOUT)
        angles = torch.arange(512)[:, None] * 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))

    def embed(self, ids: Tensor) -> Tensor:
        scaled = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(scaled + self.positions[: ids.size(1)])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding, length = source == PAD, target.size(1)
        ahead = torch.ones(length, length, dtype=torch.bool, device=source.device).triu(1)
        out = self.body(
            self.embed(source),
            self.embed(target),
            tgt_mask=ahead,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return nn.functional.linear(out, self.embedding.weight)


def main() -> None:
    options = arguments()
    torch.manual_seed(1)
    model = Model(options.vocab, **SIZES[options.size]).to(options.device)
    train_plainly(options, model, model)


if __name__ == "__main__":
    main()
