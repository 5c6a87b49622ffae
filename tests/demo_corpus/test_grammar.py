import re
from collections import defaultdict
from itertools import pairwise

import pytest

from glassformer.demo_corpus import lexicon
from glassformer.demo_corpus.grammar import DEMO_PAIR, MAX_WORDS, MIN_WORDS, AlignedPair, sample_corpus
from glassformer.demo_corpus.syntax import Clause, NounPhrase, translate
from glassformer.errors import DataError

VERBS = {verb.english: verb for verb in (*lexicon.TRANSITIVE, *lexicon.OBLIQUE, *lexicon.INTRANSITIVE)}
NOUNS = {noun.english: noun for noun in lexicon.NOUNS}
ADJECTIVES = {adjective.english: adjective for adjective in lexicon.ADJECTIVES}
ME, YOU, HE, SHE, WE, THEY = lexicon.PRONOUNS
TALK_TO = next(v for v in lexicon.OBLIQUE if v.complement and (v.english, v.complement.english) == ("talk", "to"))
TALK_ABOUT = next(v for v in lexicon.OBLIQUE if v.complement and v.complement.english == "about")
PLACES = {preposition.english: preposition for preposition in lexicon.PLACES}


def np(determiner, noun, plural=False, before=None, after=None, of=None):
    return NounPhrase(determiner, NOUNS[noun], plural, before and ADJECTIVES[before], after and ADJECTIVES[after], of)


def links(text):
    return tuple((int(source), int(target)) for source, target in (link.split("-") for link in text.split()))


KNOWN = [
    (Clause(ME, VERBS["love"], YOU), "I love you", "je t' aime", "0-0 1-2 2-1"),
    (Clause(ME, VERBS["love"], YOU, negated=True), "I do not love you", "je ne t' aime pas", "0-0 2-1 2-4 3-3 4-2"),
    (
        Clause(SHE, VERBS["love"], np("the", "man"), negated=True),
        "she does not love the man",
        "elle n' aime pas l' homme",
        "0-0 2-1 2-3 3-2 4-4 5-5",
    ),
    (
        Clause(np("the", "cat", before="small", after="black"), VERBS["watch"], HE),
        "the small black cat watches him",
        "le petit chat noir le regarde",
        "0-0 1-1 2-3 3-2 4-5 5-4",
    ),
    (
        Clause(ME, VERBS["go"], complement=np("the", "park")),
        "I go to the park",
        "je vais au parc",
        "0-0 1-1 2-2 3-2 4-3",
    ),
    (
        Clause(WE, VERBS["go"], complement=np("the", "church", plural=True)),
        "we go to the churches",
        "nous allons aux églises",
        "0-0 1-1 2-2 3-2 4-3",
    ),
    (
        Clause(THEY, TALK_ABOUT, complement=np("the", "king")),
        "they talk about the king",
        "ils parlent du roi",
        "0-0 1-1 2-2 3-2 4-3",
    ),
    (
        Clause(HE, VERBS["eat"], np("a", "orange"), negated=True),
        "he does not eat an orange",
        "il ne mange pas d' orange",
        "0-0 2-1 2-3 3-2 4-4 5-5",
    ),
    (
        Clause(YOU, VERBS["see"], SHE, modal=lexicon.WANT, negated=True, frequency="always"),
        "you do not always want to see her",
        "tu ne veux pas toujours la voir",
        "0-0 2-1 2-3 3-4 4-2 5-6 6-6 7-5",
    ),
    (
        Clause(ME, VERBS["give"], np("my", "book"), THEY, modal=lexicon.CAN),
        "I can give my book to them",
        "je peux leur donner mon livre",
        "0-0 1-1 2-3 3-4 4-5 5-2 6-2",
    ),
    (
        Clause(np("her", "story", before="beautiful"), lexicon.BE, adjective=ADJECTIVES["expensive"], degree="too"),
        "her beautiful story is too expensive",
        "sa belle histoire est trop chère",
        "0-0 1-1 2-2 3-3 4-4 5-5",
    ),
    (
        Clause(np("this", "uncle", before="old"), VERBS["look for"], np("his", "pear", after="green")),
        "this old uncle looks for his green pear",
        "ce vieil oncle cherche sa poire verte",
        "0-0 1-1 2-2 3-3 4-3 5-4 6-6 7-5",
    ),
    (
        Clause(np("many", "child", plural=True), VERBS["wait for"], HE, place=(PLACES["near"], np("the", "hotel"))),
        "many children wait for him near the hotel",
        "beaucoup d' enfants l' attendent près de l' hôtel",
        "0-0 0-1 1-2 2-4 3-4 4-3 5-5 5-6 6-7 7-8",
    ),
    (
        Clause(np("the", "friend", of=np("the", "king")), VERBS["sing"], time="tonight"),
        "the friend of the king sings tonight",
        "l' ami du roi chante ce soir",
        "0-0 1-1 2-2 3-2 4-3 5-4 6-5 6-6",
    ),
    (Clause(WE, TALK_TO, complement=SHE), "we talk to her", "nous lui parlons", "0-0 1-2 2-1 3-1"),
    (Clause(THEY, VERBS["buy"], THEY), "they buy them", "ils les achètent", "0-0 1-2 2-1"),
]


@pytest.fixture(scope="module")
def corpus():
    return sample_corpus(20_000, 5)


@pytest.mark.parametrize(("clause", "english", "french", "alignment"), KNOWN, ids=[known[1] for known in KNOWN])
def test_known_translations(clause, english, french, alignment):
    assert translate([clause]) == AlignedPair(english, french, links(alignment))


