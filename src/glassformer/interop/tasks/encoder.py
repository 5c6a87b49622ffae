"""BERT's uses: predicting masked tokens, the class of a text, the tags of its tokens, or vectors of texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from glassformer.data.sequences import Frame, special_id
from glassformer.errors import CheckpointError
from glassformer.interop.parity import Logits, ParityInputs, Sample, random_rows
from glassformer.interop.samples import compared, refuse_long
from glassformer.interop.sentence_vectors import write_settings
from glassformer.interop.tasks.conversion import names_of, with_names
from glassformer.interop.tasks.tokenizer_files import pipeline_of, write_tokenizer
from glassformer.interop.tokenizer_json import MARKS, foreign_pair
from glassformer.interop.transformers_api import loaded_tokenizer, read_by, refuse_other_ids
from glassformer.predict.loading import LoadedRun
from glassformer.text import TokenizerPair
from glassformer.text.pretrained import KIND, PretrainedTokenizer

NAMES = {"classification": "labels", "tagging": "tags"}
"""Under which key our ``config.json`` names what the head tells."""
SYMBOLS = {"<pad>": ("pad_token", "[PAD]"), "<unk>": ("unk_token", "[UNK]")}
SYMBOLS |= {"[CLS]": ("cls_token", "[CLS]"), "[SEP]": ("sep_token", "[SEP]"), "[MASK]": ("mask_token", "[MASK]")}


class EncoderConversion:
    """The symbols around a text are the task's here, and its tokenizer's there."""

    generation: ClassVar[dict[str, Any]] = {}

    def __init__(self, task: str, loader: str):
        self.task, self.loader = task, loader

    def read(self, folder: Path, theirs: dict[str, Any], config: Any) -> tuple[dict[str, Any], TokenizerPair]:
        found = pipeline_of(folder, config.vocab_size)
        ids = {ours: found.special(*names) for ours, names in SYMBOLS.items()}
        if ids["[MASK]"] is None and self.task != "masked":
            del ids["[MASK]"]
        for name, id in ids.items():
            if id is None:
                raise CheckpointError(f"{folder}: the tokenizer has no {SYMBOLS[name][0]}; add it, and save it again")
        known = {name: id for name, id in ids.items() if id is not None}
        symbols = {"<pad>": known["<pad>"], "<s>": known["[CLS]"], "</s>": known["[SEP]"], **known}
        plain = {**found.document, "post_processor": None, "truncation": None, "padding": None}
        pair = foreign_pair(PretrainedTokenizer(symbols, plain, found.entries))
        values: dict[str, Any] = {"task": self.task, "max_length": config.max_length, "tokenizer": pair.fingerprint}
        return values | ({NAMES[self.task]: names_of(theirs)} if self.task in NAMES else {}), pair

    def settings(self, held: LoadedRun) -> dict[str, Any]:
        symbols = {"pad_token_id": held.tokenizer.pad_id}
        return symbols | (with_names(held.setting(NAMES[self.task])) if self.task in NAMES else {})

    def write(self, folder: Path, held: LoadedRun) -> list[str]:
        notes = write_tokenizer(folder, held.tokenizer, held.model.config.max_length, "marks")
        write_settings(folder, held.settings, held.model.config.d_model)
        if self.task == "masked" and held.tokenizer.kind not in (KIND, "char"):
            notes.append("punctuation beside a [MASK] is cut there as if a space stood between them")
        return notes

    def inputs(self, held: LoadedRun) -> ParityInputs:
        c, tokenizer = held.model.config, held.tokenizer
        generator, longest = torch.Generator().manual_seed(1), min(9, c.max_length)
        lengths = [longest, min(5, longest), 1]
        ids, mask = random_rows(c.vocab_size, {tokenizer.pad_id}, lengths, tokenizer.pad_id, generator)
        segments = torch.randint(c.n_segments, ids.shape, generator=generator)
        return ParityInputs((ids, mask, segments), None if self.task == "classification" else mask)

    def logits(self, model: Any) -> Logits:
        if self.task == "masked":
            return lambda ids, mask, segments: model(ids, mask, segments)
        if self.task == "embedding":
            return lambda ids, mask, segments: model.hidden(ids, mask, segments)
        head = model.classes if self.task == "classification" else model.tags
        return lambda ids, mask, segments: head(model.hidden(ids, mask, segments))

    def their_logits(self, theirs: Any) -> Logits:
        def logits(ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
            output = theirs(input_ids=ids, attention_mask=mask.long(), token_type_ids=segments)
            found: Tensor = output.last_hidden_state if self.task == "embedding" else output.logits
            return found

        return logits

    @torch.inference_mode()
    def samples(self, held: LoadedRun, theirs: Any, folder: Path, texts: Sequence[str] | None) -> list[Sample]:
        reader, frame, samples = loaded_tokenizer(folder), Frame.of(held.tokenizer), []
        for text in compared(texts, held.tokenizer):
            arrays: Any = frame.rows([[held.tokenizer.encode(text)]])
            given = [torch.from_numpy(array) for array in arrays]
            found = read_by(reader, folder, text, return_token_type_ids=True)
            refuse_other_ids(folder, text, given[0][0].tolist(), found["input_ids"])
            refuse_long(text, given[0].size(1), held.model.config.max_length)
            asked, mask = self._asked(held, given[0]), given[1]
            segments = torch.tensor([found["token_type_ids"]])
            ours = self.logits(held.model)(asked, mask, given[2])
            other = self.their_logits(theirs)(asked, mask, segments)
            samples.append(Sample(text, self._said(held, ours[0]), self._said(held, other[0])))
        return samples

    def _asked(self, held: LoadedRun, ids: Tensor) -> Tensor:
        """The last token of the text masked, where masked tokens are told."""
        if self.task == "masked":
            ids = ids.clone()
            ids[0, -2] = special_id(held.tokenizer, MARKS[2])
        return ids

    def _said(self, held: LoadedRun, logits: Tensor) -> str:
        if self.task == "embedding":
            return " ".join(f"{value:.4f}" for value in logits.mean(0)[:4].tolist()) + " …"
        best = logits.argmax(-1)
        if self.task == "masked":
            return held.tokenizer.tokens([int(best[-2])])[0]
        names = held.setting(NAMES[self.task])
        return " ".join(names[int(place)] for place in best.reshape(-1))


EMBEDDING = EncoderConversion("embedding", "AutoModel")
MASKED = EncoderConversion("masked", "AutoModelForMaskedLM")
CLASSIFICATION = EncoderConversion("classification", "AutoModelForSequenceClassification")
TAGGING = EncoderConversion("tagging", "AutoModelForTokenClassification")
