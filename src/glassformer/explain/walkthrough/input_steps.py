"""Steps of what enters a stack: text, images and series as vectors, and their positions (sections 3.4 and 3.5)."""

from collections.abc import Sequence
from dataclasses import dataclass

from glassformer.explain.examined import Examined
from glassformer.explain.example import Example
from glassformer.explain.formula.dataflow import embedded
from glassformer.explain.stack_example import ImageExample, SeriesExample, TextExample
from glassformer.explain.walkthrough.prose import Prose, build
from glassformer.explain.walkthrough.step import Axis, Pixels, Step, StepCheck, legend, tokens_axis
from glassformer.layers.position import Sinusoidal
from glassformer.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextInput:
    """Text that a stack reads. ``side`` names its tokens on the page."""

    stack: str
    side: str
    tokenizer: Tokenizer
    text: str
    ids: Sequence[int]
    decodable: bool = True
    """True if the ids encode only the text, so that decoding them gives it back."""


def text_input(example: Example | TextExample, stack: str) -> TextInput:
    """The source of a translation, or the text."""
    if isinstance(example, Example):
        return TextInput(stack, "source", example.translator.tokenizers.source, example.source, example.source_ids)
    return TextInput(stack, "text", example.tokenizer, example.read, example.ids, example.task == "language")


def text_to_vectors(example: Examined, path: str, reading: TextInput) -> Step:
    """Section 3.4."""
    tokenizer, labels = reading.tokenizer, example.tokens(reading.stack)
    unknown = sum(i == tokenizer.unknown_id for i in reading.ids)
    checks = []
    if reading.decodable:
        back = tokenizer.decode(reading.ids)
        same = bool(unknown) or back == tokenizer.normalize(reading.text)
        checks.append(StepCheck(f"the tokens give the text back: {back!r}", same))
    if unknown:
        checks.append(StepCheck(f"{unknown} of the tokens stand for what the vocabulary does not hold", True))
    scaled = example.model.get_submodule(path).scale != 1.0
    values = {"tokens": len(reading.ids), "vocab": f"{tokenizer.vocab_size:,}"}
    return build(
        example,
        Prose("text", ["scaled"] * scaled, values),
        path,
        {"position": tokens_axis("position", "token", labels)},
        checks=tuple(checks),
        words=(("token", "id", "how it was cut"), *_cuts(reading, labels)),
        links=((0, 0),),
        side=reading.side,
        caption=_caption(tokenizer, labels),
    )


def positions(example: Examined, path: str, stack: str) -> Step:
    """Section 3.5."""
    embedding = example.model.get_submodule(path)
    rows = tokens_axis("position", "token", example.tokens(stack))
    variants = ["normed"] * (embedding.norm is not None)
    values: dict[str, object] = {"stack": stack}
    if embedding.position is None:
        rotary = example.model.get_submodule(stack).layers[0].self_attention.rotary
        variants, values["theta"] = ["rotary", *(f"rotary_{name}" for name in variants)], f"{float(rotary.theta):.10g}"
    elif isinstance(embedding.position, Sinusoidal):
        variants.insert(0, "sinusoidal")
    prose = Prose("positions", variants, values)
    axes = {"position": rows, "query": Axis("query", "token", rows.labels)}
    formula = prose.tables(example.trace, path, axes)[0].formula(min(1, len(rows.labels) - 1))
    return build(example, prose, path, axes, formula=formula)


def segments_and_positions(example: TextExample, path: str) -> Step:
    """Devlin et al. 2019, figure 2: three embeddings for each token."""
    axes = {"position": tokens_axis("position", "token", example.labels)}
    pairs = enumerate(zip(example.labels, example.segments, strict=True))
    words = (("token", "position", "text"), *((label, str(at), str(segment)) for at, (label, segment) in pairs))
    prose = Prose("segments", [], {"texts": len(set(example.segments))})
    formula = prose.tables(example.trace, path, axes)[2].formula(0)
    return build(example, prose, path, axes, formula=formula, words=words, side="text", links=((0, 0),))


def shifted_target(example: Example, path: str) -> Step:
    """Section 3.1: "the output embeddings are offset by one position"."""
    pairs = enumerate(zip(example.target_tokens, example.predicted_tokens, strict=True))
    words = (("position", "the decoder reads", "and is to say"), *((str(at), *pair) for at, pair in pairs))
    prose = Prose("shifted_target", [], {"embedded": embedded(example.model, path)})
    axes = {"position": tokens_axis("position", "token read", example.target_tokens)}
    return build(example, prose, path, axes, words=words, links=((1, 0), (2, 1)), side="target")


def image_to_patches(example: ImageExample, path: str) -> Step:
    """Dosovitskiy et al. 2021, section 3.1."""
    config = example.model.config
    height, width = config.image_size
    side, patches = config.patch_size, config.n_patches
    values = {
        "height": height,
        "width": width,
        "patches": patches,
        "side": side,
        "numbers": config.n_channels * side**2,
    }
    axes = {"patch": tokens_axis("patch", "patch (row, column)", example.labels[1:])}
    image = Pixels(f"{example.read}, cut into {patches} patches", example.pixels, side)
    return build(example, Prose("image", [], values), path, axes, image=image)


def series_to_patches(example: SeriesExample, path: str) -> Step:
    """Nie et al. 2023, section 3.1; normalized as in Kim et al. 2022."""
    config = example.model.config
    values = {
        "variables": len(example.columns),
        "variable": example.columns[0],
        "patches": config.n_patches,
        "length": config.patch_length,
        "stride": config.patch_stride,
    }
    prose = Prose("series", ["normalized"] * config.normalize, values)
    return build(example, prose, path, {"patch": tokens_axis("patch", "patch of time", example.labels)})


def patch_positions(example: ImageExample | SeriesExample, path: str) -> Step:
    """Dosovitskiy et al. 2021, equation 1; of a series without a class token."""
    axes = {"position": tokens_axis("position", "position", example.labels)}
    prose = Prose("patch_positions", ["class_token"] * isinstance(example, ImageExample), {})
    return build(example, prose, path, axes)


def _caption(tokenizer: Tokenizer, labels: Sequence[str]) -> str:
    merged = "A merge joins two symbols. Merges are applied in the order in which they were learned, their rank."
    return f"{merged if tokenizer.kind in ('bpe', 'bytes') else ''} {legend(labels)}".strip()


def _cuts(reading: TextInput, labels: Sequence[str]) -> list[tuple[str, str, str]]:
    """Each token, its id, and the merges that made the word which it ends."""
    merges = iter(_merges_by_word(reading))
    found = []
    words = reading.tokenizer.word_of(reading.ids)
    for place, (token, i) in enumerate(zip(labels, reading.ids, strict=True)):
        begins = words[place] >= 0 and (place == 0 or words[place] != words[place - 1])
        found.append((token, str(i), next(merges, "") if begins else ""))
    return found


def _merges_by_word(reading: TextInput) -> list[str]:
    """``a+b (rank 12), ab+c (rank 40)`` for each word between spaces."""
    text = reading.text if reading.decodable else reading.tokenizer.decode(reading.ids)
    return [
        ", ".join(f"{merge.left}+{merge.right} (rank {merge.rank:,})" for merge in reading.tokenizer.merges_of(word))
        for word in text.split()
    ]
