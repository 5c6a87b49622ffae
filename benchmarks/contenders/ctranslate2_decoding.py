"""CTranslate2 with the same weights: two workers of one thread for all sentences, one worker for one at a time.

``--checkpoint`` is the folder that ``export_ctranslate2`` has written.
"""

import json
from pathlib import Path

import ctranslate2
from decoding import arguments, measure
from memory import peak_mib


def entries(folder: Path, side: str) -> list[str]:
    """The vocabulary of a side, which has one file where both are the same."""
    own = folder / f"{side}_vocabulary.json"
    return json.loads((own if own.is_file() else folder / "shared_vocabulary.json").read_text(encoding="utf-8"))


def main() -> None:
    options = arguments()
    kinds = {"device": options.device, "compute_type": options.precision, "intra_threads": 1}
    path = str(options.checkpoint)
    many, single = (
        ctranslate2.Translator(path, inter_threads=2 if options.device == "cpu" else 1, **kinds),
        ctranslate2.Translator(path, **kinds),
    )
    names = entries(options.checkpoint, "source")
    ids = {entry: id for id, entry in enumerate(entries(options.checkpoint, "target"))}
    sources = [[names[i] for i in text] for text in json.loads(options.input.read_text())["ids"]]
    given = {"beam_size": options.beam_size, "length_penalty": 1, "max_decoding_length": 100}

    def run(translator: ctranslate2.Translator, some: list[list[str]]) -> list[list[int]]:
        found = translator.translate_batch(some, max_batch_size=options.tokens or 2048, batch_type="tokens", **given)
        return [[ids[token] for token in one.hypotheses[0]] for one in found]

    peak = peak_mib if options.device == "cpu" else lambda: None  # it does not tell the memory of a GPU
    measure(options, sources, lambda some: run(many, some), lambda one: run(single, [one]), peak)


if __name__ == "__main__":
    main()
