"""Parity of two models: logits for the same random inputs, and outputs for the same texts; and these inputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glassformer.errors import CheckpointError, DataError
from glassformer.generate import DecodingConfig
from glassformer.interop.tokenizer_json import to_tokenizer_json
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.predict.translator import Translator
from glassformer.text import Tokenizer, TokenizerPair
from glassformer.text.pretrained import UNNAMED

TOLERANCES = {"float32": 1e-4, "float64": 1e-10}
LENGTHS = (9, 5, 1)
"""Tokens of the random rows that are compared."""
LONGEST = 20
"""Maximum tokens of a generated text that is compared."""

Logits = Callable[..., Tensor]
"""Function from the inputs of a model to its logits."""


@dataclass(frozen=True)
class ParityInputs:
    """Inputs of both models, and the positions where logits are compared: all, or those where ``compared`` is True."""

    tensors: tuple[Tensor, ...]
    compared: Bool[Tensor, "*positions"] | None = None

    def to(self, device: torch.device) -> "ParityInputs":
        """The same on ``device``."""
        compared = None if self.compared is None else self.compared.to(device)
        return ParityInputs(tuple(tensor.to(device) for tensor in self.tensors), compared)


@dataclass(frozen=True)
class Sample:
    """One text and the output of both models in float64: greedy search, or the most probable label."""

    source: str
    our_output: str
    their_output: str


@dataclass(frozen=True)
class Parity:
    """Largest difference of logits for each dtype, relative to the largest logit if that is above 1.

    A dtype without a tolerance (8-bit weights) is measured, not checked.
    """

    differences: dict[str, float]
    samples: list[Sample]

    def check(self, origin: str) -> None:
        """Raise ``CheckpointError`` if the two models differ."""
        if not self.differences.keys() <= TOLERANCES.keys():
            return
        for dtype, difference in self.differences.items():
            if not difference <= TOLERANCES[dtype]:
                raise CheckpointError(
                    f"{origin}: the two sides differ by {difference:.1e} in {dtype}, more than {TOLERANCES[dtype]:g}; "
                    "nothing was written"
                )
        for sample in self.samples:
            if sample.our_output != sample.their_output:
                outputs = f"{sample.our_output!r} here and {sample.their_output!r} there"
                raise CheckpointError(f"{origin}: {sample.source!r} becomes {outputs}; nothing was written")


@dataclass(frozen=True)
class Conversion:
    """Result of an import or export; ``notes`` are settings without a counterpart, and remarks for the user."""

    path: Path
    kind: str
    parity: Parity
    notes: list[str] = field(default_factory=list)


def random_rows(
    size: int,
    excluded: set[int],
    pad: int,
    max_length: int,
    generator: torch.Generator,
    lengths: tuple[int, ...] = LENGTHS,
) -> tuple[Int[Tensor, "rows longest"], Bool[Tensor, "rows longest"]]:
    """Draw ids below ``size``, except those in ``excluded``, padded on the right; and their mask.

    The rows have these ``lengths``, or ``max_length`` where that is less.
    """
    allowed = torch.tensor([i for i in range(size) if i not in excluded])
    row_lengths = torch.tensor(lengths).clamp(max=max_length)
    longest = int(row_lengths.max())
    drawn = torch.randint(len(allowed), (len(lengths), longest), generator=generator)
    mask = torch.arange(longest) < row_lengths[:, None]
    return allowed[drawn].masked_fill(~mask, pad), mask


@torch.inference_mode()
def largest_difference(our_logits: Logits, their_logits: Logits, inputs: ParityInputs) -> float:
    """Largest difference of the compared logits, relative to the largest logit if that is above 1."""
    a, b = (logits(*inputs.tensors) for logits in (our_logits, their_logits))
    if inputs.compared is not None:
        a, b = a[inputs.compared], b[inputs.compared]
    if a.shape != b.shape or not (a.isfinite().all() and b.isfinite().all()):
        return float("inf")
    return float((a - b).abs().max() / a.abs().max().clamp(min=1))


def comparison_texts(texts: Sequence[str] | None, tokenizer: Tokenizer) -> list[str]:
    """Texts to compare on: ``texts`` without empty ones, which never reach the model, or random ones."""
    if texts is None:
        return random_texts(tokenizer)
    if not (nonempty := [text for text in texts if text.strip()]):
        raise DataError("no text to compare on: each is empty; give one that says something, or leave them out")
    return nonempty


def random_texts(tokenizer: Tokenizer, count: int = 4, seed: int = 1) -> list[str]:
    """Draw texts of random vocabulary entries, for models of an unknown language."""
    generator = torch.Generator().manual_seed(seed)
    special = {tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id}
    special |= set(tokenizer.special_tokens.values())
    names = to_tokenizer_json(tokenizer)
    allowed = [
        i
        for i in range(tokenizer.vocab_size)
        if i not in special and tokenizer.decode([i]) and not (names.id_to_token(i) or UNNAMED).startswith(UNNAMED)
    ]
    if not allowed:
        raise DataError("the vocabulary has no entry that is text, so none is made up to compare on; give texts")
    texts: list[str] = []
    while len(texts) < count:
        drawn = torch.randint(len(allowed), (6,), generator=generator).tolist()
        texts.append(tokenizer.decode([allowed[i] for i in drawn]).strip() or tokenizer.tokens(allowed[:1])[0])
    return texts


def read_back(reader: Any, tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Decode with ``reader``; incomplete characters by ``tokenizer``, as the two may differ in the number of U+FFFD."""
    text = str(reader.decode(ids, skip_special_tokens=True))
    return tokenizer.decode(ids) if "\ufffd" in text else text


def refuse_long(text: str, tokens: int, limit: int) -> None:
    """Raise ``DataError`` if ``text`` is longer than the positions of the other model."""
    if tokens > limit:
        raise DataError(f"{text!r} has {tokens} tokens, and there are {limit} positions; compare shorter texts")


def random_inputs(model: EncoderDecoder, tokenizers: TokenizerPair, seed: int = 1) -> ParityInputs:
    """Draw ids except padding and start, in rows of 9, 5 and 1 tokens; a target begins with the start token."""
    generator = torch.Generator().manual_seed(seed)
    c, source, target = model.config, tokenizers.source, tokenizers.target
    ids, mask = random_rows(c.vocab_sizes[0], {source.pad_id, source.start_id}, source.pad_id, c.max_length, generator)
    words, compared = random_rows(
        c.vocab_sizes[1], {target.pad_id, target.start_id}, target.pad_id, c.max_length, generator, (4, 9, 2)
    )
    words[:, 0] = target.start_id
    return ParityInputs((ids, mask, words), compared)


def logits_of(model: EncoderDecoder) -> Logits:
    return lambda source, source_mask, target: model(source, target, source_mask)


def greedy_texts(model: EncoderDecoder, tokenizers: TokenizerPair, texts: Sequence[str]) -> list[str]:
    """Translate with our model greedily, at most ``LONGEST`` tokens and within the learned positions."""
    config: dict[str, Any] = {"beam_size": 1, "max_length": longest_text(model), "length_penalty": "none"}
    return Translator([model], tokenizers, DecodingConfig.parse(config)).translate(texts)


def longest_text(model: EncoderDecoder) -> int:
    return max(1, min(LONGEST, model.config.max_length - 2))
