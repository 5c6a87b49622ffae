"""Tasks of BERT: masked tokens, text classification, token classification, text vectors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from glassformer.data.sequences import Frame, special_id
from glassformer.errors import CheckpointError
from glassformer.interop.parity import Logits, ParityInputs, Sample, comparison_texts, random_rows, refuse_long
from glassformer.interop.sentence_vectors import write_settings
from glassformer.interop.tasks.conversion import export_labels, import_labels
from glassformer.interop.tasks.tokenizer_files import pipeline_of, write_tokenizer
from glassformer.interop.tokenizer_json import pretrained_pair
from glassformer.interop.transformers_api import load_tokenizer, read_by, refuse_other_ids
from glassformer.predict.loading import LoadedRun
from glassformer.text import TokenizerPair
from glassformer.text.config import MARKS
from glassformer.text.pretrained import KIND, PretrainedTokenizer

SPECIAL_TOKENS = {"<pad>": ("pad_token", "[PAD]"), "<unk>": ("unk_token", "[UNK]")}
SPECIAL_TOKENS |= {"[CLS]": ("cls_token", "[CLS]"), "[SEP]": ("sep_token", "[SEP]"), "[MASK]": ("mask_token", "[MASK]")}


class EncoderConversion:
    """Conversion of an encoder: the task adds the special tokens around a text here, and the tokenizer does there."""

    generation: ClassVar[dict[str, Any]] = {}

    def __init__(self, task: str, loader: str, head: str = "", names: str = ""):
        """``head`` is the model's layer that predicts classes, ``names`` the key of their names in our config.json."""
        self.task, self.loader, self.head, self.names = task, loader, head, names

    def read(self, folder: Path, their_config: dict[str, Any], config: Any) -> tuple[dict[str, Any], TokenizerPair]:
        pipeline = pipeline_of(folder, config.vocab_size)
        ids = {our_result: pipeline.special(*names) for our_result, names in SPECIAL_TOKENS.items()}
        if ids["[MASK]"] is None and self.task != "masked":
            del ids["[MASK]"]
        for name, id in ids.items():
            if id is None:
                raise CheckpointError(
                    f"{folder}: the tokenizer has no {SPECIAL_TOKENS[name][0]}; add it, and save it again"
                )
        known = {name: id for name, id in ids.items() if id is not None}
        special_ids = {"<pad>": known["<pad>"], "<s>": known["[CLS]"], "</s>": known["[SEP]"], **known}
        plain = {**pipeline.document, "post_processor": None, "truncation": None, "padding": None}
        pair = pretrained_pair(PretrainedTokenizer(special_ids, plain, pipeline.entries))
        values: dict[str, Any] = {"task": self.task, "max_length": config.max_length, "tokenizer": pair.fingerprint}
        return values | ({self.names: import_labels(their_config)} if self.names else {}), pair

    def settings(self, run: LoadedRun) -> dict[str, Any]:
        special_ids = {"pad_token_id": run.tokenizer.pad_id}
        return special_ids | (export_labels(run.setting(self.names)) if self.names else {})

    def write(self, folder: Path, run: LoadedRun) -> list[str]:
        notes = write_tokenizer(folder, run.tokenizer, run.model.config.max_length, "marks")
        write_settings(folder, run.settings, run.model.config.d_model)
        if self.task == "masked" and run.tokenizer.kind not in (KIND, "char"):
            notes.append("punctuation beside a [MASK] is cut there as if a space stood between them")
        return notes

    def inputs(self, run: LoadedRun) -> ParityInputs:
        c, tokenizer = run.model.config, run.tokenizer
        generator = torch.Generator().manual_seed(1)
        ids, mask = random_rows(c.vocab_size, {tokenizer.pad_id}, tokenizer.pad_id, c.max_length, generator)
        segments = torch.randint(c.n_segments, ids.shape, generator=generator)
        return ParityInputs((ids, mask, segments), None if self.head == "classes" else mask)

    def logits(self, model: Any) -> Logits:
        if self.task == "masked":
            return lambda ids, mask, segments: model(ids, mask, segments)
        if self.task == "embedding":
            return lambda ids, mask, segments: model.hidden(ids, mask, segments)
        head = getattr(model, self.head)
        return lambda ids, mask, segments: head(model.hidden(ids, mask, segments))

    def their_logits(self, their_model: Any) -> Logits:
        output = "last_hidden_state" if self.task == "embedding" else "logits"
        return lambda ids, mask, segments: getattr(
            their_model(input_ids=ids, attention_mask=mask.long(), token_type_ids=segments), output
        )

    @torch.inference_mode()
    def samples(self, run: LoadedRun, their_model: Any, folder: Path, texts: Sequence[str] | None) -> list[Sample]:
        reader, frame, samples = load_tokenizer(folder), Frame.of(run.tokenizer), []
        for text in comparison_texts(texts, run.tokenizer):
            arrays: Any = frame.rows([[run.tokenizer.encode(text)]])
            ids, mask, segments = (torch.from_numpy(array) for array in arrays)
            encoding = read_by(reader, folder, text, return_token_type_ids=True)
            refuse_other_ids(folder, text, ids[0].tolist(), encoding["input_ids"])
            refuse_long(text, ids.size(1), run.model.config.max_length)
            ids, their_segments = self._mask_last(run, ids), torch.tensor([encoding["token_type_ids"]])
            our_result = self.logits(run.model)(ids, mask, segments)
            their_result = self.their_logits(their_model)(ids, mask, their_segments)
            samples.append(Sample(text, self._display(run, our_result[0]), self._display(run, their_result[0])))
        return samples

    def _mask_last(self, run: LoadedRun, ids: Tensor) -> Tensor:
        """Mask the last token of the text, if the task is to predict masked tokens."""
        if self.task == "masked":
            ids = ids.clone()
            ids[0, -2] = special_id(run.tokenizer, MARKS[2])
        return ids

    def _display(self, run: LoadedRun, logits: Tensor) -> str:
        """Format the prediction for one text."""
        if self.task == "embedding":
            return " ".join(f"{value:.4f}" for value in logits.mean(0)[:4].tolist()) + " …"
        best = logits.argmax(-1)
        if self.task == "masked":
            return run.tokenizer.tokens([int(best[-2])])[0]
        names = run.setting(self.names)
        return " ".join(names[int(index)] for index in best.reshape(-1))


EMBEDDING = EncoderConversion("embedding", "AutoModel")
MASKED = EncoderConversion("masked", "AutoModelForMaskedLM")
CLASSIFICATION = EncoderConversion("classification", "AutoModelForSequenceClassification", "classes", "labels")
TAGGING = EncoderConversion("tagging", "AutoModelForTokenClassification", "tags", "tags")
