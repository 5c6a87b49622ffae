"""What stands behind a mask, which class a text has, which tag a word, and the vectors of texts."""

import threading
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.data.config import LabeledConfig
from glassformer.data.sequences import Frame
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.metrics.class_report import Confusion
from glassformer.native.library import kernels
from glassformer.predict import Classifier, Filler, Tagger, encoder
from glassformer.predict.evaluation import ClassEvaluation, EvaluationFiles, evaluate_classification, evaluate_tagging
from tiny_run import write_lines
from tiny_tasks import SENTENCES, TinyTask, made

SHORT_AND_LONG = ["the dog runs.", "cat", "the horse sleeps. the"]


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> TinyTask:
    return made(tmp_path_factory, "masked")


@pytest.fixture(scope="module")
def filler(masked: TinyTask) -> Filler:
    return Filler.load(masked.run)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Classifier:
    return Classifier.load(made(tmp_path_factory, "classification").run)


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Tagger:
    return Tagger.load(made(tmp_path_factory, "tagging").run)


def framed(filler: Filler, ids: list[int]) -> torch.Tensor:
    special = filler.tokenizer.special_tokens
    return torch.tensor([[special["[CLS]"], *ids, special["[SEP]"]]])


def test_fill_is_the_model_by_hand(filler: Filler) -> None:
    """The sign behind the mask is cut as it is behind a word."""
    tokenizer, mask = filler.tokenizer, filler.tokenizer.special_tokens["[MASK]"]
    the, stop = tokenizer.encode("the"), tokenizer.encode("x.")[len(tokenizer.encode("x")) :]
    logits = filler.model(framed(filler, [*the, mask, mask, *stop]))[0, [2 + len(the) - 1, 2 + len(the)]]
    (found,) = filler.fill(["the [MASK] [MASK]."], top=3)
    assert len(found.blanks) == 2
    assert all(len(blank) == 3 for blank in found.blanks)
    for row, blank in zip(logits.softmax(-1), found.blanks, strict=True):
        for one in blank:
            place = tokenizer.tokens(range(tokenizer.vocab_size)).index(one.token)
            assert one.probability == pytest.approx(row[place].item(), abs=1e-5)
            assert place not in tokenizer.special_tokens.values()
        assert [one.probability for one in blank] == sorted((one.probability for one in blank), reverse=True)
    assert found.text.startswith("the")
    assert found.text.endswith(".")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("the [MASK].", ["the</w>", "[MASK]", "￭.</w>"]),
        ("[MASK]", ["[MASK]"]),
        ("[MASK] [MASK] the", ["[MASK]", "[MASK]", "the</w>"]),
        ("the [MASK]s", ["the</w>", "[MASK]", "s</w>"]),
    ],
)
def test_a_mask_is_one_token_and_its_neighbors_are_cut_as_ever(filler: Filler, text: str, tokens: list[str]) -> None:
    assert filler.tokenizer.tokens(filler._with_masks(1, text)) == tokens


def test_fill_leaves_what_is_around_a_mask_as_it_was(filler: Filler) -> None:
    texts = ["[MASK] Ünd\t☃ sleeps .", "(the [MASK])", "THE  [MASK][MASK]x"]
    for text, found in zip(texts, filler.fill(texts), strict=True):
        around = text.split("[MASK]")
        words = [blank[0].text for blank in found.blanks]
        assert found.text == "".join(map(str.__add__, around, [*words, ""]))


def test_only_here_is_a_mask_no_text(filler: Filler) -> None:
    assert filler.tokenizer.special_tokens["[MASK]"] not in filler.tokenizer.encode("the [MASK] runs")


def as_in_any_batch(expected: Any) -> Any:
    """The kernels compute the same bits in any batch, PyTorch nearly the same numbers."""
    return pytest.approx(expected, abs=1e-5) if kernels() is None else expected


