"""Attribution of one logit: to the parts that add up to it, and to the tokens."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.explain.analysis.interventions import Inputs, check_repeatable
from glassformer.explain.formula.dataflow import embedding_of, sublayers
from glassformer.explain.trace import Trace, trace
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.block import Block
from glassformer.layers.embedding import TokenEmbedding
from glassformer.layers.feed_forward import GatedFeedForward
from glassformer.layers.norm import LayerNorm, RMSNorm
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.gpt import GPT
from glassformer.taps import Edit

Explained = EncoderDecoder | GPT
"""Models that predict the next word by a decoder."""
Kind = Literal["embedding", "position", "head", "feed_forward", "bias"]


class Part(NamedTuple):
    """A term of the residual stream: ``decoder.layers.0.self_attention.heads.1``, or the name of a bias."""

    kind: Kind
    name: str


@dataclass(frozen=True)
class DirectAttribution:
    """The parts that sum to ``logit``."""

    parts: tuple[Part, ...]
    contributions: Float[Tensor, " part"]
    logit: float

    @property
    def error(self) -> float:
        """|Σ contributions − logit|, relative to the largest of them; more than rounding means a part is missing."""
        largest = max(abs(self.logit), float(self.contributions.abs().max()))
        return abs(float(self.contributions.sum()) - self.logit) / largest if largest else 0.0

    def by_kind(self) -> dict[Kind, float]:
        """Embedding, position, heads, feed-forwards and biases, each summed."""
        sums: dict[Kind, float] = {}
        for part, contribution in zip(self.parts, self.contributions.tolist()):
            sums[part.kind] = sums.get(part.kind, 0.0) + contribution
        return sums


@torch.no_grad()
def direct_logit_attribution(recorded: Trace, position: int, token: int, row: int = 0) -> DirectAttribution:
    """The logit of ``token`` after ``position`` as a sum over embedding, position, heads, feed-forwards and biases.

    Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits". With its deviation √(σ² + ε) held at what
    was recorded, a LayerNorm is linear: it centers each part, divides it, multiplies it by γ, and adds β as a part of
    its own. So the sum is exact for post-norm too, where a part goes through every LayerNorm behind it. Computed in
    float64. It is the direct path alone: what a part does by way of later heads and feed-forwards is counted with
    those, the encoder with the cross-attention that reads it, and the deviations are what all parts together made.
    Where an edit changed a ``result``, or at padding, parts are missing, and ``error`` shows it.
    """
    model = recorded.model
    if not isinstance(model, EncoderDecoder | GPT):
        raise ConfigError(
            f"the logits of {type(model).__name__} are no sum over a decoder's parts; this works with encoder_decoder "
            "and gpt"
        )
    logit = recorded.at("output_projection.logits", batch=row, position=position, vocab=token)
    stream = _Stream(recorded, row, position)
    stream.add_embedding(model)
    for number, block in enumerate(model.decoder.layers):
        assert isinstance(block, Block)
        stream.add_block(f"decoder.layers.{number}", block)
    if model.decoder.final_norm is not None:
        stream.normalize("decoder.final_norm", model.decoder.final_norm)
    projection = model.output_projection
    direction = _double(projection.weight[token])
    terms = {part: vector @ direction for part, vector in stream.parts.items()}
    if projection.bias is not None:
        terms[Part("bias", "output_projection.bias")] = _double(projection.bias[token])
    return DirectAttribution(tuple(terms), torch.stack(list(terms.values())), float(logit))


class _Stream:
    """The decoder's residual stream at one position, as the sum of its parts."""

    def __init__(self, recorded: Trace, row: int, position: int):
        self.recorded, self.row, self.position = recorded, row, position
        self.parts: dict[Part, Float[Tensor, " d_model"]] = {}

    def add_embedding(self, model: Explained) -> None:
        path = embedding_of(model, "decoder")
        embedding = model.get_submodule(path)
        assert isinstance(embedding, TokenEmbedding)
        self.parts[Part("embedding", f"{path}.scaled")] = self._at(f"{path}.scaled")
        if embedding.position is not None:
            self.parts[Part("position", f"{path}.encoding")] = self._at(f"{path}.encoding")
        if embedding.norm is not None:
            self.normalize(f"{path}.norm", embedding.norm)

    def add_block(self, path: str, block: Block) -> None:
        for name in sublayers(block):
            sublayer, wrap = getattr(block, name), getattr(block, f"{name}_norm")
            if isinstance(sublayer, MultiHeadAttention):
                self._add_heads(f"{path}.{name}", sublayer)
            else:
                last = "product" if isinstance(sublayer, GatedFeedForward) else "activated"
                inside = self._at(f"{path}.{name}.{last}")
                self.parts[Part("feed_forward", f"{path}.{name}")] = _double(sublayer.outer.weight) @ inside
                if sublayer.outer.bias is not None:
                    self.parts[Part("bias", f"{path}.{name}.outer.bias")] = _double(sublayer.outer.bias)
            if not wrap.pre:
                self.normalize(f"{path}.{name}_norm.norm", wrap.norm)

    def normalize(self, path: str, norm: torch.nn.Module) -> None:
        """Every part centered and scaled as the whole was; β is a part of its own. RMSNorm centers nothing."""
        if isinstance(norm, RMSNorm):
            scale = _double(norm.weight) / self._at(f"{path}.root_mean_square")
            self.parts = {part: vector * scale for part, vector in self.parts.items()}
            return
        assert isinstance(norm, LayerNorm)
        gain = _double(norm.weight) / self._at(f"{path}.deviation")
        self.parts = {part: (vector - vector.mean()) * gain for part, vector in self.parts.items()}
        self.parts[Part("bias", f"{path}.bias")] = _double(norm.bias)

    def _add_heads(self, path: str, attention: MultiHeadAttention) -> None:
        """W_O is a sum over heads: each has d_v of its columns."""
        context = _double(self.recorded[f"{path}.context"][self.row, :, self.position])
        columns = _double(attention.output.weight).unflatten(1, context.shape).unbind(1)
        for head, (values, weight) in enumerate(zip(context, columns)):
            self.parts[Part("head", f"{path}.heads.{head}")] = weight @ values
        if attention.output.bias is not None:
            self.parts[Part("bias", f"{path}.output.bias")] = _double(attention.output.bias)

    def _at(self, name: str) -> Tensor:
        """Positions of the encoding belong to every row unless rows hold several sentences."""
        tensor = self.recorded[name]
        of_all_rows = name.endswith(".encoding") and tensor.ndim == 2
        return _double(tensor[self.position] if of_all_rows else tensor[self.row, self.position])


