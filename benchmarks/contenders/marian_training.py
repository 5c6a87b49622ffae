"""Marian, from its Python wheel (built for AVX): two workers of one thread, which do not wait for each other, each with
batches of as many source tokens as the others' have on average."""

import sys
import tempfile
from pathlib import Path
from re import Match

from logged import measure, write_text
from sizes import SIZES
from timing import BETAS, DROPOUT, EPSILON, FIRST_WORD, RATE, SMOOTHING, arguments


def main() -> None:
    options = arguments()
    size = SIZES[options.size]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = write_text(options.batches, folder)
        words = [f"w{token}: {token - FIRST_WORD + 2}" for token in range(FIRST_WORD, options.vocab)]
        (folder / "vocabulary.yml").write_text("\n".join(["</s>: 0", "<unk>: 1", *words]) + "\n", encoding="ascii")
        settings = {
            "type": "transformer",
            "model": folder / "model.npz",
            "train-sets": [folder / "source", folder / "target"],
            "vocabs": [folder / "vocabulary.yml"] * 2,
            "dim-emb": size["d_model"],
            "transformer-heads": size["n_heads"],
            "transformer-ffn-activation": "relu",
            "transformer-dim-ffn": size["d_ff"],
            "enc-depth": size["n_layers"],
            "dec-depth": size["n_layers"],
            "tied-embeddings-all": "true",
            "transformer-dropout": DROPOUT,
            "label-smoothing": SMOOTHING,
            "cost-type": "ce-mean-words",
            "optimizer": "adam",
            "optimizer-params": [*BETAS, EPSILON],
            "learn-rate": RATE,
            "clip-norm": 0,
            "mini-batch": options.tokens,
            "mini-batch-words": text.source_of_batch,
            "maxi-batch": 100,
            "max-length": 512,
            "workspace": 4096,  # pages that it does not touch cost nothing; to grow it copies
            "cpu-threads": 2,
            "disp-freq": 4,
            "save-freq": 10**9,
            "seed": 1,
        }
        command = [sys.executable, "-c", "import sys, _pymarian; _pymarian.main(['train', *sys.argv[1:]])"]
        for key, value in settings.items():
            command += [f"--{key}", *map(str, value if isinstance(value, list) else [value])]

        def tokens(told: Match[str]) -> tuple[float, float, float]:
            seconds = float(told[1])
            target = seconds * float(told[2])
            return target * text.source_of_target, target, seconds

        measure(command, r"Time ([\d.]+)s : ([\d.]+) words/s", tokens, options.seconds)


if __name__ == "__main__":
    main()
