"""A tiny model learns what it should: tasks in which every position has to be attended to, to the last sentence."""

import random
from pathlib import Path

from glassformer.metrics import exact_match
from glassformer.predict.translator import Translator
from glassformer.storage.run_folder import RunFolder
from glassformer.train import parse_config, train


def sentences(count: int, seed: int) -> list[list[str]]:
    draw = random.Random(seed)
    return [draw.sample("abcdefghij", k=draw.randint(1, 5)) for _ in range(count)]


def test_reversal_of_unseen_sentences_is_all_right(tmp_path: Path) -> None:
    """It cannot be had from neighboring words or from the target alone; with four seeds of four all were right."""
    pairs = [(" ".join(words), " ".join(words[::-1])) for words in sentences(6000, seed=1)]
    for side, suffix in enumerate(("source", "target")):
        (tmp_path / f"train.{suffix}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    config = parse_config(
        {
            "model": {
                "d_model": 32,
                "n_heads": 2,
                "d_ff": 64,
                "n_encoder_layers": 1,
                "n_decoder_layers": 1,
                "dropout": 0.0,
            },
            "text": {"kind": "word"},
            "data": {"train": [str(tmp_path / "train")], "batch_tokens": 1000, "cache": str(tmp_path / "cache")},
            "optimizer": {"schedule": "cosine", "learning_rate": 0.01, "warmup_steps": 50},
            "train": {"max_steps": 600, "label_smoothing": 0.0, "threads": 1},
        }
    )
    list(train(config, RunFolder.create(tmp_path / "run")))
    seen = {source for source, _ in pairs}
    unseen = [words for words in sentences(400, seed=2) if " ".join(words) not in seen]
    assert len(unseen) > 100
    found = Translator.load(tmp_path / "run").translate([" ".join(words) for words in unseen])
    assert exact_match(found, [" ".join(words[::-1]) for words in unseen]) == 1.0
