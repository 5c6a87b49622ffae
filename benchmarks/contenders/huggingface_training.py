"""Hugging Face MarianMTModel in a plain loop."""

import torch
from plain_loop import train_plainly
from sizes import SIZES
from timing import DROPOUT, PAD, arguments
from torch import Tensor
from transformers import MarianConfig, MarianMTModel


def main() -> None:
    options = arguments()
    torch.manual_seed(1)
    size = SIZES[options.size]
    config = MarianConfig(
        vocab_size=options.vocab,
        d_model=size["d_model"],
        encoder_layers=size["n_layers"],
        decoder_layers=size["n_layers"],
        encoder_attention_heads=size["n_heads"],
        decoder_attention_heads=size["n_heads"],
        encoder_ffn_dim=size["d_ff"],
        decoder_ffn_dim=size["d_ff"],
        activation_function="relu",
        dropout=DROPOUT,
        attention_dropout=0.0,
        activation_dropout=0.0,
        max_position_embeddings=512,
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        use_cache=False,
    )
    model = MarianMTModel(config).train().to(options.device)

    def logits_of(source: Tensor, read: Tensor) -> Tensor:
        return model(source, attention_mask=(source != PAD).long(), decoder_input_ids=read).logits

    train_plainly(options, model, logits_of)


if __name__ == "__main__":
    main()
