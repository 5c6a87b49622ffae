"""Text that goes on: a language model with its tokenizer."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Self

import torch

from glassformer.data.windows import logits_within_documents
from glassformer.errors import ConfigError, DataError
from glassformer.generate import (
    Hypothesis,
    LanguageDecodingConfig,
    SpecialTokens,
    StopStrings,
    continue_texts,
    stop_strings,
    stream_text,
    token_biases,
)
from glassformer.generate.greedy_and_sampling import finish
from glassformer.layers.position import ENCODINGS
from glassformer.metrics.likelihood import TextLikelihood, sliding_likelihood
from glassformer.models.gpt import GPT
from glassformer.models.registry import summary
from glassformer.native import Accelerated
from glassformer.native.accelerated import supported_decoding, weights_state
from glassformer.predict.loading import load_run
from glassformer.predict.memory import fitting_memory
from glassformer.predict.prompt_cache import PromptCache, WithPromptCache, form_of
from glassformer.text import Tokenizer
from glassformer.text.arguments import list_of_texts, one_text, refuse_several
from glassformer.text.errors import TextError, TextWarning, warn_of_unknown

SCORED_TOKENS = 8192
"""Tokens that are scored together."""


@dataclass(frozen=True)
class Generated:
    """Continuation of a prompt; ``text`` includes the space between them, if any."""

    text: str
    hypothesis: Hypothesis

    @property
    def score(self) -> float:
        return self.hypothesis.score


@dataclass(frozen=True, repr=False)
class Generator:
    """A model that continues text. Of a prompt, the last word is whole, since its tokens are those of whole words.

    ``documents`` is how text was divided for training: where lines or paragraphs were documents, a prompt begins one,
    and so stands behind an end token, as in training. Otherwise only the empty prompt does.
    """

    model: GPT
    tokenizer: Tokenizer
    decoding: LanguageDecodingConfig
    context: int
    """Tokens a window of training."""
    documents: str = "file"
    within_documents: bool = False
    """True if training separated documents, so that evaluation does too."""
    kept: PromptCache | None = None
    path: Path | None = field(default=None, kw_only=True, compare=False)
    """The checkpoint that the model was loaded from, if any."""

    def __repr__(self) -> str:
        vocabulary = f"vocabulary of {self.tokenizer.vocab_size:,}"
        return summary(type(self).__name__, self.model, vocabulary, f"context of {self.context}", self.path)

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> Self:
        """Load a run folder (its best checkpoint) or a checkpoint folder."""
        run = load_run(path, ("language",), device)
        origin = f"{run.path}/config.json"
        decoding = LanguageDecodingConfig.parse_stored(run.settings.get("decoding", {}), origin)
        decoding = supported_decoding(decoding, run.model, origin)
        context = run.settings.get("context", run.model.config.max_length)
        documents, within = run.settings.get("documents", "file"), run.settings.get("within_documents", False)
        return cls(run.model, run.tokenizer, decoding, context, documents, within, path=run.path)

    @property
    def device(self) -> torch.device:
        return self.model.output_projection.weight.device

    @property
    def window(self) -> int | None:
        """Tokens that are seen at most; None where positions do not end. Learned ones were trained no further."""
        config = self.model.config
        return min(self.context, config.max_length) if ENCODINGS[config.positions].bounded else None

    def generate(self, prompts: Sequence[str], refuse_long: bool = False, **options: Any) -> list[str]:
        """The best continuation of each prompt; ``continuations`` returns several.

        ``options`` are those of ``LanguageDecodingConfig``: ``temperature=0.8``, ``stop=["\\n"]``, … At most
        ``max_length`` tokens are generated, or else ``max_extra``.
        """
        refuse_several(options, "generate", "continuations")
        return [found[0].text for found in self._continuations(prompts, refuse_long, options)]

    def continuations(self, prompts: Sequence[str], refuse_long: bool = False, **options: Any) -> list[list[Generated]]:
        """The ``n_best`` continuations of each prompt, best first; samples in the order drawn.

        A text that fills the window of learned positions continues from its last half; by beam search it ends there. A
        prompt that does not fit is truncated to its end, with a warning; ``refuse_long`` refuses it instead.
        """
        return self._continuations(prompts, refuse_long, options)

    def _continuations(
        self, prompts: Sequence[str], refuse_long: bool, options: dict[str, Any]
    ) -> list[list[Generated]]:
        """Continue ``prompts``; warnings point at the caller of the public method."""
        prompts = list_of_texts(prompts, "prompts")
        config = self.configure(**options)
        self._warn_of_unknown("prompt", prompts, stacklevel=4)
        ids = []
        for number, text in enumerate(prompts, start=1):
            ids.append(self._prompt(number, text, config, refuse_long, stacklevel=4))
        if not ids:
            return []
        with fitting_memory(max(map(len, ids)) + (config.max_length or config.max_extra)):
            stops, symbols = StopStrings(config.stop), self._symbols(config)

            def stopped(number: int, tokens: list[int]) -> bool:
                return stops.complete(self._text(ids[number], tokens))

            model, when = self._decodable(config), stopped if config.stop else None
            found = continue_texts(model, ids, symbols, config, self.device, self.window, when)
        return [
            [self._generated(prompt, one, config) for one in several]
            for prompt, several in zip(ids, found, strict=True)
        ]

    def stream(self, prompt: str, refuse_long: bool = False, **options: Any) -> Iterator[str]:
        """The first of ``continuations`` in pieces, as they come; that of a beam comes in one."""
        prompt, config = one_text(prompt, "prompt"), self.configure(**options)
        if config.beam_size > 1 and not config.sample:
            yield self.continuations([prompt], refuse_long, **options)[0][0].text
            return
        self._warn_of_unknown("prompt", [prompt])
        ids, tokens, sent = self._prompt(1, prompt, config, refuse_long), list[int](), ""
        stops, symbols = StopStrings(config.stop), self._symbols(config)
        for token in stream_text(self._decodable(config), ids, symbols, config, self.device, self.window):
            tokens.append(token)
            text = self._text(ids, tokens)
            if stops.complete(text):
                break
            text = text[: stops.open(text)]
            if text.startswith(sent) and len(text) > len(sent) and not text.endswith("\ufffd"):
                yield text[len(sent) :]
                sent = text
        text = self._text(ids, tokens)
        if rest := text[len(sent) : stops.cut(text)]:
            yield rest

    def with_prompt(self, text: str) -> Self:
        """The same generator with the keys and values of ``text`` kept: prompts that begin with it are not read anew
        as far as it goes. What it generates is the same. It belongs to the caller, and is gone with it. After a change
        of the weights, or of the engine or precision, ``text`` is read again. A trace and hooks see whole prompts.
        """
        ids = self._begun(self.tokenizer.encode(one_text(text, "text")))
        if self.window is not None and len(ids) > self.window:
            raise DataError(
                f"a prompt of {len(ids):,} tokens does not fit the {self.window} that the model sees; shorten it"
            )
        config = self.decoding
        form = self._accelerated.form(config.engine, config.precision)
        if form is self.model:  # with a trace or hooks: read when it is first needed without them
            return replace(self, kept=PromptCache(ids, [], "", []))
        with fitting_memory(len(ids)):
            return replace(self, kept=self._read(form, config.precision, ids))

    def score(self, texts: Sequence[str], stride: int = 0) -> list[TextLikelihood]:
        """Likelihood of each text; its first token is predicted too if a text begins a document."""
        scores = []
        texts = list_of_texts(texts, "texts")
        self._warn_of_unknown("text", texts)
        for text in texts:
            ids = self.tokenizer.encode(text)
            size = self.tokenizer.size(ids, given=0 if self._opens else 1)
            scores.append(replace(self.likelihood(ids, stride, self._opens), **size._asdict()))
        return scores

    def likelihood(self, ids: Any, stride: int = 0, opens: bool = False) -> TextLikelihood:
        """Every token predicted once, from a window that slides by ``stride``; 0 is the window itself."""
        end_id = self.tokenizer.end_id
        logits = logits_within_documents(self.model, end_id) if self.within_documents else self.model
        with fitting_memory(self.context):
            return sliding_likelihood(
                logits, ids, self.window or self.context, stride, end_id if opens else None, SCORED_TOKENS, self.device
            )

    def configure(self, **options: Any) -> LanguageDecodingConfig:
        """The stored decoding settings with ``options`` over them; a beam that is asked for is searched, not drawn."""
        options = LanguageDecodingConfig.migrate(options)
        if options.get("beam_size", 1) > 1 and "sample" not in options:
            options["sample"] = False
        values = {**self.decoding.model_dump(), **options}
        if not values["sample"] and "beam_size" not in options:
            values["beam_size"] = max(values["beam_size"], values["n_best"])
        config = LanguageDecodingConfig.parse(values, "decoding")
        stop_strings(config.stop, self.tokenizer), token_biases(config.logit_bias, self.tokenizer)
        if config.min_length > (most := config.max_length or config.max_extra):
            raise ConfigError(f"min_length={config.min_length} is more than the {most} new tokens; raise max_length")
        return config

    def _symbols(self, config: LanguageDecodingConfig) -> SpecialTokens:
        return SpecialTokens.of(self.tokenizer, token_biases(config.logit_bias, self.tokenizer))

    @property
    def _opens(self) -> bool:
        return self.documents != "file"

    def _begun(self, ids: list[int]) -> list[int]:
        return [self.tokenizer.end_id, *ids] if self._opens or not ids else ids

    def _prompt(
        self, number: int, text: str, config: LanguageDecodingConfig, refuse_long: bool, stacklevel: int = 3
    ) -> list[int]:
        """Ids of the prompt; only its last ones if it leaves no room for new tokens."""
        ids, window = self._begun(self.tokenizer.encode(text)), self.window
        if window is None or len(ids) < window:
            return ids
        if window < 2:
            raise DataError(f"the model sees {window} token, which leaves no room to go on; train with more context")
        new_tokens = config.max_length or config.max_extra
        limit = max(1, window - min(new_tokens, window - window // 2))
        fault = f"has {len(ids):,} tokens, and the model sees {window}, the next one included"
        if refuse_long:
            raise TextError("prompt", number, f"{fault}; shorten it to {window - 1}")
        warnings.warn(TextWarning("prompt", number, f"{fault}; only its last {limit} are read"), stacklevel=stacklevel)
        return ids[-limit:]

    def _warn_of_unknown(self, what: str, texts: Sequence[str], stacklevel: int = 3) -> None:
        encoded = self.tokenizer.encode_batch(list(texts))
        warn_of_unknown(self.tokenizer, what, zip(count(1), texts, encoded), stacklevel=stacklevel)

    def _text(self, prompt: list[int], tokens: list[int]) -> str:
        """Text after the prompt, decoded together with ``tokens``."""
        before, whole = self.tokenizer.decode(prompt), self.tokenizer.decode([*prompt, *tokens])
        return whole[len(before) :] if whole.startswith(before) else self.tokenizer.decode(tokens)

    def _generated(self, prompt: list[int], found: Hypothesis, config: LanguageDecodingConfig) -> Generated:
        """The text before the first stop string, with the tokens that decode to it."""
        text = self._text(prompt, found.tokens)
        if (cut := StopStrings(config.stop).cut(text)) is None:
            return Generated(text, found)
        text, count = text[:cut], len(found.tokens)
        while count and self._text(prompt, found.tokens[: count - 1])[:cut] == text:
            count -= 1
        return Generated(text, finish(found.tokens[:count], found.token_log_probs[:count], config, "stop"))

    @cached_property
    def _accelerated(self) -> Accelerated:
        return Accelerated(self.model)

    def refresh(self) -> None:
        """Read the weights of ``model`` again, after they were written.

        Needed for copies in bfloat16, and for a kept prompt after a write through ``parameter.data`` or NumPy.
        """
        self._accelerated.refresh()
        if self.kept is not None:
            object.__setattr__(self, "kept", replace(self.kept, weights=[]))

    def _decodable(self, config: LanguageDecodingConfig) -> Any:
        model = self._accelerated.form(config.engine, config.precision)
        kept = self.kept
        if kept is None or model is self.model:
            return model
        if (kept.weights, kept.form) != (weights_state(self.model), form_of(model, config.precision)):
            kept = self._read(model, config.precision, kept.ids)
            object.__setattr__(self, "kept", kept)  # a search that runs goes on with the one it has
        return WithPromptCache(model, kept)

    def _read(self, model: Any, precision: str, ids: list[int]) -> PromptCache:
        return PromptCache.of(model, precision, ids, weights_state(self.model), self.device)
