"""The logit lens: what a decoder, or BERT's encoder, would predict if it ended after each of its layers.

nostalgebraist 2020, "interpreting GPT: the logit lens".
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.explain.formula.dataflow import residual_stream
from glassformer.explain.trace import Trace, trace
from glassformer.models.bert import BERT
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.gpt import GPT

Readable = EncoderDecoder | GPT | BERT
"""Models with logits over a vocabulary at each position of a stack."""


@dataclass(frozen=True)
class Lens:
    """For each of ``places`` (the embedding, then the end of every layer) what the output projection makes of it."""

    places: tuple[str, ...]
    """The names of the tensors that were looked at."""
    logits: Float[Tensor, "place batch target vocab"]
    probability: Float[Tensor, "place batch target"]
    """Probability of the predicted token."""
    rank: Int[Tensor, "place batch target"]
    """Rank of the predicted token: 1 + the number of tokens with a larger logit."""


@torch.no_grad()
def logit_lens(recorded: Trace, predicted: Int[Tensor, "batch target"]) -> Lens:
    """The residual stream after each layer through the last LayerNorm (pre-norm models have one) and the projection.

    After the last layer that is the model's logits, to the bit. Earlier ones are read in the basis of the last: a layer
    may hold what the lens does not show, and in a post-norm model each layer ends in a LayerNorm of its own, with a
    gain meant for the next layer and not for the projection (Belrose et al. 2023, arXiv:2303.08112). BERT's go through
    the transform that stands before its projection.
    """
    model = recorded.model
    if not isinstance(model, Readable) or model.output_projection is None:
        raise ConfigError(
            f"the logit lens reads words, and {type(model).__name__} says none here; it works with encoder_decoder, "
            "gpt, and bert with masked_tokens=true"
        )
    places = residual_stream(model, "encoder" if isinstance(model, BERT) else "decoder")
    logits = torch.stack([_project(model, recorded[place]) for place in places])
    index = predicted.to(logits.device).expand(len(places), *predicted.shape)[..., None]
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    probability = wide.softmax(-1).gather(-1, index)[..., 0]
    rank = 1 + (logits > logits.gather(-1, index)).sum(-1)
    return Lens(tuple(places), logits, probability, rank)


def _project(model: Readable, x: Float[Tensor, "batch target d_model"]) -> Float[Tensor, "batch target vocab"]:
    """By the model's own modules, in a trace of its own, so that no trace around it takes these for the model's."""
    assert model.output_projection is not None
    last = model.transform if isinstance(model, BERT) else model.decoder.final_norm
    with trace(model, keep="output_projection.logits"):
        return model.output_projection(x if last is None else last(x))
