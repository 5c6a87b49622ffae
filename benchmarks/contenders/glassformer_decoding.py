"""glassformer itself, from raw text to raw text."""

import json
from functools import partial

from decoding import arguments, measure

import glassformer
from glassformer.allocator import keep_freed_memory


def main() -> None:
    options = arguments()
    keep_freed_memory()
    translator = glassformer.load(options.checkpoint)
    texts = json.loads(options.input.read_text(encoding="utf-8"))["texts"]
    given = {"beam_size": options.beam_size, "precision": options.precision, "length_penalty": "average", "alpha": 1.0}
    measure(options, texts, partial(translator.translate, **given), lambda one: translator.translate([one], **given))


if __name__ == "__main__":
    main()
