"""Steps that one kind of model has of its own: BERT's segments and hidden words, patches, forecasts."""

import numpy as np

from glassformer.explain.formula.formula import explain
from glassformer.explain.stack_example import ImageExample, SeriesExample, TextExample
from glassformer.explain.walkthrough.output_steps import RANKED, best_of, of_the_best, probabilities_sum_to_one
from glassformer.explain.walkthrough.step import (
    MAX_LABELS,
    Axis,
    Pixels,
    Step,
    StepCheck,
    TensorTable,
    checked,
    tokens_axis,
    vectors,
)

NEAR = 1e-4


def segments_and_positions(example: TextExample, number: int) -> Step:
    """Devlin et al. 2019, figure 2: three embeddings for each token."""
    rows = tokens_axis("position", "token", example.labels)
    taps = [
        ("encoding", "what the position adds"),
        ("segment", "what the text that a token is of adds"),
        ("segmented", "token, position and segment together"),
        ("normed", "normalized: what enters the first layer"),
    ]
    tables = tuple(vectors(example.trace, f"embedding.{tap}", title, rows) for tap, title in taps)
    words = [("token", "position", "text")]
    pairs = zip(example.labels, example.segments, strict=True)
    words += [(label, str(place), str(segment)) for place, (label, segment) in enumerate(pairs)]
    texts = len(set(example.segments))
    return Step(
        number,
        "Positions and segments",
        f"Each position has a learned vector, and so has each of the two texts that a row may hold (here {texts}); "
        "both are added to the token, and the sum is normalized.",
        "Attention has no notion of order, nor of where one text ends and the other begins.",
        "x = LayerNorm(E[token] + P[position] + S[segment])",
        "Devlin et al. 2019, figure 2",
        tables,
        (checked(*tables),),
        tables[2].formula(0),
        tuple(words),
        side="text",
        links=((0, 0),),
    )


def hidden_words(example: TextExample, number: int) -> Step:
    """Devlin et al. 2019, section 3.1: what stands behind each mask."""
    t, tokenizer = example.trace, example.tokenizer
    probabilities = t["output_projection.probabilities"][0]
    values, ids = probabilities.topk(min(RANKED, probabilities.size(-1)), dim=-1)
    words = [("position", "read", *(f"{place}." for place in range(1, values.size(1) + 1)))]
    for place in example.asked:
        best = best_of(tokenizer, ids[place].tolist(), values[place].tolist())
        words.append((str(place), example.labels[place], *best))
    place = example.asked[0]
    best_id = int(ids[place, 0])
    rows = tokens_axis("position", "token read", example.labels)
    taps = [("activated", "a linear transformation, activated"), ("normed", "and normalized")]
    tables = (
        *(vectors(t, f"transform.{tap}", title, rows) for tap, title in taps),
        *of_the_best(t, tokenizer, rows, ids[place].tolist(), f"position {place}"),
    )
    return Step(
        number,
        "The hidden word" + "s" * (len(example.asked) > 1),
        "What has been gathered at a mask goes through one more transformation and is compared with every entry of the "
        f"vocabulary; for the first one the softmax holds {tokenizer.tokens([best_id])[0]} likeliest, with "
        f"{float(values[place, 0]):.4f}.",
        "In training words were hidden, and the model learned language from telling them by both their sides.",
        "P(hidden = w) = exp(h · E_w + b_w) / Σ_v exp(h · E_v + b_v)",
        "Devlin et al. 2019, section 3.1",
        tables,
        (checked(*tables), probabilities_sum_to_one(t, "output_projection")),
        explain(t, "output_projection.probabilities", position=place, vocab=best_id),
        tuple(words),
    )


def tags(example: TextExample, number: int) -> Step:
    """Devlin et al. 2019, section 5.3: a tag for the first piece of each word."""
    t, names = example.trace, example.names
    probabilities = t["tags.projection.probabilities"][0]
    rows, columns = tokens_axis("position", "token", example.labels), tokens_axis("tag", "tag", names)
    tables = tuple(TensorTable(t, f"tags.projection.{tap}", tap, rows, columns) for tap in ("logits", "probabilities"))
    words = [("position", "first piece of a word", "tag", "probability")]
    for place in example.asked:
        best = int(probabilities[place].argmax())
        words.append((str(place), example.labels[place], names[best], f"{float(probabilities[place, best]):.4f}"))
    chosen = example.asked[0]
    return Step(
        number,
        "A tag for each word",
        f"At every position a linear layer gives one number for each of {len(names)} tags, and the softmax makes "
        "probabilities of them; a word has the tag of its first piece.",
        "What a word is in this sentence depends on the others, and each position has seen them all.",
        "P(tag = c) = exp(x · W_c + b_c) / Σ_j exp(x · W_j + b_j)",
        "Devlin et al. 2019, section 5.3",
        tables,
        (checked(*tables), probabilities_sum_to_one(t, "tags.projection")),
        explain(t, "tags.projection.probabilities", position=chosen, tag=int(probabilities[chosen].argmax())),
        tuple(words),
    )


