"""The package's own example: a corpus of fourteen sentences, and a model that learns their frequencies."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glassformer.predict.translator import Translator
    from glassformer.train import RunConfig

SENTENCE = "Ajish works as an AI"

CONTINUATIONS = {"Engineer": 6, "Scientist": 2, "Developer": 1, ".": 1}
"""Frequencies of the words after ``SENTENCE`` in the corpus: 60 %, 20 %, 10 % and 10 %."""

OTHERS = [
    ("Ajish is a", "Developer"),
    ("Ajish is the AI", "Engineer"),
    ("the Engineer works as a", "Scientist"),
    ("an AI is the", "Developer"),
]


def write_corpus(folder: Path) -> None:
    """Write ``train.source`` and ``train.target``."""
    pairs = [(SENTENCE, word) for word, times in CONTINUATIONS.items() for _ in range(times)] + OTHERS
    folder.mkdir(parents=True, exist_ok=True)
    for side, name in enumerate(("source", "target")):
        (folder / f"train.{name}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")


def first_config(corpus: Path) -> "RunConfig":
    """A model small enough to read every number. Without dropout and label smoothing, which blur the frequencies."""
    from glassformer.train import parse_config

    values = {
        "model": {
            "d_model": 16,
            "n_heads": 2,
            "d_ff": 32,
            "n_encoder_layers": 2,
            "n_decoder_layers": 2,
            "dropout": 0.0,
        },
        "text": {"kind": "word", "vocab_size": 100, "min_frequency": 1, "pre_tokenizer": "whitespace"},
        "data": {"train": [str(corpus / "train")], "batch_tokens": 512, "cache": str(corpus)},
        "optimizer": {"schedule": "cosine", "learning_rate": 5e-3, "warmup_steps": 20},
        "train": {
            "max_steps": 300,
            "seed": 1,
            "label_smoothing": 0.0,
            "log_every": 300,
            "save_every": 300,
            "threads": 1,
        },
        "decoding": {"beam_size": 1},
    }
    return parse_config(values, "the first example")


def first_translator(run: Path = Path("runs/first"), device: str = "cpu") -> "Translator":
    """The example's model, trained in seconds if ``run`` has none yet."""
    from glassformer.cli.messages import note
    from glassformer.cli.process import prepare_training
    from glassformer.predict.translator import Translator
    from glassformer.storage.run_folder import RunFolder
    from glassformer.train import Finished, train

    folder = RunFolder(run)
    if folder.latest() is None:
        folder = RunFolder.create(run)
        write_corpus(run / "corpus")
        note(f"training the example of {len(OTHERS) + sum(CONTINUATIONS.values())} sentences; the run is in {run}")
        config = first_config(run / "corpus")
        prepare_training(config.train.threads)
        for event in train(config, folder):
            if isinstance(event, Finished):
                note(f"trained in {event.seconds:.1f} s")
    return Translator.load(run, device=device)
