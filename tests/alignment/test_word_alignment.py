"""Links between words, of models whose attention is known, and of two directions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tiny_run
from glassformer.alignment import read_pharaoh, symmetrize
from glassformer.alignment.attention import grouped, strongest_links, word_weights
from glassformer.alignment.links import SYMMETRIZATIONS
from glassformer.cli.demo import best_cross_attention
from glassformer.demo_corpus.syntax import AlignedPair
from glassformer.errors import ConfigError, DataError
from glassformer.generate import DecodingConfig
from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from glassformer.models.registry import build_model
from glassformer.predict.alignment import best_head, chosen, links_of_heads, word_attention
from glassformer.predict.translator import Translator
from glassformer.text import TextConfig, train_tokenizers

WORDS = "one two three four five six"
LINKS = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


@torch.no_grad()
def looking(back: int) -> Translator:
    """A model written by hand: its decoder at position p attends to source position p - ``back``, and nothing else
    happens in it. Embeddings are 0 and position p is the unit vector p, which W_Q turns into p - ``back``."""
    tokenizers = train_tokenizers(
        TextConfig(kind="word", vocab_size=20, min_frequency=1), lambda: iter([WORDS]), lambda: iter([WORDS])
    )
    config = {
        "vocab_size": tokenizers.source.vocab_size,
        "d_model": 32,
        "n_heads": 1,
        "d_ff": 4,
        "dropout": 0.0,
        "max_length": 32,
    }
    layers = {"n_encoder_layers": 1, "n_decoder_layers": 1, "norm_order": "pre", "positions": "learned"}
    model = EncoderDecoder(EncoderDecoderConfig.parse({**config, **layers})).eval()
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            parameter.zero_()
    for embedding in (model.source_embedding, model.target_embedding):
        embedding.position.weight.copy_(torch.eye(32))
    attention = model.decoder.layers[0].cross_attention
    attention.query.weight.copy_(10 * torch.eye(32).roll(-back, 0))
    attention.key.weight.copy_(torch.eye(32))
    return Translator([model], tokenizers, DecodingConfig())


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return tiny_run.made(tmp_path_factory).translator


def test_head_that_attends_to_its_input_is_correct_only_when_shifted() -> None:
    """At position p the decoder reads word p - 1: one position back is the word that it reads."""
    texts = [WORDS, "six five four", "two one"]
    gold = [frozenset((n, n) for n in range(len(text.split()))) for text in texts]
    behind, beside = (links_of_heads(looking(back), texts, texts)[0] for back in (1, 0))
    assert behind.error_rate(gold, shifted=True) == beside.error_rate(gold) == 0
    assert behind.error_rate(gold) >= 8 / 11 - 1e-9  # the first words look at nothing, and may be right
    assert beside.error_rate(gold, shifted=True) == 1


def test_the_best_head_is_the_best_of_both_readings() -> None:
    gold = [read_pharaoh("0-0 1-1 2-2 3-3 4-4 5-5")]
    for back in (0, 1):
        one, shifted = best_head(links_of_heads(looking(back), [WORDS], [WORDS]), gold)
        assert (one.error_rate(gold, shifted), shifted) == (0, back == 1)
        assert one.name == "decoder layer 0, head 0"


@pytest.mark.parametrize("back", [0, 1])
def test_the_demonstration_shows_the_reading_that_is_aligned(back: int) -> None:
    """Rows sum to 1, and are named by the words that they are about: a shifted one by what its step reads."""
    pair = AlignedPair("one two six", "one two six", ((0, 0), (1, 1), (2, 2)))
    view = best_cross_attention(looking(back), pair, pair.target)
    matrix = view.matrices[0]
    rows, columns = matrix.rows.texts, matrix.columns.texts
    assert columns == ["one", "two", "six", "</s>"]
    assert rows == (["<s>", "one", "two", "six"] if back else columns)
    assert ("shifted" in view.title, "as read" in view.row_axis) == (back == 1, back == 1)
    for word in ("one", "two", "six"):
        assert matrix.values[rows.index(word), columns.index(word)] > 0.99
    assert matrix.values.sum(1) == pytest.approx(1)


def test_the_rate_is_of_the_corpus_and_not_the_mean_of_sentences() -> None:
    found = links_of_heads(looking(1), [WORDS, "one"], [WORDS, "one"])[0]
    gold = [read_pharaoh("0-0 1-1 2-2 3-3 4-4 5-5"), frozenset({(3, 0)})]
    assert found.error_rate(gold, shifted=True) == pytest.approx(1 - 2 * 6 / 14)


def test_word_weights_sum_source_pieces_and_average_target_pieces() -> None:
    weights = torch.tensor([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.0, 1.0, 0.0]])
    table = grouped(weights, [0, 0, 1], [0, 1, 0])
    torch.testing.assert_close(table, torch.tensor([[0.75, 0.25], [0.0, 1.0]]))
    torch.testing.assert_close(grouped(weights, [-1, 0, -1], [-1, 0, 0]), torch.tensor([[0.7]]))
    assert strongest_links(table) == [(0, 0), (1, 1)]
    assert strongest_links(torch.zeros(0, 0)) == []


def test_word_weights_of_predicted_or_input_positions() -> None:
    """Rows: predicts 0, predicts 1 and reads 0, ends and reads 1. The end token is left out."""
    steps = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.4, 0.1, 0.5]])
    torch.testing.assert_close(word_weights(steps, [0, 1], [0, 1]), steps[:2, :2])
    torch.testing.assert_close(word_weights(steps, [0, 1], [0, 1], shifted=True), steps[1:, :2])


def test_translator_alignment_equals_its_attention(translator: Translator) -> None:
    source, target = "the old cat sleeps", "le vieux chat dort"
    attention = word_attention(translator, source, target)
    for layer, head, shifted in ((-1, None, False), (0, 1, True), (1, 0, False), (-2, None, True)):
        links = attention.links(layer, head, shifted)
        assert links == translator.align(source, target, layer, head, shifted)
        assert sorted(word for _, word in links) == [0, 1, 2, 3]
        proposed = chosen(links_of_heads(translator, [source], [target]), layer, head)
        assert (proposed.shifted if shifted else proposed.naive) == [frozenset(links)]
    assert attention.naive.shape == attention.shifted.shape == (2, 2, 4, 4)
    assert (attention.naive.sum(-1) <= 1 + 1e-5).all()


@pytest.mark.parametrize(("source", "target"), [("", "je"), ("I", ""), ("", " ")])
def test_empty_texts_have_no_links(translator: Translator, source: str, target: str) -> None:
    assert word_attention(translator, source, target).links() == []
    assert [one.shifted for one in links_of_heads(translator, [source], [target])] == [[frozenset()]] * 6


def test_recurrent_decoder_has_cross_attention_in_one_layer(translator: Translator) -> None:
    model = build_model({"kind": "recurrent", "vocab_size": translator.tokenizers.source.vocab_size}, "test").eval()
    one = Translator([model], translator.tokenizers, DecodingConfig())
    assert model.config.n_decoder_layers == 2
    found = links_of_heads(one, ["the old cat"], ["le chat"])
    assert [(each.layer, each.head) for each in found] == [(0, 0), (0, None)]
    assert found[0].naive == [frozenset(one.align("the old cat", "le chat", 0, 0))]
    assert word_attention(one, "", "le chat").naive.shape == (1, 1, 0, 0)


def test_layers_heads_and_texts_that_are_not_there(translator: Translator) -> None:
    found = links_of_heads(translator, ["the cat"], ["le chat"])
    with pytest.raises(ConfigError, match=r"^layer=2 is not in the decoder; choose from 0 to 1$"):
        translator.align("the cat", "le chat", layer=2)
    with pytest.raises(ConfigError, match=r"^head=-3 is not in the decoder; choose from 0 to 1$"):
        translator.align("the cat", "le chat", head=-3)
    with pytest.raises(ConfigError, match=r"^layer=5 is not in the decoder; choose from 0 to 1$"):
        chosen(found, 5, None)
    with pytest.raises(DataError, match=r"^1 sources and 2 targets; give as many of each$"):
        links_of_heads(translator, ["a"], ["b", "c"])


# Two directions


def test_two_directions_by_hand() -> None:
    """(2, 2) is beside a link, (4, 4) of one direction alone and beside none; (0, 1) has both its words linked."""
    forward = read_pharaoh("0-0 1-1 2-2 4-4 0-1")
    backward = read_pharaoh("0-0 1-1 3-2")
    assert symmetrize(forward, backward, "intersection") == {(0, 0), (1, 1)}
    assert symmetrize(forward, backward, "union") == forward | backward
    assert symmetrize(forward, backward, "grow-diag") == {(0, 0), (1, 1), (2, 2), (3, 2)}
    assert symmetrize(forward, backward) == {(0, 0), (1, 1), (2, 2), (3, 2), (4, 4)}


@given(LINKS, LINKS)
def test_every_way_lies_between_intersection_and_union(forward, backward) -> None:
    for method in SYMMETRIZATIONS:
        links = symmetrize(forward, backward, method)
        assert forward & backward <= links <= forward | backward
        assert symmetrize(forward, forward, method) == forward
    grown, final = (symmetrize(forward, backward, method) for method in ("grow-diag", "grow-diag-final"))
    assert grown <= final
    words = ({link[side] for link in final} for side in (0, 1))
    assert all(set(side) == {link[n] for link in forward | backward} for n, side in enumerate(words))


def test_an_unknown_way_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"^'grow-dag' is no way to symmetrize; did you mean grow-diag\?$"):
        symmetrize(frozenset(), frozenset(), "grow-dag")