def image_to_patches(example: ImageExample, number: int) -> Step:
    """Dosovitskiy et al. 2021, section 3.1."""
    t, config = example.trace, example.model.config
    height, width = config.image_size
    rows = tokens_axis("patch", "patch (row, column)", example.labels[1:])
    tables = (
        vectors(t, "embedding.patches", "the numbers of each patch, normalized", rows, "number"),
        vectors(t, "embedding.projected", "through one linear transformation", rows),
    )
    side, channels = config.patch_size, config.n_channels
    return Step(
        number,
        "An image as a sequence of patches",
        f"The image of {height} × {width} pixels is cut into {config.n_patches} squares of {side} × {side}, row by "
        f"row; the {channels * side**2} numbers of each go through the same linear transformation.",
        "A square of pixels takes the place of a word: from here on the model is that of texts.",
        "x_p = patch_p · W + b",
        "Dosovitskiy et al. 2021, equation 1",
        tables,
        (checked(*tables),),
        tables[1].formula(0),
        image=Pixels(f"{example.read}, cut into {config.n_patches} patches", example.pixels, side),
    )


def class_token_and_positions(example: ImageExample | SeriesExample, number: int) -> Step:
    """Dosovitskiy et al. 2021, equation 1; of a series without a class token."""
    t = example.trace
    rows = tokens_axis("position", "position", example.labels)
    names = [("encoding", "what the position adds"), ("positioned", "what enters the first layer")]
    tables = tuple(vectors(t, f"embedding.{tap}", title, rows) for tap, title in names)
    with_class = isinstance(example, ImageExample)
    return Step(
        number,
        "The class token, and positions" if with_class else "Positions",
        ("A learned vector, the class token, stands before the patches. " if with_class else "")
        + "Every position has a learned vector of its own, and it is added to what stands there.",
        "Attention alone has no notion of where a patch was"
        + ("; and what gathers at the class token is what the image is told by." if with_class else " in time."),
        "x = [x_class; x_1; …; x_n] + P" if with_class else "x = [x_1; …; x_n] + P",
        "Dosovitskiy et al. 2021, equation 1" if with_class else "Nie et al. 2023, section 3.1",
        tables,
        (checked(*tables),),
        tables[1].formula(0),
    )


def series_to_patches(example: SeriesExample, number: int) -> Step:
    """Nie et al. 2023, section 3.1; normalized as in Kim et al. 2022."""
    t, config = example.trace, example.model.config
    length, stride = config.patch_length, config.patch_stride
    rows = tokens_axis("patch", "patch of time", example.labels)
    tables = tuple(
        vectors(t, f"embedding.{tap}", f"{title}, {example.columns[0]}", rows, axis)
        for tap, title, axis in [
            ("patches", "the steps of each patch", "number"),
            ("projected", "through one linear transformation", "d_model"),
        ]
    )
    return Step(
        number,
        "A series as a sequence of patches",
        f"Each of {len(example.columns)} variables is read for itself"
        + (", brought to mean 0 and deviation 1" if config.normalize else "")
        + f" and cut into {config.n_patches} patches of {length} steps, one every {stride}.",
        "A single moment says little; a stretch of time has a shape, and there are fewer of them to attend to.",
        "x_p = patch_p · W + b, of (series − μ) / σ" if config.normalize else "x_p = patch_p · W + b",
        "Nie et al. 2023, section 3.1",
        tables,
        (checked(*tables), _patches_are_the_series(example)),
        tables[1].formula(0),
    )


def forecast(example: SeriesExample, number: int) -> Step:
    """Nie et al. 2023, section 3.1: the flattened patches through a linear layer."""
    t = example.trace
    steps = tuple(f"step +{step + 1}" for step in range(min(MAX_LABELS, len(example.forecast))))
    rows = Axis("step", "step to come", steps)
    columns = Axis("variable", "variable", example.columns[:MAX_LABELS])
    table = TensorTable(t, "forecast", "the forecast", rows, columns, (), "signed")
    seen, came = example.seen[-8:], example.forecast[:8]
    before = [*(f"−{len(seen) - 1 - at}" for at in range(len(seen) - 1)), "0"]
    words = [("variable", *before, *(f"+{at + 1}" for at in range(len(came))))]
    for place, name in enumerate(example.columns[:MAX_LABELS]):
        words.append((name, *(f"{value:.3g}" for value in (*seen[:, place], *came[:, place]))))
    return Step(
        number,
        "The forecast",
        f"All patches of a variable side by side go through one linear layer, which gives {len(example.forecast)} steps"
        + (" in the scale of the series: times its deviation, plus its mean." if "mean" in t else "."),
        "Here the last values that were seen (− and 0) stand beside the first that are forecast (+).",
        "forecast = (flatten(x) · W + b) · σ + μ" if "mean" in t else "forecast = flatten(x) · W + b",
        "Nie et al. 2023, section 3.1",
        (table,),
        (checked(table),),
        table.formula(0),
        tuple(words),
    )


def _patches_are_the_series(example: SeriesExample) -> StepCheck:
    """Mean, deviation and patches, computed again from what was read."""
    t, config = example.trace, example.model.config
    rows = example.seen.T
    if config.normalize:
        centered = rows - rows.mean(-1, keepdims=True)
        rows = centered / np.sqrt(np.square(centered).mean(-1, keepdims=True) + 1e-5)
    padded = np.pad(rows, ((0, 0), (0, config.patch_stride)), mode="edge")
    cut = np.lib.stride_tricks.sliding_window_view(padded, config.patch_length, axis=1)[:, :: config.patch_stride]
    off = float(np.abs(cut - t["embedding.patches"].double().cpu().numpy()).max())
    return StepCheck(
        f"the patches are the series, computed again from what was read: largest |Δ| {off:.1g}", off <= NEAR
    )
