"""Every checkpoint format ever written decodes to the same text forever.

``tests/data/format_1``: one encoder and one decoder layer of width 32 that learned forty sentences of the demonstration
grammar by heart. Never made anew; a new format gets a folder of its own beside it.
"""

from pathlib import Path

import pytest

import glassformer

FORMATS = Path(__file__).parents[1] / "data"

KNOWN = {
    "they visit them with the bird.": "ils les visitent avec l' oiseau.",
    "my sad children do not eat them.": "mes enfants tristes ne les mangent pas.",
    "I stay near their beautiful parks.": "je reste près de leurs beaux parcs.",
    "we must not visit these interesting cities.": "nous ne devons pas visiter ces villes intéressantes.",
    "you often draw these villages.": "tu dessines souvent ces villages.",
    "the doctor carries them.": "le médecin les porte.",
}


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("name", ["format_1"])
def test_old_checkpoint_decodes_unchanged(name: str, beam_size: int) -> None:
    translator = glassformer.load(FORMATS / name)
    assert dict(zip(KNOWN, translator.translate(list(KNOWN), beam_size=beam_size), strict=True)) == KNOWN


def test_old_checkpoint_scores_unchanged() -> None:
    (score,) = glassformer.load(FORMATS / "format_1").score(["the doctor carries them."], ["le médecin les porte."])
    assert score.score == pytest.approx(-0.0543, abs=1e-4)
