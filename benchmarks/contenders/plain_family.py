"""The models of the family as forty lines of plain PyTorch: fused attention and AdamW, autocast for bfloat16."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PlainBlock(nn.Module):
    """A layer of any model of the family; ``llama``: RMSNorm, rotary positions, SwiGLU, shared keys and values."""

    def __init__(self, c: Any, pre: bool, bias: bool, llama: bool, activation: str, attention_dropout: float):
        super().__init__()
        self.heads, self.head = c.n_heads, c.d_model // c.n_heads
        self.kv = c.kv_heads if llama else c.n_heads
        self.pre, self.llama, self.rates = pre, llama, (c.dropout, attention_dropout)
        self.approximate = "tanh" if activation == "gelu_tanh" else "none"
        self.qkv = nn.Linear(c.d_model, (self.heads + 2 * self.kv) * self.head, bias)
        self.output = nn.Linear(c.d_model, c.d_model, bias)
        self.inner, self.outer = nn.Linear(c.d_model, c.d_ff, bias), nn.Linear(c.d_ff, c.d_model, bias)
        self.gate = nn.Linear(c.d_model, c.d_ff, bias) if llama else None
        kind = nn.RMSNorm if llama else nn.LayerNorm
        self.norms = nn.ModuleList([kind(c.d_model), kind(c.d_model)])

    def attend(self, x: Tensor, mask: Tensor | None, causal: bool, tables: tuple[Tensor, Tensor] | None) -> Tensor:
        parts = self.qkv(x).unflatten(-1, (-1, self.head)).transpose(1, 2)
        q, k, v = parts.split([self.heads, self.kv, self.kv], 1)
        if tables is not None:
            q, k = (y * tables[0].to(y.dtype) + _turned(y) * tables[1].to(y.dtype) for y in (q, k))
        rate = self.rates[1] if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, mask, rate, causal, enable_gqa=self.kv != self.heads)
        return self.output(y.transpose(1, 2).flatten(2))

    def feed_forward(self, x: Tensor) -> Tensor:
        if self.gate is not None:
            return self.outer(F.silu(self.gate(x)) * self.inner(x))
        return self.outer(F.gelu(self.inner(x), approximate=self.approximate))

    def forward(self, x: Tensor, *attention: Any) -> Tensor:
        for norm, part in zip(self.norms, (lambda y: self.attend(y, *attention), self.feed_forward), strict=True):
            y = F.dropout(part(norm(x) if self.pre else x), self.rates[0], self.training)
            x = x + y if self.pre else norm(x + y)
        return x


def _turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


class PlainModel(nn.Module):
    """``loss(batch)`` is that of the task of a configuration of glassformer with the same sizes."""

    def __init__(self, c: Any):
        super().__init__()
        self.kind, self.config = c.kind, c
        llama = c.kind == "gpt" and c.gated
        rate = c.dropout if c.attention_dropout is None else c.attention_dropout
        bias = c.bias if c.kind == "gpt" else True
        pre = c.kind != "bert"
        self.layers = nn.ModuleList([PlainBlock(c, pre, bias, llama, c.activation, rate) for _ in range(c.n_layers)])
        kind = nn.RMSNorm if llama else nn.LayerNorm
        self.last = kind(c.d_model) if pre else nn.Identity()
        if c.kind in ("gpt", "bert"):
            self.tokens = nn.Embedding(c.vocab_size, c.d_model)
            self.head = nn.Linear(c.d_model, c.vocab_size, bias=c.kind == "bert")
            self.head.weight = self.tokens.weight
        self.positions = None if llama else nn.Parameter(torch.randn(self._length(), c.d_model) * 0.02)
        if c.kind == "bert":
            self.segments, self.norm = nn.Embedding(c.n_segments, c.d_model), nn.LayerNorm(c.d_model)
            dense = nn.Linear(c.d_model, c.d_model)
            self.transform = nn.Sequential(dense, nn.GELU(), nn.LayerNorm(c.d_model))
        if c.kind == "vit":
            size = c.patch_size
            self.patches = nn.Conv2d(c.n_channels, c.d_model, size, size)
            self.token = nn.Parameter(torch.randn(1, 1, c.d_model) * 0.02)
            self.head = nn.Linear(c.d_model, c.n_classes)
        if c.kind == "series":
            self.patches = nn.Linear(c.patch_length, c.d_model)
            self.head = nn.Linear(c.n_patches * c.d_model, c.horizon)
        self.tables = self._tables() if llama else None
        nn.init.normal_(next(self.parameters()), std=0.02)

    def loss(self, batch: Any) -> Tensor:
        return getattr(self, self.kind)(batch)

    def gpt(self, batch: Any) -> Tensor:
        x = self._dropped(self._embedded(batch.tokens))
        return F.cross_entropy(self.head(self._stack(x, None, True)).flatten(0, 1).float(), batch.labels.flatten())

    def bert(self, batch: Any) -> Tensor:
        x = self._dropped(self.norm(self._embedded(batch.tokens) + self.segments(batch.segments)))
        mask = None if batch.mask.all() else batch.mask[:, None, None, :]
        logits = self.head(self.transform(self._stack(x, mask, False)[batch.predicted]))
        return F.cross_entropy(logits.float(), batch.labels[batch.predicted])

    def vit(self, batch: Any) -> Tensor:
        x = self.patches(batch.images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), 1, -1).to(x.dtype), x], 1)
        x = self._stack(self._dropped(x + self.positions), None, False)
        return F.cross_entropy(self.head(x[:, 0]).float(), batch.labels)

    def series(self, batch: Any) -> Tensor:
        rows = batch.context.transpose(1, 2).flatten(0, 1)
        mean, deviation = rows.mean(-1, keepdim=True), (rows.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
        padded = F.pad(((rows - mean) / deviation)[:, None], (0, self.config.patch_stride), mode="replicate")[:, 0]
        x = self.patches(padded.unfold(1, self.config.patch_length, self.config.patch_stride))
        x = self._stack(self._dropped(x + self.positions), None, False).flatten(1)
        forecast = self.head(x) * deviation + mean
        return F.mse_loss(forecast.unflatten(0, (len(batch.context), -1)).transpose(1, 2), batch.future)

    def _embedded(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        return x if self.positions is None else x + self.positions[: tokens.size(1)]

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout, self.training)

    def _stack(self, x: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        tables = None if self.tables is None else tuple(table[: x.size(1)] for table in self.tables)
        for layer in self.layers:
            x = layer(x, mask, causal, tables)
        return self.last(x)

    def _length(self) -> int:
        c = self.config
        return {"vit": lambda: c.n_patches + 1, "series": lambda: c.n_patches}.get(c.kind, lambda: c.max_length)()

    def _tables(self) -> tuple[Tensor, Tensor]:
        head = self.config.d_head
        rates = self.config.attention.rope_theta ** (-torch.arange(0, head, 2) / head)
        angles = torch.arange(self.config.max_length)[:, None] * rates
        return torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)


def plain_step(model: PlainModel, bfloat16: bool) -> Any:
    """A training step on a batch: AdamW(fused=True), and autocast where it is in bfloat16."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)

    def step(batch: Any) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            loss = model.loss(batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step
