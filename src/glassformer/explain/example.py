"""One example as the whole of ``explain`` reads it: raw text, its tokens, and everything the model computed for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from glassformer.errors import DataError
from glassformer.explain.examined import Written, token_labels
from glassformer.explain.figures import attention
from glassformer.explain.trace import Trace, trace
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.predict.memory import fitting_memory
from glassformer.predict.translator import Translator
from glassformer.taps import Edit
from glassformer.text.arguments import one_text
from glassformer.text.notebook import facts_as_html, weights_as_html


@dataclass(frozen=True, repr=False)
class Example(attention.Pictured):
    """A source and a target that went through the model once (teacher forcing; section 3.1: the target shifted right).

    ``source_tokens`` ends with the end token. ``target_tokens[i]`` is the decoder's input at position i, the start
    token first; ``predicted_tokens[i]`` is what follows it, the end token last.
    """

    translator: Translator
    source: str
    target: str
    source_ids: list[int]
    target_ids: list[int]
    trace: Trace

    relation = "is translated as"

    def __repr__(self) -> str:
        sides = f"{len(self.source_ids)} source and {len(self.target_ids)} target tokens"
        return f"<Example: {self.source!r} → {self.target!r}, {sides}, {len(self.trace)} tensors>"

    def _repr_html_(self) -> str:
        """Both texts, and the last layer's cross-attention, mean over heads, if it was recorded."""
        facts = {"source": self.source, "target": self.target, "model": repr(self.translator)}
        facts["tensors"] = f"{len(self.trace)}; trace[name], view(name), walkthrough(example), report(example)"
        html = facts_as_html("Example", facts)
        names = [name for name in self.trace if name.endswith("cross_attention.weights")]
        if not names:
            return html
        weights = self.trace[names[-1]][0].mean(0).tolist()
        return html + weights_as_html(
            f"{names[-1]}, mean over heads", self.predicted_tokens, self.source_tokens, weights
        )

    @property
    def model(self) -> Any:
        """The first of the translator's."""
        return self.translator.models[0]

    @property
    def read(self) -> str:
        """The source."""
        return self.source

    @property
    def said(self) -> str:
        """The target."""
        return self.target

    def tokens(self, stack: str) -> list[str]:
        """Those that the encoder or the decoder reads."""
        return self.source_tokens if stack == "encoder" else self.target_tokens

    def written(self, stack: str, kind: str) -> tuple[Written, Written]:
        """Of cross-attention those who ask are named by what each step predicts."""
        tokenizers = self.translator.tokenizers
        source = Written("source", self.source_tokens, tokenizers.source, self.source_ids, self.source)
        if stack == "encoder":
            return source, source
        if kind == "cross_attention":
            tokens, ids, name = self.predicted_tokens, self.predicted_ids, "target, as predicted"
        else:
            tokens, ids, name = self.target_tokens, self.target_ids, "target, as read"
        target = Written(name, tokens, tokenizers.target, ids, self.target)
        return target, source if kind == "cross_attention" else target

    @property
    def source_tokens(self) -> list[str]:
        tokenizer = self.translator.tokenizers.source
        return token_labels(tokenizer, self.source_ids, tokenizer.unknown(self.source))

    @property
    def target_tokens(self) -> list[str]:
        return self._target_labels(self.target_ids)

    @property
    def predicted_ids(self) -> list[int]:
        return [*self.target_ids[1:], self.translator.symbols.end]

    @property
    def predicted_tokens(self) -> list[str]:
        return self._target_labels(self.predicted_ids)

    def _target_labels(self, ids: list[int]) -> list[str]:
        tokenizer = self.translator.tokenizers.target
        return token_labels(tokenizer, ids, tokenizer.unknown(self.target))


@torch.no_grad()
def examine(
    translator: Translator,
    source: str,
    target: str | None = None,
    keep: str = "*",
    edits: Mapping[str, Edit] | None = None,
) -> Example:
    """Trace the (first) model of ``translator`` over ``source`` and ``target``, its own translation when None."""
    if not one_text(source, "source").strip():
        raise DataError("the sentence is empty; give one with at least one word")
    if target is None:
        target = translator.translate([source])[0]
    one_text(target, "target")
    model = translator.models[0]
    source_ids = [*translator.tokenizers.source.encode(source), translator.symbols.end]
    target_ids = [translator.symbols.start, *translator.tokenizers.target.encode(target)]
    ids = [torch.tensor([one], device=translator.device) for one in (source_ids, target_ids)]
    longest = max(len(source_ids), len(target_ids))
    with fitting_memory(longest, _bytes(model, longest)), trace(model, keep, edits) as recorded:
        model(*ids)
    return Example(translator, source, target, source_ids, target_ids, recorded)


def _bytes(model: EncoderDecoder, length: int) -> int:
    """Of what grows fastest with the length: five square matrices for each head, four numbers for each entry of the
    vocabulary at each position."""
    config = model.config
    heads = config.n_heads * (config.n_encoder_layers + 2 * config.n_decoder_layers)
    return 4 * (5 * heads * length**2 + 4 * max(config.vocab_sizes) * length)
