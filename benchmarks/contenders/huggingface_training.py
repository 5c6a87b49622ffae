"""Hugging Face MarianMTModel in a plain loop."""

import torch
from device import measure_on
from sizes import SIZES
from timing import BETAS, DROPOUT, EPSILON, PAD, RATE, SMOOTHING, arguments, forever
from torch import nn
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
    adam = torch.optim.Adam(model.parameters(), RATE, BETAS, EPSILON, fused=True)
    loss_of = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=SMOOTHING)

    def step(batch: tuple) -> tuple[int, int]:
        source, target = (torch.from_numpy(side).to(options.device) for side in batch)
        with torch.autocast(options.device, torch.bfloat16, enabled=options.precision == "bfloat16"):
            logits = model(source, attention_mask=(source != PAD).long(), decoder_input_ids=target[:, :-1]).logits
            loss = loss_of(logits.flatten(0, 1), target[:, 1:].flatten())
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        return int((batch[0] != PAD).sum()), int((batch[1][:, 1:] != PAD).sum())

    measure_on(options.device, step, forever(options.batches), options.seconds)


if __name__ == "__main__":
    main()
