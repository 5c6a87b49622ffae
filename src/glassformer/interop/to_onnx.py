"""Export to ONNX: ``encoder.onnx`` and ``decoder.onnx`` for any batch and length, without a cache."""

import copy
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from glassformer.errors import DataError
from glassformer.interop import require
from glassformer.interop.folder import SETTINGS_FILE, load_translator, write_json
from glassformer.interop.parity import Conversion, Logits, Parity, largest_difference, logits_of, random_inputs
from glassformer.interop.tokenizer_json import write_sides
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.cache import KeyValueCache
from glassformer.layers.embedding import TokenEmbedding
from glassformer.layers.mask import Mask
from glassformer.layers.position import Sinusoidal, sinusoids
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.storage.atomic import new_folder
from glassformer.text import SPECIAL_TOKENS

require("onnxscript", "onnx")
onnxruntime = require("onnxruntime", "onnx")


def export_onnx(run: str | Path, destination: str | Path, texts: Sequence[str] | None = None) -> Conversion:
    """Export both graphs, ``source.json`` and ``target.json`` for ``tokenizers``, and the ids of the special tokens.

    encoder: ``source`` [batch, source] ids, ``source_mask`` (true where there is a token) → ``memory``;
    decoder: ``target`` [batch, target] ids, ``memory``, ``source_mask`` → ``logits``. There is no cache.
    """
    destination = Path(destination)
    if texts is not None:
        raise DataError("no texts are translated by an export to onnx, which has no search; leave them out")
    path, translator = load_translator(run)
    model, tokenizers = translator.models[0], translator.tokenizers
    with new_folder(destination) as folder:
        write_graphs(model, folder)
        write_sides(tokenizers, folder)
        special_ids = {name: tokenizers.target.special_tokens[name] for name in SPECIAL_TOKENS}
        settings = {"model": model.config.model_dump(mode="json"), "symbols": special_ids}
        write_json(folder / SETTINGS_FILE, settings)
        difference = largest_difference(logits_of(model), logits_of_graphs(folder), random_inputs(model, tokenizers))
        parity = Parity({"float32": difference}, [])
        parity.check(str(path))
    return Conversion(destination, "onnx", parity, ["the decoder has no cache: each step reads the whole target again"])


def write_graphs(model: EncoderDecoder, folder: Path) -> None:
    """Write both graphs of a copy of ``model``, which must be on the CPU."""
    plain = _without_kernels(copy.deepcopy(model).float().eval())
    batch, source, target = (torch.export.Dim(name) for name in ("batch", "source", "target"))
    ids, mask = torch.ones(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.bool)
    sides: dict[str, tuple[nn.Module, dict[str, Tensor], dict[str, Any], str]] = {
        "encoder": (
            _ExportedEncoder(plain),
            {"source": ids, "source_mask": mask},
            {"source": {0: batch, 1: source}, "source_mask": {0: batch, 1: source}},
            "memory",
        ),
        "decoder": (
            _ExportedDecoder(plain),
            {
                "target": torch.ones(2, 4, dtype=torch.long),
                "memory": torch.zeros(2, 3, model.config.d_model),
                "source_mask": mask,
            },
            {"target": {0: batch, 1: target}, "memory": {0: batch, 1: source}, "source_mask": {0: batch, 1: source}},
            "logits",
        ),
    }
    for name, (module, inputs, shapes, output) in sides.items():
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # exporter internals
            torch.onnx.export(
                module.eval(),
                kwargs=inputs,
                f=folder / f"{name}.onnx",
                dynamo=True,
                dynamic_shapes=shapes,
                input_names=list(inputs),
                output_names=[output],
                external_data=False,
                verbose=False,
            )


def logits_of_graphs(folder: Path) -> Logits:
    """Function from inputs to logits that runs the graphs with onnxruntime."""
    sessions = {
        name: onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
        for name in ("encoder", "decoder")
    }

    def logits(source: Tensor, source_mask: Tensor, target: Tensor) -> Tensor:
        mask = {"source_mask": source_mask.numpy()}
        (memory,) = sessions["encoder"].run(None, {"source": source.numpy(), **mask})
        (output,) = sessions["decoder"].run(None, {"target": target.numpy(), "memory": memory, **mask})
        return torch.from_numpy(output)

    return logits


class _ExportedEncoder(nn.Module):
    """Graph of the encoder: ids and mask to memory."""

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.model = model

    def forward(
        self, source: Int[Tensor, "batch source"], source_mask: Bool[Tensor, "batch source"]
    ) -> Float[Tensor, "batch source d_model"]:
        return self.model.encode(source, source_mask)


class _ExportedDecoder(nn.Module):
    """Graph of the decoder: target ids, memory and mask to logits."""

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.model = model

    def forward(
        self,
        target: Int[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "batch source"],
    ) -> Float[Tensor, "batch target vocab"]:
        length = target.size(1)
        causal = Mask(allowed=torch.ones(length, length, dtype=torch.bool).tril()[None, None])
        x = self.model.target_embedding(target)
        return self.model.output_projection(self.model.decoder(x, causal, memory, Mask(source_mask)))


class _ExportedAttention(MultiHeadAttention):
    """Equation 1 without a choice of kernels by length, since a graph serves every length."""

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Mask | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        memory = x if memory is None else memory
        q, k, v = (
            project(inputs).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for project, inputs in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        if self.rotary is not None:
            q, k = self.rotary(q, k, 0)
        scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.size(-1)))
        if mask is not None and (dense := mask.dense(q.size(2), k.size(2), q.device)) is not None:
            scores = scores.masked_fill(~dense, torch.finfo(scores.dtype).min)
        context = scores.softmax(-1) @ v
        return self.output(context.transpose(1, 2).flatten(2))


class _Positions(nn.Module):
    """Formula of section 3.5 for every length."""

    def __init__(self, d_model: int):
        super().__init__()
        self.d_model = d_model

    def forward(self, offset: int, length: int) -> Tensor:
        return sinusoids(torch.arange(length).double(), self.d_model).float()


def _without_kernels(model: EncoderDecoder) -> EncoderDecoder:
    """Replace modules that choose a kernel by length, in place."""
    for module in list(model.modules()):
        if isinstance(module, MultiHeadAttention):
            module.__class__ = _ExportedAttention
        if isinstance(module, nn.Linear):
            module.__class__ = nn.Linear
        if isinstance(module, TokenEmbedding) and isinstance(module.position, Sinusoidal):
            module.position = _Positions(model.config.d_model)
    return model