def test_fill_together_as_alone(filler: Filler) -> None:
    texts = ["the [MASK] sleeps.", "[MASK]", "the [MASK] [MASK]. the cat"]
    together = filler.fill(texts)
    for text, found in zip(texts, together, strict=True):
        (alone,) = filler.fill([text])
        assert found.text == alone.text
        for one, other in zip(chain(*found.blanks), chain(*alone.blanks), strict=True):
            assert (one.token, one.probability) == (other.token, as_in_any_batch(other.probability))


def test_text_that_cannot_be_filled(filler: Filler) -> None:
    with pytest.raises(DataError, match=r'text 2 has no \[MASK\]; write one in place of a word, as in "A \[MASK\]'):
        filler.fill(["a [MASK]", "a mask"])
    with pytest.raises(DataError, match=r"text 1 has \d+ tokens, more than the 16 that the model sees; shorten it"):
        filler.fill(["[MASK]" + " the" * 20])
    with pytest.raises(ConfigError, match="top=0 is not a number of candidates"):
        filler.fill(["[MASK]"], top=0)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_embeddings_are_the_model_s_together_as_alone(filler: Filler, pooling: str) -> None:
    found = filler.embed(SHORT_AND_LONG, pooling)  # type: ignore[arg-type]
    assert found.shape == (3, 16)
    for text, vector in zip(SHORT_AND_LONG, found, strict=True):
        hidden = filler.model.hidden(framed(filler, filler.tokenizer.encode(text)[:14]))[0]
        expected = {"mean": hidden.mean(0), "cls": hidden[0], "max": hidden.max(0).values}[pooling]
        torch.testing.assert_close(vector, expected, atol=1e-5, rtol=1e-4)
        length_1 = filler.embed([text], pooling, normalize=True)[0]  # type: ignore[arg-type]
        torch.testing.assert_close(length_1, vector / vector.norm(), atol=1e-5, rtol=1e-4)
    assert filler.embed([]).shape == (0, 16)
    assert filler.too_long(["the " * 20, "the"]) == [(0, 22)]
    with pytest.raises(DataError, match="pooling='sum' is not known; choose from mean, cls, max"):
        filler.embed(["a"], "sum")  # type: ignore[arg-type]


