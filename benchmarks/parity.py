"""How far models of ours and of Hugging Face's are apart, in both directions, with the same weights.

    python -m benchmarks.parity

For each model and configuration: random weights of theirs imported, and what came of it exported again. Written down is
the largest difference of logits over rows of several lengths, padded, relative to the largest logit where that is
above 1. Sizes are such that rounding adds up as it does in small real models: d_model 256, 4 layers.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from tests.interop.small_checkpoint import LINES, checkpoint
from tests.interop.small_folders import folder

from benchmarks.machine import describe
from glassformer.interop.huggingface import export_folder, import_folder

HERE = Path(__file__).parent
WIDE = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4, "num_attention_heads": 8}
GPT2 = {"n_embd": 256, "n_inner": 704, "n_layer": 4, "n_head": 8}
OURS = {"d_model": 256, "d_ff": 704, "n_heads": 8, "n_encoder_layers": 4, "n_decoder_layers": 4}
STACKS: list[tuple[str, str, dict[str, Any]]] = [
    ("GPT2LMHeadModel", "GELU (tanh), tied", GPT2),
    ("GPT2LMHeadModel", "ReLU, untied", {**GPT2, "activation_function": "relu", "tie_word_embeddings": False}),
    ("LlamaForCausalLM", "2 of 8 heads for keys and values", WIDE),
    (
        "LlamaForCausalLM",
        "8 heads, biases",
        {**WIDE, "num_key_value_heads": 8, "attention_bias": True, "mlp_bias": True},
    ),
    ("MistralForCausalLM", "window of 4", {**WIDE, "sliding_window": 4}),
    ("BertForMaskedLM", "GELU", WIDE),
    ("BertForMaskedLM", "GELU (tanh)", {**WIDE, "hidden_act": "gelu_new"}),
    ("BertForSequenceClassification", "3 classes", WIDE),
    ("BertForTokenClassification", "3 tags", WIDE),
    ("ViTForImageClassification", "8 × 12 pixels, patches of 4", WIDE),
]
TRANSLATORS: list[tuple[str, dict[str, Any]]] = [
    ("post-norm, sinusoidal, tied", {}),
    ("post-norm, sinusoidal, untied, GELU", {"tie_embeddings": False, "activation": "gelu"}),
    ("pre-norm, sinusoidal", {"norm_order": "pre"}),
    ("pre-norm, learned", {"norm_order": "pre", "positions": "learned"}),
    (
        "post-norm, embedding normalized",
        {"positions": "learned", "scale_embeddings": False, "norm_embeddings": True, "activation": "gelu"},
    ),
    (
        "post-norm, embedding scaled and normalized, untied",
        {"positions": "learned", "norm_embeddings": True, "tie_embeddings": False},
    ),
    (
        "pre-norm, embedding scaled and normalized",
        {"norm_order": "pre", "positions": "learned", "norm_embeddings": True},
    ),
    (
        "pre-norm, embedding normalized, untied",
        {
            "norm_order": "pre",
            "positions": "learned",
            "scale_embeddings": False,
            "norm_embeddings": True,
            "tie_embeddings": False,
        },
    ),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "parity.json")
    output = parser.parse_args().output
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for number, (model, configuration, changes) in enumerate(STACKS):
            theirs = folder(Path(place) / f"{number}-theirs", model, **changes)
            imported = import_folder(str(theirs), Path(place) / f"{number}-ours")
            exported = export_folder(Path(place) / f"{number}-ours", Path(place) / f"{number}-again")
            rows.append(row(model, configuration, imported.parity.differences, exported.parity.differences))
        for number, (configuration, changes) in enumerate(TRANSLATORS):
            ours = checkpoint(Path(place) / f"t{number}", **{**OURS, **changes})
            exported = export_folder(ours, Path(place) / f"t{number}-theirs", LINES[:2])
            imported = import_folder(str(exported.path), Path(place) / f"t{number}-back", LINES[:2])
            rows.append(row(exported.kind, configuration, imported.parity.differences, exported.parity.differences))
    output.write_text(json.dumps({"machine": describe(), "rows": rows}, indent=1, ensure_ascii=False) + "\n")


def row(model: str, configuration: str, imported: dict[str, float], exported: dict[str, float]) -> dict[str, Any]:
    """What is recorded, once it is printed."""
    found = {"import": imported, "export": exported}
    said = [f"{found[way][kind]:.1e}" for kind in ("float32", "float64") for way in found]
    print(f"| {model} | {configuration} | {' | '.join(said)} |", flush=True)
    return {"model": model, "configuration": configuration, **found}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("| model | configuration | float32 import | export | float64 import | export |\n|---|---|---|---|---|---|")
    main()
