"""Hugging Face's ``generate`` with the same weights, in the model of theirs that has this layout (M2M100: pre-norm)."""

import json
from pathlib import Path

import torch
from decoding import arguments, measure, model_of
from device import peak_on
from safetensors.torch import load_file
from transformers import M2M100Config, M2M100ForConditionalGeneration

PARTS = {
    "self_attention.query": "self_attn.q_proj",
    "self_attention.key": "self_attn.k_proj",
    "self_attention.value": "self_attn.v_proj",
    "self_attention.output": "self_attn.out_proj",
    "self_attention_norm.norm": "self_attn_layer_norm",
    "cross_attention.query": "encoder_attn.q_proj",
    "cross_attention.key": "encoder_attn.k_proj",
    "cross_attention.value": "encoder_attn.v_proj",
    "cross_attention.output": "encoder_attn.out_proj",
    "cross_attention_norm.norm": "encoder_attn_layer_norm",
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "feed_forward_norm.norm": "final_layer_norm",
}


def converted(checkpoint: Path) -> M2M100ForConditionalGeneration:
    c, weights = model_of(checkpoint), load_file(checkpoint / "model.safetensors")
    if (c["norm_order"], c["positions"], c["tie_embeddings"]) != ("pre", "sinusoidal", True):
        raise SystemExit("only pre-norm models with sinusoidal positions and one matrix have a counterpart")
    sides = {}
    for side in ("encoder", "decoder"):
        sizes = {"layers": c[f"n_{side}_layers"], "attention_heads": c["n_heads"], "ffn_dim": c["d_ff"]}
        sides |= {f"{side}_{name}": value for name, value in sizes.items()}
    embedding = weights["source_embedding.weight"]
    special = {"pad_token_id": 0, "bos_token_id": 1, "decoder_start_token_id": 1, "eos_token_id": 2}
    whole = {"vocab_size": len(embedding), "d_model": c["d_model"], "activation_function": "relu"}
    config = M2M100Config(**whole, **sides, **special)
    model = M2M100ForConditionalGeneration(config).eval()
    names = {"model.shared.weight": embedding, "lm_head.weight": embedding}
    for side in ("encoder", "decoder"):
        names[f"model.{side}.embed_tokens.weight"] = embedding
        for kind in ("weight", "bias"):
            names[f"model.{side}.layer_norm.{kind}"] = weights[f"{side}.final_norm.{kind}"]
        for index in range(c[f"n_{side}_layers"]):
            for ours, theirs in PARTS.items():
                for kind in ("weight", "bias"):
                    if (name := f"{side}.layers.{index}.{ours}.{kind}") in weights:
                        names[f"model.{side}.layers.{index}.{theirs}.{kind}"] = weights[name]
    model.load_state_dict(names)
    for part in (model.model.encoder, model.model.decoder):  # theirs lie sines before cosines, ours alternate
        table, d = part.embed_positions.weights, c["d_model"]
        angles = torch.arange(len(table) - 1).double()[:, None] * 10000.0 ** (-torch.arange(0, d, 2).double() / d)
        table[1:] = torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()  # row 0 is padding's
    return model


@torch.inference_mode()
def main() -> None:
    options = arguments()
    model = converted(options.checkpoint).to(options.device, getattr(torch, options.precision))
    sources = json.loads(options.input.read_text())["ids"]
    given = {"num_beams": options.beam_size, "length_penalty": 1.0, "max_new_tokens": 100, "do_sample": False}

    def together(some: list[list[int]]) -> list[list[int]]:
        order = sorted(range(len(some)), key=lambda index: len(some[index]))
        found: list[list[int]] = [[] for _ in some]
        start = 0
        while start < len(order):
            count = options.tokens // len(some[order[-1]]) if options.tokens else 64
            rows = order[start : start + count]
            start += count
            width = max(len(some[row]) for row in rows)
            ids = torch.tensor([some[row] + [0] * (width - len(some[row])) for row in rows], device=options.device)
            for row, out in zip(rows, model.generate(input_ids=ids, attention_mask=ids.ne(0), **given), strict=True):
                found[row] = [token for token in out.tolist() if token > 2]
        return found

    measure(options, sources, together, lambda one: together([one]), peak_on(options.device))


if __name__ == "__main__":
    main()