def test_embeddings_of_many_texts_are_the_same_on_one_core_and_on_two(
    filler: Filler, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels() is None:
        pytest.skip("PyTorch computes one batch after the other")
    texts, names = [text for text in SHORT_AND_LONG for _ in range(20)], set[str]()
    read = Frame.rows

    def noted(frame: Frame, sequences: Any) -> Any:
        names.add(threading.current_thread().name)
        return read(frame, sequences)

    monkeypatch.setattr(Frame, "rows", noted)
    monkeypatch.setattr(encoder, "PARALLEL_BATCH_TOKENS", 40)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            names.clear()
            torch.set_num_threads(threads)
            found.append(filler.embed(texts))
            assert (threading.main_thread().name in names) == (threads == 1)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_classes_are_the_model_s_together_as_alone(classifier: Classifier) -> None:
    texts = [*SENTENCES[:5], ("the dog runs.", "the bird sings.")]
    together = classifier.classify(texts)
    for text, found in zip(texts, together, strict=True):
        (alone,) = classifier.classify([text])
        assert found.label == alone.label == max(alone.probabilities, key=alone.probabilities.__getitem__)
        assert found.probabilities == as_in_any_batch(alone.probabilities)
        assert set(found.probabilities) == set(classifier.labels) == {"loud", "quiet"}
        assert sum(found.probabilities.values()) == pytest.approx(1)
    special = classifier.tokenizer.special_tokens
    ids = [special["[CLS]"], *classifier.tokenizer.encode(SENTENCES[0]), special["[SEP]"]]
    assert classifier.model.classes is not None
    logits = classifier.model.classes(classifier.model.hidden(torch.tensor([ids])))[0]
    assert together[0].probabilities["loud"] == pytest.approx(logits.softmax(-1)[0].item(), abs=1e-5)


def test_an_empty_text_has_no_class(classifier: Classifier) -> None:
    with pytest.raises(DataError, match="text 2 is empty"):
        classifier.classify(["the", " "])


def test_every_word_has_its_tag_together_as_alone(tagger: Tagger) -> None:
    """The same letters cut into other words; a sentence of many words, in parts; one of none."""
    sentences = [["the", "dog", "runs"], ["thed", "og", "runs"], ["the", "dog", "runs"] * 9, []]
    together = tagger.predictions(sentences)
    assert [len(tags) for tags in together] == [3, 3, 27, 0]
    assert tagger.tag(["the dog runs"]) == tagger.tag(sentences)[:1]
    for words, found in zip(sentences, together, strict=True):
        (alone,) = tagger.predictions([words])
        for one, other in zip(found, alone, strict=True):
            assert one.probabilities == as_in_any_batch(other.probabilities)
    special, words = tagger.tokenizer.special_tokens, ["the", "dog", "runs"]
    ids = [special["[CLS]"], *tagger.tokenizer.encode("".join(words)), special["[SEP]"]]
    assert tagger.model.tags is not None
    logits = tagger.model.tags(tagger.model.hidden(torch.tensor([ids])))[0, [1, 4, 7]]
    assert tagger.tag([words])[0] == [tagger.tags[best] for best in logits.argmax(-1).tolist()]
    with pytest.raises(DataError, match=r"sentence 1 has the word 'a+'… of 40 tokens, more than the 30 that"):
        tagger.tag([["a" * 40]])


def test_scores_on_files(classifier: Classifier, tagger: Tagger, masked: TinyTask) -> None:
    path = write_lines(masked.folder / "test.tsv", ["text\tlabel", "the dog runs.\tquiet", "the bird sings.\tloud"])
    config = LabeledConfig(train=[path])

    def evaluated(file: str) -> ClassEvaluation:
        return evaluate_classification(lambda: classifier, EvaluationFiles("run", [file], lambda: config))

    found = [one.label for one in classifier.classify(["the dog runs.", "the bird sings."])]
    assert evaluated(path).scores["accuracy"] == np.mean([one == two for one, two in zip(found, ["quiet", "loud"])])
    assert evaluated(path).scores["texts"] == 2
    faulty = write_lines(masked.folder / "faulty.tsv", ["text\tlabel", "the dog\tlod"])
    with pytest.raises(DataError, match=r"faulty.tsv, line 2: label 'lod' does not occur in .*; did you mean loud\?"):
        evaluated(faulty)
    tagged = write_lines(masked.folder / "test.conll", ["the DET", "dog NOUN", "", "cat NOUN"])
    assert evaluate_tagging(lambda: tagger, EvaluationFiles("run", [tagged])).scores["words"] == 3
    wrong = write_lines(masked.folder / "wrong.conll", ["the DET", "dog NUON"])
    with pytest.raises(DataError, match=r"wrong.conll, line 1: tag 'NUON' does not occur .*; did you mean NOUN\?"):
        evaluate_tagging(lambda: tagger, EvaluationFiles("run", [wrong]))


def test_macro_f1_is_the_mean_over_labels() -> None:
    """a: 2 · 1 / (1 + 2); b: 2 · 1 / (2 + 1)."""
    scores = ClassEvaluation(Confusion.of(["a", "b", "b"], ["a", "a", "b"]), "texts").scores
    assert scores == {"accuracy": pytest.approx(2 / 3), "macro_f1": pytest.approx(2 / 3), "texts": 3}
    scores = ClassEvaluation(Confusion.of(["a", "a"], ["a", "b"]), "texts").scores
    assert np.isclose(scores["macro_f1"], (2 / 3 + 0) / 2)


def test_a_run_of_another_task_is_refused(masked: TinyTask) -> None:
    with pytest.raises(CheckpointError, match=r"task=masked, but this is for classification; use glassformer fill$"):
        Classifier.load(masked.run)
