"""glassformer itself, from raw text to raw text."""

# ruff: noqa: E402
from glassformer.cli import process  # isort: split

getattr(process, "shorten_waiting", int)()  # as the command, before PyTorch is imported; earlier versions have none

import json
from functools import partial

from decoding import arguments, measure
from device import peak_on

import glassformer
from glassformer.cli.process import keep_freed_memory, loading, release_libraries


def main() -> None:
    options = arguments()
    keep_freed_memory()
    release_libraries()  # as the command, which this measures from Python
    with loading():
        translator = glassformer.load(options.checkpoint, device=options.device)
    texts = json.loads(options.input.read_text(encoding="utf-8"))["texts"]
    given = {"beam_size": options.beam_size, "precision": options.precision, "length_penalty": "average", "alpha": 1.0}
    if options.tokens:
        given["batch_tokens"] = options.tokens * options.beam_size
    together = partial(translator.translate, **given)
    measure(options, texts, together, lambda one: translator.translate([one], **given), peak_on(options.device))


if __name__ == "__main__":
    main()
