"""OpenNMT-py's own training, from its package. Its batches count the longer side, so they hold a little less."""

import json
import sys
import tempfile
from pathlib import Path
from re import Match

from logged import measure, write_text
from sizes import SIZES
from timing import BETAS, DROPOUT, FIRST_WORD, RATE, SMOOTHING, arguments

REPORT_EVERY = 5


def main() -> None:
    options = arguments()
    size = SIZES[options.size]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(options.batches, folder)
        words = [f"w{token}\t{options.vocab - token}\n" for token in range(FIRST_WORD, options.vocab)]
        (folder / "vocabulary").write_text("".join(words), encoding="ascii")
        settings = {
            "data": {"text": {"path_src": str(folder / "source"), "path_tgt": str(folder / "target")}},
            "save_data": str(folder / "data"),
            "save_model": str(folder / "model"),
            "src_vocab": str(folder / "vocabulary"),
            "tgt_vocab": str(folder / "vocabulary"),
            "share_vocab": True,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "encoder_type": "transformer",
            "decoder_type": "transformer",
            "position_encoding": True,
            "hidden_size": size["d_model"],
            "word_vec_size": size["d_model"],
            "heads": size["n_heads"],
            "transformer_ff": size["d_ff"],
            "enc_layers": size["n_layers"],
            "dec_layers": size["n_layers"],
            "dropout": [DROPOUT],
            "attention_dropout": [0.0],
            "label_smoothing": SMOOTHING,
            "optim": "adam",
            "adam_beta1": BETAS[0],
            "adam_beta2": BETAS[1],
            "learning_rate": RATE,
            "max_grad_norm": 0,
            "batch_type": "tokens",
            "batch_size": options.tokens,
            "normalization": "tokens",
            "bucket_size": 30_000,
            "num_workers": 0,
            "world_size": 1,
            "gpu_ranks": [],
            "train_steps": 10**6,
            "save_checkpoint_steps": 10**9,
            "valid_steps": 10**9,
            "report_every": REPORT_EVERY,
            "seed": 1,
        }
        (folder / "settings.yaml").write_text(json.dumps(settings), encoding="ascii")
        command = [sys.executable, "-m", "onmt.bin.train", "-config", str(folder / "settings.yaml")]
        pattern = r"bsz: +(\d+)/ *(\d+)/ *\d+; +(\d+)/ *(\d+) tok/s"

        def tokens(told: Match[str]) -> tuple[float, float, float]:
            source, target = (REPORT_EVERY * float(told[i]) for i in (1, 2))
            return source, target, target / float(told[4])

        measure(command, pattern, tokens, options.seconds)


if __name__ == "__main__":
    main()