def _double(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().double()


@dataclass(frozen=True)
class Goal:
    """The number to explain: the logit or the log-probability of ``token`` as what follows ``position``."""

    position: int
    token: int
    of: Literal["logit", "log_probability"] = "log_probability"
    row: int = 0


@dataclass(frozen=True)
class TokenAttribution:
    """A share of the goal for every source token and for every target token, the decoder's input.

    GPT has no source: all that it reads is the target.
    """

    source: Float[Tensor, " source"]
    target: Float[Tensor, " target"]
    value: float
    """The goal."""

    @property
    def total(self) -> float:
        return float(_double(self.source).sum() + _double(self.target).sum())


@dataclass(frozen=True)
class IntegratedGradients(TokenAttribution):
    """With the goal at the baseline: the shares sum to ``value`` − ``baseline`` up to the error of the integral."""

    baseline: float
    steps: int

    @property
    def gap(self) -> float:
        """Σ shares − (value − baseline), in the unit of the goal."""
        return self.total - (self.value - self.baseline)

    @property
    def completeness_error(self) -> float:
        """|gap| / Σ |shares|: relative to what was shared out, since the change itself may be next to nothing."""
        shared = float(_double(self.source).abs().sum() + _double(self.target).abs().sum())
        return abs(self.gap) / shared if shared else abs(self.gap)


def gradient_times_input(model: Explained, inputs: Inputs, goal: Goal) -> TokenAttribution:
    """x · ∂goal/∂x for the embedding x of each token, summed over d_model (Shrikumar et al. 2016, arXiv:1605.01713).

    The slope at the sentence as it is: where the goal has saturated, a token that decides it may get nothing.
    """
    line = _IntegrationPath(model, inputs, goal, None)
    line.visit(torch.ones(1))
    source, target = (line.gradients[0] * line.difference).sum(-1).split(line.lengths)
    return TokenAttribution(source, target, float(line.values[0]))


def integrated_gradients(
    model: Explained,
    inputs: Inputs,
    goal: Goal,
    steps: int = 64,
    baseline: Float[Tensor, " d_model"] | None = None,
) -> IntegratedGradients:
    """(x − x′) · ∫ ∂goal/∂x dα on the line from the baseline x′ to the embeddings x, summed over d_model.

    Sundararajan, Taly & Yan 2017, "Axiomatic Attribution for Deep Networks" (arXiv:1703.01365), equation 1.
    Differs from the paper: the ``steps`` are not equal. A quarter of them are, and then, four at a time, those are
    halved in which the goal changes most unlike what the gradients at both ends say. Equal ones miss the kinks of ReLU
    and, without positions to add, the first layer normalization near a baseline of zero.
    x′ is the same for every token, zero when not given; the positions stay. The shares say what the tokens do compared
    with that baseline, another one gives others, and few points on the line are sentences.
    """
    if steps < 1:
        raise ConfigError(f"steps={steps} leaves no point on the line; give at least 1")
    line = _IntegrationPath(model, inputs, goal, baseline)
    line.visit(torch.linspace(0, 1, max(1, steps // 4) + 1, dtype=torch.float64))
    while (missing := steps + 1 - len(line.points)) > 0:
        worst = line.errors().topk(min(4, missing, len(line.points) - 1)).indices
        line.visit((line.points[worst] + line.points[worst + 1]) / 2)
    source, target = (line.pieces().sum(0) * line.difference).sum(-1).split(line.lengths)
    return IntegratedGradients(source, target, float(line.values[-1]), float(line.values[0]), steps)


def _embeddings(model: Explained) -> list[tuple[str, TokenEmbedding]]:
    """Embeddings of the inputs, in their order."""
    if isinstance(model, GPT):
        return [("embedding.tokens", model.embedding)]
    if not isinstance(model, EncoderDecoder):
        raise ConfigError(
            f"{type(model).__name__} does not say a next word; attribution to tokens works with encoder_decoder and gpt"
        )
    return [(f"{name}.tokens", getattr(model, name)) for name in ("source_embedding", "target_embedding")]


class _IntegrationPath:
    """The goal and its gradient at points from the baseline (0) to the sentence (1), of source and target in a row."""

    def __init__(self, model: Explained, inputs: Inputs, goal: Goal, baseline: Tensor | None):
        check_repeatable(model)
        self.model, self.goal, self.embeddings = model, goal, _embeddings(model)
        self.inputs = inputs.row(goal.row).arguments
        read = [ids for ids in self.inputs[: len(self.embeddings)] if ids is not None]
        _check(goal, position=read[-1].size(1), token=len(model.output_projection.weight))
        rows = [embedding.weight[ids[0]].detach() for (_, embedding), ids in zip(self.embeddings, read)]
        self.lengths = [0] * (2 - len(rows)) + [len(row) for row in rows]
        self.start = torch.zeros_like(rows[0][0]) if baseline is None else baseline.detach().to(rows[0])
        self.difference = torch.cat(rows) - self.start
        self.points = torch.empty(0, dtype=torch.float64)
        self.values = self.difference.new_empty(0)
        self.gradients = self.difference.new_empty(0, *self.difference.shape)

    def visit(self, points: Float[Tensor, " new"]) -> None:
        """All ``points`` as one batch, filed in order."""
        values, gradients = self._evaluate(points.to(self.difference))
        points = torch.cat([self.points, points.double()])
        order = points.argsort()
        self.points = points[order]
        self.values = torch.cat([self.values, values])[order.to(values.device)]
        self.gradients = torch.cat([self.gradients, gradients])[order.to(values.device)]

    def pieces(self) -> Float[Tensor, "step token d_model"]:
        """The integral of the gradient over every step, by the trapezoid."""
        widths = self.points.diff().to(self.gradients)
        return (self.gradients[1:] + self.gradients[:-1]) / 2 * widths[:, None, None]

    def errors(self) -> Float[Tensor, " step"]:
        """Difference of the change of the goal over every step from that by ``pieces``."""
        return (self.values.diff() - (self.pieces() * self.difference).sum((1, 2))).abs().cpu().double()

    def _evaluate(self, points: Tensor) -> tuple[Tensor, Tensor]:
        leaf = (self.start + points[:, None, None] * self.difference).requires_grad_()
        pieces = (lambda _: leaf[:, : self.lengths[0]], lambda _: leaf[:, self.lengths[0] :])
        names = [name for name, _ in self.embeddings]
        edits: dict[str, Edit] = dict(zip(names, pieces[-len(names) :]))
        repeated = [None if tensor is None else tensor.expand(len(points), -1) for tensor in self.inputs]
        with torch.enable_grad(), trace(self.model, keep=names[0], edits=edits):
            hidden = self.model.hidden(*repeated)[:, self.goal.position]  # type: ignore[arg-type]
            logits = self.model.output_projection(hidden)
            values = (logits if self.goal.of == "logit" else logits.log_softmax(-1))[:, self.goal.token]
            (gradients,) = torch.autograd.grad(values.sum(), leaf)
        return values.detach(), gradients


def _check(goal: Goal, **sizes: int) -> None:
    for name, size in sizes.items():
        if not 0 <= (chosen := getattr(goal, name)) < size:
            raise ConfigError(f"{name}={chosen} is outside what the model gives; choose from 0 to {size - 1}")
