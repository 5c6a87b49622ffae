"""glassformer's own training step, on the same text; its batches are packed rows instead of padded ones."""

# ruff: noqa: E402
from glassformer.cli import process  # isort: split

getattr(process, "shorten_waiting", int)()  # as the command, before PyTorch is imported; earlier versions have none

import os
from itertools import repeat
from pathlib import Path

from device import measure_on
from sizes import SIZES
from timing import BETAS, DROPOUT, EPSILON, RATE, SMOOTHING, arguments

from glassformer.cli.process import prepare_training
from glassformer.storage.run_folder import RunFolder
from glassformer.train import parse_config
from glassformer.train.build import build
from glassformer.train.step import train_step


def main() -> None:
    options = arguments()
    prepare_training(threads=0)
    size = SIZES[options.size]
    n_layers = size.pop("n_layers")
    values = {
        "model": {**size, "n_encoder_layers": n_layers, "n_decoder_layers": n_layers, "dropout": DROPOUT},
        "text": {"vocab_size": options.vocab},
        "data": {"source": "en", "target": "de", "train": [os.environ["TRAIN"]], "batch_tokens": options.tokens},
        "optimizer": {"schedule": "constant", "learning_rate": RATE, "betas": BETAS, "epsilon": EPSILON},
        "train": {"device": options.device, "precision": options.precision, "label_smoothing": SMOOTHING},
    }
    values["model"]["attention_dropout"] = 0.0
    state = build(parse_config(values, "benchmark"))
    run = RunFolder(Path(os.devnull))

    def step(_: None) -> tuple[int, int]:
        done = train_step(state, run)
        return done.source_tokens, done.target_tokens

    measure_on(options.device, step, repeat(None), options.seconds)


if __name__ == "__main__":
    main()