def test_the_demo_sentence_is_of_the_language():
    assert translate([Clause(ME, VERBS["love"], YOU)]) == DEMO_PAIR


def test_two_clauses_are_joined_with_elision_of_the_conjunction():
    pair = translate([Clause(ME, VERBS["sleep"]), Clause(SHE, VERBS["sing"])], "because")
    assert pair == AlignedPair(
        "I sleep because she sings", "je dors parce qu' elle chante", links("0-0 1-1 2-2 2-3 3-4 4-5")
    )


def test_a_seed_fixes_the_corpus(corpus):
    assert sample_corpus(300, 5) == corpus[:300]
    assert sample_corpus(300, 6) != corpus[:300]


def test_sentences_are_distinct_and_of_the_promised_length(corpus):
    assert len({pair.source for pair in corpus}) == len(corpus) == 20_000
    assert {len(pair.source.split()) for pair in corpus} == set(range(MIN_WORDS, MAX_WORDS + 1))


def test_translation_is_a_function_of_the_english_sentence():
    french = defaultdict(set)
    for seed in range(4):
        for pair in sample_corpus(5_000, seed):
            french[pair.source].add(pair[1:])
    assert len(french) < 20_000  # the seeds do share sentences, so the next line can fail
    assert {len(translations) for translations in french.values()} == {1}


def test_every_word_but_do_is_aligned(corpus):
    for source, target, alignment in corpus:
        english = source.split()
        assert list(alignment) == sorted(set(alignment))
        assert {j for _, j in alignment} == set(range(len(target.split())))
        aligned = {i for i, _ in alignment}
        assert aligned == {i for i, word in enumerate(english) if word not in ("do", "does")}


def test_elision_and_contraction_are_complete(corpus):
    text = "\n".join(pair.target for pair in corpus)
    assert not re.findall(r"\b(?:je|me|te|le|la|ne|de|que|ce|ma|ta|sa) [aeiouyhâàéèêîôû]\w*", text)
    assert not re.findall(r"\b(?:beau|nouveau|vieux) (?:homme|enfant|ami|oncle|oiseau|arbre|hôtel)\b", text)
    assert not re.findall(r"(?:^|[ \n])(?:[jmtlnd]|qu)' [^aeiouyhâàéèêîôû\n]\w*", text)
    assert not re.findall(r"\b(?:à|de) les?\b", text)
    for form in ("j'", "m'", "t'", "l'", "n'", "d'", "qu'", "au", "aux", "du", "des", "cet", "bel", "vieil", "nouvel"):
        assert f" {form} " in text.replace("\n", " "), form


def test_french_determiners_agree_with_their_nouns(corpus):
    """In number and gender, read off the surface; forms before a vowel are of either gender."""
    genders = {noun.french: noun.gender for noun in lexicon.NOUNS}
    plurals = {noun.french_plural for noun in lexicon.NOUNS}
    masculine, feminine = {"le", "un", "ce", "au", "du"}, {"la", "une", "cette", "ma", "ta", "sa"}
    many = {"les", "ces", "mes", "tes", "ses", "nos", "leurs", "deux", "aux"}
    seen = 0
    for pair in corpus:
        words = pair.target.split()
        for word, following in pairwise(words):
            if following in genders:
                seen += word in masculine | feminine
                assert word not in many | ({"f": masculine, "m": feminine}[genders[following]]), pair
            if following in plurals:
                assert word not in masculine | feminine | {"mon", "ton", "son", "notre", "chaque"}, pair
    assert seen > 5_000


def test_english_verbs_agree_with_their_subjects(corpus):
    third = {verb.third.split()[0] for verb in (*VERBS.values(), lexicon.WANT)} | {"is", "does"}
    bare = {verb.english.split()[0] for verb in (*VERBS.values(), lexicon.WANT)} | {"am", "are", "do"}
    for pair in corpus:
        words = pair.source.split()
        for subject, verb in pairwise(words):
            if subject in ("he", "she"):
                assert verb not in bare, pair
            if subject in ("I", "we", "they"):
                assert verb not in third, pair


def test_indefinite_objects_of_negated_verbs_have_no_article(corpus):
    affirmed = negated = 0
    for pair in corpus:
        if re.fullmatch(r"\S+ (?:do not eat|does not eat|eats?) an? .*", pair.source) and " and " not in pair.source:
            clause = re.split(r" (?:mais|parce)\b", pair.target)[0]
            if " pas " in clause:
                negated += 1
                assert re.search(r" pas d[e'] ", clause), pair
            else:
                affirmed += 1
                assert re.search(r" une? ", clause), pair
    assert affirmed
    assert negated


@pytest.mark.parametrize(
    ("infinitive", "forms"),
    [
        ("aimer", "aime aimes aime aimons aiment"),
        ("acheter", "achète achètes achète achetons achètent"),
        ("manger", "mange manges mange mangeons mangent"),
        ("oublier", "oublie oublies oublie oublions oublient"),
    ],
)
def test_conjugation(infinitive, forms):
    assert lexicon.conjugate(infinitive) == tuple(forms.split())


def test_a_word_has_one_meaning():
    for words in (lexicon.NOUNS, lexicon.ADJECTIVES):
        assert len({word.english for word in words}) == len(words)
    assert not {verb.english.split()[0] for verb in VERBS.values()} & {
        form for noun in lexicon.NOUNS for form in (noun.english, noun.english_plural)
    }


def test_the_size_is_not_negative():
    assert sample_corpus(0, 1) == []
    with pytest.raises(DataError, match="size=-1"):
        sample_corpus(-1, 1)
