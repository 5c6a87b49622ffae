"""Raw text in, raw text out: a model with its tokenizers. Validation, translation and scoring all go through here."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from glassformer.alignment.attention import HeadReading, copies, one_head, strongest_links, word_weights
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.generate import (
    Decodable,
    DecodingConfig,
    Ensemble,
    Hypothesis,
    SpecialTokens,
    TranslationDecodingConfig,
    generate,
    refuse_min_length,
    score_pairs,
    token_biases,
)
from glassformer.generate.candidates import counting_texts
from glassformer.generate.pieces import MANY, Translation, joined, search_with_estimate
from glassformer.layers.position import ENCODINGS
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.registry import parameters_by_part, summary
from glassformer.native import Accelerated
from glassformer.native.accelerated import supported_decoding
from glassformer.predict.loading import LoadedRun, load_run
from glassformer.predict.memory import fitting_memory
from glassformer.taps import record
from glassformer.text import TokenizerPair
from glassformer.text.arguments import list_of_texts, one_text, refuse_several
from glassformer.text.errors import warn_of_unknown
from glassformer.text.notebook import facts_as_html, weights_as_html
from glassformer.text.reading import EncodedPart, Limit, read_in_parts, warn_of_long, with_end
from glassformer.text.sentences import joined_texts, words_before


@dataclass(frozen=True, repr=False)
class CrossAttention:
    """Cross-attention of the decoder: ``weights`` is ``[layers, heads, target, source]``, its rows sum to 1.

    The row of a target token is the step that predicted it. Both sides end with the end token.
    """

    source: list[str]
    target: list[str]
    weights: Tensor

    def __repr__(self) -> str:
        layers, heads, target, source = self.weights.shape
        return f"<CrossAttention: {layers} layers × {heads} heads, {target} target × {source} source tokens>"

    def _repr_html_(self) -> str:
        """Mean over the heads of the last layer, one row per target token."""
        title = f"{self!r}: last layer, mean over heads".strip("<").replace(">:", ",")
        return weights_as_html(title, self.target, self.source, self.weights[-1].mean(0).tolist())


class Translator:
    """One model, or several decoded as an ensemble, with the tokenizers they were trained with."""

    def __init__(
        self,
        models: Sequence[EncoderDecoder],
        tokenizers: TokenizerPair,
        decoding: DecodingConfig,
        bleu_tokenize: str = "13a",
        reading: HeadReading | None = None,
    ):
        self.models = list(models)
        self.reading = reading or HeadReading()
        self.bleu_tokenize = bleu_tokenize
        self.longest_source: int | None = None
        """Length in tokens of the longest source in training; None if unknown."""
        self.tokenizers = tokenizers
        self.decoding = decoding
        self.checkpoints: tuple[Path, ...] = ()
        """Checkpoints that the models were loaded from; empty if they were not loaded."""
        self._accelerated = [Accelerated(model) for model in self.models]
        self.symbols = SpecialTokens.of(tokenizers.target)

    @classmethod
    def load(cls, *paths: str | Path, device: str = "cpu") -> Self:
        """Load run folders (their best checkpoint) or checkpoint folders; several make an ensemble."""
        if not paths:
            raise CheckpointError("no checkpoint is named; name at least one")
        loaded = [_load_translating(path, device) for path in paths]
        first = loaded[0]
        for run in loaded[1:]:
            if run.pair.fingerprint != first.pair.fingerprint:
                raise CheckpointError(
                    f"{run.path}: its tokenizer is not that of {first.path}; an ensemble has one vocabulary"
                )
        origin = f"{first.path}/config.json"
        decoding = TranslationDecodingConfig.parse_stored(first.settings.get("decoding", {}), origin)
        decoding = supported_decoding(decoding, first.model, origin)
        reading = HeadReading(**first.settings.get("guided_alignment", {}))
        models = [run.model for run in loaded]
        translator = cls(models, first.pair, decoding, first.settings.get("bleu_tokenize", "13a"), reading)
        translator.checkpoints = tuple(run.path for run in loaded)
        translator.longest_source = min(
            (run.settings["max_length"] for run in loaded if "max_length" in run.settings), default=None
        )
        return translator

    def __repr__(self) -> str:
        others = f"ensemble of {len(self.models)}" if len(self.models) > 1 else ""
        return summary(type(self).__name__, self.models[0], others, self._vocabulary, *self.checkpoints)

    def _repr_html_(self) -> str:
        """Table of the model, its vocabulary, its default decoding settings and its checkpoints."""
        usual = TranslationDecodingConfig().model_dump()
        settings = {name: value for name, value in self.decoding.model_dump().items() if value != usual[name]}
        facts = {
            "model": f"{self.models[0].config.kind}, {parameters_by_part(self.models[0])['total']:,} parameters",
            "vocabulary": self._vocabulary,
            "decoding": ", ".join(f"{name}={value}" for name, value in settings.items()) or "defaults",
            "checkpoint": ", ".join(map(str, self.checkpoints)) or "none",
        }
        return facts_as_html(type(self).__name__, facts)

    @property
    def _vocabulary(self) -> str:
        source, target = self.tokenizers.source.vocab_size, self.tokenizers.target.vocab_size
        if self.tokenizers.source is self.tokenizers.target:
            return f"vocabulary of {source:,}"
        return f"vocabularies of {source:,} and {target:,}"

    @property
    def device(self) -> torch.device:
        return next(self.models[0].parameters()).device

    def translate(self, texts: Sequence[str], **options: Any) -> list[str]:
        """The best translation of each text; ``hypotheses`` returns several.

        ``options`` are those of ``TranslationDecodingConfig``: ``beam_size=4``, …
        """
        self.configure(**options)
        refuse_several(options, "translate", "hypotheses")
        return [found[0].text for found in self._search(texts, None, options)]

    def hypotheses(
        self, texts: Sequence[str], prefixes: Sequence[str] | None = None, **options: Any
    ) -> list[list[Translation]]:
        """The ``n_best`` translations of each text, best first (samples in the order drawn), each with its prefix.

        An empty text has one translation, the empty text. A text of more than ``max_source`` tokens is split into
        pieces (``text.sentences``), which are translated separately and joined, with a warning. ``long_source`` can
        truncate or refuse such a text instead. The first piece takes the prefix.
        """
        return self._search(texts, prefixes, options)

    def _search(
        self, texts: Sequence[str], prefixes: Sequence[str] | None, options: dict[str, Any]
    ) -> list[list[Translation]]:
        texts = list_of_texts(texts, "texts")
        config = self.configure(**options)
        full = [index for index, text in enumerate(texts) if text.strip()]
        results = [[Translation("", Hypothesis([], 0.0, 0.0, []))] for _ in texts]
        numbers, limit = [index + 1 for index in full], self._limit(config)
        parts = read_in_parts(self.tokenizers.source, [texts[index] for index in full], numbers, limit, stacklevel=3)
        sources = [part.ids for pieces in parts for part in pieces]
        prefixes = None if prefixes is None else list_of_texts(prefixes, "prefixes")
        if prefixes is not None and len(prefixes) != len(texts):
            raise DataError(f"{len(texts)} texts and {len(prefixes)} prefixes; give one for each, empty where none is")
        forced = None
        if prefixes:
            beginnings = [prefixes[index] for index in full]
            first = self.tokenizers.target.encode_batch(beginnings)
            warn_of_unknown(
                self.tokenizers.target, "prefix", zip(numbers, beginnings, first, strict=True), stacklevel=3
            )
            forced = [ids for one, pieces in zip(first, parts, strict=True) for ids in [one, *[[]] * (len(pieces) - 1)]]
        refuse_min_length(config, [pieces[0].ids for pieces in parts if len(pieces) == 1], self._longest_target)
        text_of = [index for index, pieces in zip(full, parts, strict=True) for _ in pieces]
        searched = iter(self._searched(sources, forced, config, text_of))
        for index, pieces in zip(full, parts, strict=True):
            several = [[self._translation(part, one, config) for one in next(searched)] for part in pieces]
            results[index] = several[0] if len(several) == 1 else joined(several, self.symbols.end, config)
        return results

    def _searched(
        self,
        sources: list[list[int]],
        forced: list[list[int]] | None,
        config: TranslationDecodingConfig,
        text_of: list[int],
    ) -> list[list[Hypothesis]]:
        """The hypotheses of all texts and pieces of texts; ``text_of`` holds the index of the text of each."""
        model, longest = self._decodable(config), max(map(len, sources), default=0)
        symbols = replace(self.symbols, bias=token_biases(config.logit_bias, self.tokenizers.target))

        def search(rows: Sequence[int]) -> list[list[Hypothesis]]:
            chosen, beginnings = [sources[row] for row in rows], forced and [forced[row] for row in rows]
            with counting_texts([text_of[row] for row in rows]):
                return generate(model, chosen, symbols, config, beginnings, self.device, self._longest_target)

        def announce(seconds: float) -> None:
            warnings.warn(f"translating {len(sources):,} pieces takes about {seconds:,.0f} s", stacklevel=6)

        with fitting_memory(longest):
            if max(Counter(text_of).values(), default=0) < MANY:
                return search(range(len(sources)))
            return search_with_estimate(search, [len(ids) for ids in sources], announce)

    def _translation(self, part: EncodedPart, hypothesis: Hypothesis, config: TranslationDecodingConfig) -> Translation:
        tokenizers, ids = self.tokenizers, hypothesis.tokens
        copied: dict[int, str] = {}
        if config.unknown == "copy" and tokenizers.target.unknown_id in ids and len(part.ids) > 1:
            weights = one_head(self._attention(part.ids, ids), self.reading.layer, self.reading.head)
            source = tokenizers.source, part.text, part.ids[:-1]
            copied = copies(weights, source, (tokenizers.target, ids), self.reading.shifted)
        return Translation(tokenizers.target.decode(ids, copied), hypothesis, part.text, copied=copied)

    def score(self, sources: Sequence[str], targets: Sequence[str], **options: Any) -> list[Hypothesis]:
        """The hypothesis that each target is: its log-probability, token by token, and its score."""
        sources, targets = list_of_texts(sources, "sources"), list_of_texts(targets, "targets")
        if len(sources) != len(targets):
            raise DataError(f"{len(sources)} sources and {len(targets)} targets; give as many of each")
        ids = self.tokenizers.target.encode_batch(targets)
        config = self.configure(**options)
        source_ids = self._sources(sources)
        warn_of_unknown(self.tokenizers.source, "source", zip(count(1), sources, source_ids), stacklevel=2)
        warn_of_long("source", source_ids, self._limit(config), "it is scored as one text", stacklevel=2)
        warn_of_unknown(self.tokenizers.target, "target", zip(count(1), targets, ids), stacklevel=2)
        longest = max(map(len, [*source_ids, *ids]), default=0)
        with fitting_memory(
            longest, 5 * max(map(len, ids), default=0) ** 2
        ):  # the causal mask, as truth values and as numbers
            return score_pairs(self._decodable(config), source_ids, ids, self.symbols, config, self.device)

    @torch.inference_mode()
    def cross_attention(self, source: str, target: str) -> CrossAttention:
        """The attention of the (first) model's decoder over ``source`` while it reads and predicts ``target``."""
        source_ids = self._sources([one_text(source, "source")])[0]
        target_ids = self.tokenizers.target.encode(one_text(target, "target"))
        return CrossAttention(
            self.tokenizers.source.tokens(source_ids),
            self.tokenizers.target.tokens([*target_ids, self.symbols.end]),
            self._attention(source_ids, target_ids),
        )

    @torch.inference_mode()
    def _attention(self, source_ids: Sequence[int], target_ids: Sequence[int]) -> Tensor:
        """Weights ``[layer, head, target, source]``; the source ends with the end token, the target does not."""
        model = self.models[0]
        read = torch.tensor([[self.symbols.start, *target_ids]], device=self.device)
        longest = max(len(source_ids), len(target_ids) + 1)
        with (
            fitting_memory(longest, self._trace_bytes(longest)),
            record(model, keep="*.cross_attention.weights") as recorded,
        ):
            model(torch.tensor([list(source_ids)], device=self.device), read)
        return torch.stack([recorded[name][0] for name in recorded]).cpu()

    def align(
        self,
        source: str,
        target: str,
        layer: int | None = None,
        head: int | None = None,
        shifted: bool | None = None,
    ) -> list[tuple[int, int]]:
        """(source word, target word) pairs: for each target word the source word that is attended to most.

        Without ``layer`` and ``head`` by the head that was guided in training, if one was (``data.alignments``), as it
        was guided. Else by the mean over the heads of ``layer``, the last when not given, or one of them, read at the
        step that predicts the target word; ``shifted`` reads where it is the decoder's *input*, which aligns better in
        deep models (Chen et al. 2020) and worse in the small ones measured here. Pieces of a source word are summed.
        """
        source_ids = self.tokenizers.source.encode(one_text(source, "source"))
        target_ids = self.tokenizers.target.encode(one_text(target, "target"))
        warn_of_unknown(self.tokenizers.source, "source", [(1, source, source_ids)], stacklevel=2)
        warn_of_unknown(self.tokenizers.target, "target", [(1, target, target_ids)], stacklevel=2)
        limit, read = self._limit(self.configure()), [[*source_ids, self.symbols.end]]
        warn_of_long("source", read, limit, "it is aligned as one text", stacklevel=2)
        return self._links(source, target, self.read_by(layer, head, shifted))

    def links(self, translation: Translation) -> list[tuple[int, int]]:
        """Word links of a translation made here, as from ``align``; a split source is aligned piece by piece."""
        if not translation.pieces:
            return self._links(translation.source, translation.text, self.reading)
        pieces = translation.pieces
        sources, texts = [one.source for one in pieces], [one.text for one in pieces]
        text, starts = joined_texts(texts, sources)
        source_words = words_before("".join(sources), [0, *accumulate(map(len, sources))][:-1])
        links = set[tuple[int, int]]()
        for one, source, target in zip(pieces, source_words, words_before(text, starts), strict=True):
            links |= {(i + source, j + target) for i, j in self._links(one.source, one.text, self.reading)}
        return sorted(links)

    def _links(self, source: str, target: str, reading: HeadReading) -> list[tuple[int, int]]:
        source_ids, target_ids = self.tokenizers.source.encode(source), self.tokenizers.target.encode(target)
        if not source_ids or not target_ids:
            return []
        layer, head, shifted = reading
        weights = one_head(self.cross_attention(source, target).weights, layer, head)
        words = self.tokenizers.source.word_of(source_ids), self.tokenizers.target.word_of(target_ids)
        return strongest_links(word_weights(weights, *words, shifted))

    def read_by(self, layer: int | None = None, head: int | None = None, shifted: bool | None = None) -> HeadReading:
        """Head or layer whose attention ``align`` reads for these settings."""
        usual = self.reading if layer is None and head is None else HeadReading()
        return HeadReading(
            usual.layer if layer is None else layer,
            usual.head if head is None else head,
            usual.shifted if shifted is None else shifted,
        )

    def configure(self, **options: Any) -> TranslationDecodingConfig:
        """The stored decoding settings with ``options`` over them; an unknown one is refused with the nearest known."""
        options = TranslationDecodingConfig.migrate(options)
        if "n_best" in options and "beam_size" not in options:
            options["beam_size"] = max(options["n_best"], self.decoding.beam_size)
        return TranslationDecodingConfig.parse({**self.decoding.model_dump(), **options}, "decoding")

    def _limit(self, config: TranslationDecodingConfig) -> Limit:
        built = min(model.config.max_length for model in self.models)
        if config.max_source is None:
            return Limit(min(built, self.longest_source or built), config.long_source)
        if self._longest_target is not None and config.max_source > built:
            raise ConfigError(f"max_source={config.max_source} exceeds the {built} learned positions; lower it")
        return Limit(config.max_source, config.long_source)

    def too_long(self, texts: Sequence[str]) -> list[tuple[int, int]]:
        """(index, tokens) of each text that is too long to be read in one piece."""
        limit = self._limit(self.configure()).tokens
        lengths = [len(ids) for ids in self._sources(list_of_texts(texts, "texts"))]
        return [(index, length) for index, length in enumerate(lengths) if length > limit]

    @property
    def _longest_target(self) -> int | None:
        """Learned positions end; the start token takes one of them."""
        bounded = (model.config for model in self.models if ENCODINGS[model.config.positions].bounded)
        return min((config.max_length - 1 for config in bounded), default=None)

    def _trace_bytes(self, length: int) -> int:
        """Bytes of the scores of one traced attention on a CPU: three times ``[heads, length, length]`` in float32."""
        return 12 * length**2 * self.models[0].config.n_heads if self.device.type == "cpu" else 0

    def _sources(self, texts: Sequence[str]) -> list[list[int]]:
        return with_end(self.tokenizers.source, texts)

    def refresh(self) -> None:
        """Read the weights of ``models`` again, after they were written.

        The kernels decode with packed copies of them. Until then a translation raises ``ConfigError``, or, after a
        write that leaves no sign (through ``parameter.data`` or NumPy), uses the copies. Hooks, traces and a model put
        into ``models`` are seen at once.
        """
        self._accelerated = [Accelerated(model) for model in self.models]

    def _decodable(self, config: DecodingConfig) -> Decodable:
        if [one.model for one in self._accelerated] != self.models:
            self.refresh()
        forms: list[Decodable] = [one.form(config.engine, config.precision) for one in self._accelerated]
        return forms[0] if len(forms) == 1 else Ensemble(forms)


def _load_translating(path: str | Path, device: str) -> LoadedRun:
    run = load_run(path, device=device)
    if (task := run.settings.get("task", "translation")) != "translation":
        raise CheckpointError(f"{run.path}: was trained for {task}, not for translation; use load()")
    if not hasattr(run.model.config, "vocab_sizes"):
        raise CheckpointError(f"{run.path}: a model of kind {run.model.config.kind} does not translate; use load()")
    if run.tokenizers is None:
        raise CheckpointError(f"{run.path}: has no tokenizer, so it cannot translate; restore the original")
    return run
