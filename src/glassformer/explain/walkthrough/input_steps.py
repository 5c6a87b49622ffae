"""Steps of what enters a stack: text, images and series as vectors, and their positions (sections 3.4 and 3.5)."""

from glassformer.explain.example import Example, Side
from glassformer.explain.formula.dataflow import embedded, positions_of
from glassformer.explain.matrix import Axis
from glassformer.explain.walkthrough.prose import Prose, build
from glassformer.explain.walkthrough.step import Pixels, Step, StepCheck, cut_axis, legend
from glassformer.tasks import TASKS
from glassformer.text.decimals import setting


def text_to_vectors(example: Example, path: str, stack: str) -> Step:
    """Section 3.4."""
    side = example.side(stack)
    tokenizer = side.vocabulary
    unknown = sum(i == tokenizer.unknown_id for i in side.ids)
    checks = []
    if not TASKS[example.task].framed:  # else decoding the ids gives the marks too
        back = tokenizer.decode(side.ids)
        same = bool(unknown) or back == tokenizer.normalize(side.text)
        checks.append(StepCheck(f"the tokens give the text back: {back!r}", same))
    if unknown:
        checks.append(StepCheck(f"{unknown} of the tokens stand for what the vocabulary does not hold", True))
    scaled = example.model.get_submodule(path).scale != 1.0
    values = {"tokens": len(side.ids), "vocab": f"{tokenizer.vocab_size:,}"}
    return build(
        example,
        Prose("text", ["scaled"] * scaled, values),
        path,
        {"position": cut_axis("position", "token", side.labels)},
        checks=tuple(checks),
        words=(("token", "id", "how it was cut"), *_cuts(example.task, side)),
        links=((0, 0),),
        side=side.name,
        caption=_caption(side),
    )


def positions(example: Example, path: str, stack: str) -> Step:
    """Section 3.5."""
    embedding = example.model.get_submodule(path)
    rows = cut_axis("position", "token", example.side(stack).labels)
    variants, encoding = ["normed"] * (embedding.norm is not None), positions_of(example.model, stack)
    values: dict[str, object] = {"stack": stack}
    if encoding == "rotary":
        rotary = example.model.get_submodule(stack).layers[0].self_attention.rotary
        variants, values["theta"] = ["rotary", *(f"rotary_{name}" for name in variants)], setting(float(rotary.theta))
    elif encoding == "sinusoidal":
        variants.insert(0, encoding)
    prose = Prose("positions", variants, values)
    axes = {"position": rows, "query": Axis("token", rows.labels, "query")}
    evaluation = prose.tables(example.trace, path, axes)[0].formula(min(1, len(rows) - 1))
    return build(example, prose, path, axes, evaluation=evaluation)


def segments_and_positions(example: Example, path: str) -> Step:
    """Devlin et al. 2019, figure 2: three embeddings for each token."""
    axes = {"position": cut_axis("position", "token", example.sides[0].labels)}
    pairs = enumerate(zip(example.source_tokens, example.segments, strict=True))
    words = (("token", "position", "text"), *((label, str(at), str(segment)) for at, (label, segment) in pairs))
    prose = Prose("segments", [], {"texts": len(set(example.segments))})
    evaluation = prose.tables(example.trace, path, axes)[2].formula(0)
    return build(example, prose, path, axes, evaluation=evaluation, words=words, side="text", links=((0, 0),))


def shifted_target(example: Example, path: str) -> Step:
    """Section 3.1: "the output embeddings are offset by one position"."""
    pairs = enumerate(zip(example.target_tokens, example.predicted_tokens, strict=True))
    words = (("position", "the decoder reads", "and is to say"), *((str(at), *pair) for at, pair in pairs))
    prose = Prose("shifted_target", [], {"embedded": embedded(example.model, path)})
    axes = {"position": cut_axis("position", "token read", example.sides[-1].labels)}
    return build(example, prose, path, axes, words=words, links=((1, 0), (2, 1)), side="target")


def image_to_patches(example: Example, path: str) -> Step:
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
    axes = {"patch": cut_axis("patch", "patch (row, column)", example.sides[0].labels[1:])}
    assert example.values is not None
    image = Pixels(f"{example.input}, cut into {patches} patches", example.values, side)
    return build(example, Prose("image", [], values), path, axes, image=image)


def series_to_patches(example: Example, path: str) -> Step:
    """Nie et al. 2023, section 3.1; normalized as in Kim et al. 2022."""
    config = example.model.config
    values = {
        "variables": len(example.labels),
        "variable": example.labels[0],
        "patches": config.n_patches,
        "length": config.patch_length,
        "stride": config.patch_stride,
    }
    prose = Prose("series", ["normalized"] * config.normalize, values)
    return build(example, prose, path, {"patch": cut_axis("patch", "patch of time", example.sides[0].labels)})


def patch_positions(example: Example, path: str) -> Step:
    """Dosovitskiy et al. 2021, equation 1; of a series without a class token."""
    axes = {"position": cut_axis("position", "position", example.sides[0].labels)}
    prose = Prose("patch_positions", ["class_token"] * (example.task == "images"), {})
    return build(example, prose, path, axes)


def _caption(side: Side) -> str:
    merged = "A merge joins two symbols. Merges are applied in the order in which they were learned, their rank."
    return f"{merged if side.vocabulary.kind in ('bpe', 'bytes') else ''} {legend(side.tokens)}".strip()


def _cuts(task: str, side: Side) -> list[tuple[str, str, str]]:
    """Each token, its id, and the merges that made the word which it ends."""
    merges = iter(_merges_by_word(task, side))
    found = []
    words = side.vocabulary.word_of(side.ids)
    for place, (token, i) in enumerate(zip(side.tokens, side.ids, strict=True)):
        begins = words[place] >= 0 and (place == 0 or words[place] != words[place - 1])
        found.append((token, str(i), next(merges, "") if begins else ""))
    return found


def _merges_by_word(task: str, side: Side) -> list[str]:
    """``a+b (rank 12), ab+c (rank 40)`` for each word between spaces."""
    text = side.vocabulary.decode(side.ids) if TASKS[task].framed else side.text
    return [
        ", ".join(f"{merge.left}+{merge.right} (rank {merge.rank:,})" for merge in side.vocabulary.merges_of(word))
        for word in text.split()
    ]
