"""Pictures of an example by name: attention, positions, the causal mask, norms, the logit lens."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from glassformer.alignment.attention import grouped
from glassformer.errors import ConfigError, nearest
from glassformer.explain.example import Example, Side
from glassformer.explain.figures.model_figures import CLASS, class_attention, lens_of, mask, norms, positions
from glassformer.explain.figures.view import View
from glassformer.explain.formula.dataflow import stacks, token_projection
from glassformer.explain.matrix import WEIGHTS, Axis, Label, Matrix
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.embedding import PatchEmbedding
from glassformer.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Choice:
    """Options of an attention view: one ``head``, their ``average``, or every head; ``words``; ``specials`` or not.

    By words, a key word has the sum of its pieces and a query word the mean of its own, so rows sum to 1 still.
    Without special tokens (start, end) rows keep what is left: they are not scaled up, and the title says so.
    ``shifted``, of cross-attention only, names each step by the token that it reads, not by the one that it predicts.
    """

    head: int | None = None
    average: bool = False
    words: bool = False
    specials: bool = True
    shifted: bool = False


class _Groups(NamedTuple):
    """The tokens or words along an axis, and for each position the one that it is part of, -1 for none."""

    labels: tuple[Label, ...]
    groups: list[int]


def view_names(example: Example) -> list[str]:
    """Every view of ``example``: those of attention per layer, then those of the whole model."""
    return [*attention_views(example), *_whole(example)]


def attention_views(example: Example) -> dict[str, str]:
    """The name of each view of attention, and the path of the attention that it shows."""
    found = {}
    for path, module in example.model.named_modules():
        if isinstance(module, MultiHeadAttention):
            found[path.replace(".layers.", ".")] = path
    patches = [child for child in example.model.children() if isinstance(child, PatchEmbedding)]
    if all(embedding.class_token is None for embedding in patches):
        return found
    return {**found, **{f"{name.rpartition('.')[0]}.{CLASS}": path for name, path in found.items()}}


def view(
    example: Example,
    name: str,
    head: int | None = None,
    average: bool = False,
    words: bool = False,
    specials: bool = True,
    shifted: bool = False,
) -> View:
    """A figure by name: ``decoder.1.cross_attention``, ``positions``, ``mask``, ``norms``, ``logit_lens``, …

    The options are those of ``Choice``. ``ConfigError`` names the figures of the example if it has no such one.
    """
    choice = Choice(head, average, words, specials, shifted)
    whole, names = _whole(example), view_names(example)
    if name in whole:
        if choice != Choice():
            raise ConfigError(f"{name} has neither heads nor words; leave out what goes with attention")
        return whole[name](example)
    stack, _, rest = name.partition(".")
    number, _, kind = rest.partition(".")
    known = [one for one in names if one.startswith(f"{stack}.") and one.endswith(f".{kind}") and one.count(".") == 2]
    if known and number.isdecimal() and name not in names:
        raise ConfigError(f"layer={number} is outside the {stack}; choose from 0 to {len(known) - 1}")
    if name not in names:
        raise ConfigError(f"{name!r} is no view; {nearest(name, names)}")
    return _attention(example, name, choice)


def _attention(example: Example, name: str, choice: Choice) -> View:
    path = attention_views(example)[name]
    stack, kind = name.split(".")[0], path.rpartition(".")[2]
    heads = _heads(example.trace[f"{path}.weights"][0].double().cpu(), name, choice)
    place = f" layer {name.split('.')[1]}" if name.count(".") == 2 else ""
    title = f"{stack}{place}, {name.rpartition('.')[2].replace('_', '-')}"
    if len(heads) == 1:
        title += f", {next(iter(heads))}"
    if name.endswith(CLASS):
        return class_attention(example, name, title, heads)
    query_side, key_side = example.attention_sides(stack, kind)
    if choice.shifted:
        if kind != "cross_attention":
            raise ConfigError(f"{name} has no second reading; only cross-attention can be shifted")
        query_side, title = example.attention_sides(stack, "self_attention")[0], f"{title}, shifted"
    queries, keys = _groups(query_side, choice), _groups(key_side, choice)
    if not choice.specials:
        title += " · special tokens left out, so rows sum to less than 1"
    rows, columns = Axis(f"{query_side.name} (query)", queries.labels), Axis(f"{key_side.name} (key)", keys.labels)
    matrices = []
    for head, weights in heads.items():
        values = grouped(weights, queries.groups, keys.groups).numpy()
        matrices.append(Matrix(values, rows, columns, head if len(heads) > 1 else "", WEIGHTS))
    return View(name, title, matrices)


def _heads(weights: Tensor, name: str, choice: Choice) -> dict[str, Tensor]:
    if choice.head is not None and choice.average:
        raise ConfigError("one head and the average of all exclude each other; leave one out")
    if choice.average:
        return {f"mean of {len(weights)} heads": weights.mean(0)}
    if choice.head is None:
        return {f"head {number}": one for number, one in enumerate(weights)}
    if not 0 <= choice.head < len(weights):
        raise ConfigError(f"head={choice.head} is outside {name}; choose from 0 to {len(weights) - 1}")
    return {f"head {choice.head}": weights[choice.head]}


def _groups(side: Side, choice: Choice) -> _Groups:
    """Patches are no words, and of them the class token alone is special."""
    if side.tokenizer is not None:
        return _groups_of_text(side, side.tokenizer, choice)
    if choice.words:
        raise ConfigError("what stands here is no text and has no words; leave words out")
    labels = side.labels
    kept = [place for place, label in enumerate(labels) if choice.specials or label.text != "[CLS]"]
    order = {place: index for index, place in enumerate(kept)}
    return _Groups(tuple(labels[place] for place in kept), [order.get(place, -1) for place in range(len(labels))])


def _groups_of_text(side: Side, tokenizer: Tokenizer, choice: Choice) -> _Groups:
    special = set(tokenizer.special_tokens.values()) - {tokenizer.unknown_id}
    ids, words = side.ids, tokenizer.word_of(side.ids)
    keys = [
        (position, -1) if word < 0 or token in special or not choice.words else (-1, word)
        for position, (token, word) in enumerate(zip(ids, words, strict=True))
    ]
    kept = [key for key, token in zip(keys, ids, strict=True) if choice.specials or token not in special]
    order = {key: index for index, key in enumerate(dict.fromkeys(kept))}
    tokens, named = side.labels, side.words if choice.words else ()
    labels = [tokens[position] if word < 0 else named[word] for position, word in order]
    return _Groups(tuple(labels), [order.get(key, -1) for key in keys])


def _whole(example: Example) -> dict[str, Callable[[Example], View]]:
    """Views of a model with stacks of blocks; a recurrent one records no sums and no norms."""
    names = stacks(example.model)
    if not names:
        return {}
    found: dict[str, Callable[[Example], View]] = {"positions": positions, "mask": mask, "norms": norms}
    if "decoder" not in names:
        del found["mask"]
    if token_projection(example.model) is not None:
        found["logit_lens"] = lens_of
    return found
