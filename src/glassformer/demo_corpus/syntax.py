"""The phrases of the demonstration grammar, written in English and in French at once.

French is in the order and agreement of French: adjectives behind their noun, clitic pronouns before their verb,
*ne … pas* around it, *pas de* for *not a*, elision, *au*, *du*.

Alignment: a French word is linked to every English word that it renders: *au* to *to* and *the*; *ne* and *pas* both to
*not*; an infinitive also to the *to* before it. The auxiliary *do* renders nothing and has no link; every other word
has one.
"""

from dataclasses import dataclass
from typing import NamedTuple

from glassformer.demo_corpus import lexicon
from glassformer.demo_corpus.lexicon import Adjective, Noun, Person, Preposition, Pronoun, Verb

Piece = tuple[str, tuple[int, ...]]  # a French word and the English words that it renders


class AlignedPair(NamedTuple):
    """A sentence, its translation, and the sure links: 0-based word indices, source then target, sorted."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class NounPhrase:
    determiner: str  # a key of lexicon.DETERMINERS
    noun: Noun
    plural: bool = False
    before: Adjective | None = None  # in French; both precede in English
    after: Adjective | None = None
    of: "NounPhrase | None" = None

    @property
    def person(self) -> Person:
        return 4 if self.plural else 2


@dataclass(frozen=True)
class Clause:
    subject: Pronoun | NounPhrase
    verb: Verb
    object: Pronoun | NounPhrase | None = None  # at most one of object and complement is a pronoun
    complement: Pronoun | NounPhrase | None = None  # after the verb's own preposition
    modal: Verb | None = None
    negated: bool = False
    frequency: str = ""
    degree: str = ""
    adjective: Adjective | None = None  # with BE
    place: tuple[Preposition, NounPhrase] | None = None
    time: str = ""


def translate(clauses: list[Clause], conjunction: str = "") -> AlignedPair:
    """Write one clause, or two with ``conjunction`` between them, in both languages."""
    english: list[str] = []
    french: list[Piece] = []
    for index, clause in enumerate(clauses):
        if index:
            french += _phrase(english, conjunction, lexicon.CONJUNCTIONS[conjunction])
        french += _write_clause(english, clause)
    french = _join(french)
    links = sorted((source, target) for target, (_, sources) in enumerate(french) for source in sources)
    return AlignedPair(" ".join(english), " ".join(form for form, _ in french), tuple(links))


def _say(english: list[str], words: str) -> tuple[int, ...]:
    """Add words to the English sentence; return where they stand."""
    start = len(english)
    english += words.split()
    return tuple(range(start, len(english)))


def _phrase(english: list[str], words: str, french: str) -> list[Piece]:
    """A fixed expression: every French word renders all of the English ones."""
    links = _say(english, words)
    return [(form, links) for form in french.split()]


def _write_noun_phrase(english: list[str], phrase: NounPhrase, partitive: bool = False) -> list[Piece]:
    """``partitive``: the direct object of a negated verb, where *un* becomes *de* (*pas de chat*)."""
    noun = phrase.noun
    singular, plural, *forms = lexicon.DETERMINERS[phrase.determiner]
    adjectives = [adjective for adjective in (phrase.before, phrase.after) if adjective]
    next_word = adjectives[0].english if adjectives else noun.english
    article = "an" if singular == "a" and next_word[0] in "aeiou" else plural if phrase.plural else singular
    form = forms[2] if phrase.plural else forms[noun.gender == "f"]
    french = _phrase(english, article, "de" if partitive and phrase.determiner == "a" else form)

    agreement = noun.gender + ("p" if phrase.plural else "s")
    rendered = noun.french_plural if phrase.plural else noun.french
    described = [(adjective, _say(english, adjective.english)) for adjective in adjectives]
    head = [(rendered, _say(english, noun.english_plural if phrase.plural else noun.english))]
    for adjective, links in described:
        if adjective.before:
            vowel = agreement == "ms" and _starts_with_vowel(rendered)
            head.insert(0, (adjective.forms["mv" if vowel else agreement], links))
        else:
            head.append((adjective.forms[agreement], links))
    french += head
    if phrase.of:
        french += _phrase(english, "of", "de") + _write_noun_phrase(english, phrase.of)
    return french


def _write_clause(english: list[str], clause: Clause) -> list[Piece]:
    """English is said in its own order while the French parts are kept, which are then put in theirs."""
    subject = clause.subject
    person = subject.person
    if isinstance(subject, Pronoun):
        french = _phrase(english, subject.english, subject.french)
    else:
        french = _write_noun_phrase(english, subject)
    finite, negation, frequency, infinitive = _write_verb(english, clause, person)
    clitic, rest = _write_objects(english, clause)
    if clause.adjective:
        rest += _write_predicate(english, clause, clause.adjective)
    if clause.place:
        preposition, phrase = clause.place
        rest += _phrase(english, preposition.english, preposition.french) + _write_noun_phrase(english, phrase)
    if clause.time:
        rest += _phrase(english, clause.time, lexicon.TIME[clause.time])

    french += [("ne", negation)] if clause.negated else []
    french += finite if clause.modal else clitic + finite
    french += [("pas", negation)] if clause.negated else []
    french += frequency
    return french + (clitic + infinitive if clause.modal else []) + rest


def _write_verb(
    english: list[str], clause: Clause, person: Person
) -> tuple[list[Piece], tuple[int, ...], list[Piece], list[Piece]]:
    """The finite verb, the place of *not*, the adverb of frequency, and the infinitive after a modal."""
    finite = clause.modal or clause.verb
    auxiliary = finite in (lexicon.BE, lexicon.CAN, lexicon.MUST)
    bare = ("am", "are", "is", "are", "are")[person] if finite is lexicon.BE else finite.english
    form = finite.third if person == 2 else bare
    links: tuple[int, ...] = ()
    negation: tuple[int, ...] = ()
    if auxiliary:
        links = _say(english, form)
    elif clause.negated:
        form = finite.english
        _say(english, "does" if person == 2 else "do")
    if clause.negated:
        negation = _say(english, "not")
    frequency = _phrase(english, clause.frequency, lexicon.FREQUENCY[clause.frequency]) if clause.frequency else []
    if not auxiliary:
        links = _say(english, form)
    infinitive: list[Piece] = []
    if clause.modal:
        words = f"to {clause.verb.english}" if clause.modal is lexicon.WANT else clause.verb.english
        infinitive = [(clause.verb.infinitive, _say(english, words))]
    return [(finite.present[person], links)], negation, frequency, infinitive


def _write_objects(english: list[str], clause: Clause) -> tuple[list[Piece], list[Piece]]:
    """The clitic pronoun before the verb, and what follows the verb."""
    clitic: list[Piece] = []
    rest: list[Piece] = []
    if isinstance(clause.object, Pronoun):
        clitic = _phrase(english, clause.object.english_object, clause.object.direct)
    elif clause.object:
        rest = _write_noun_phrase(english, clause.object, partitive=clause.negated)
    preposition = clause.verb.complement
    if preposition and isinstance(clause.complement, Pronoun):
        words = f"{preposition.english} {clause.complement.english_object}"
        clitic = _phrase(english, words, clause.complement.indirect)
    elif preposition and isinstance(clause.complement, NounPhrase):
        rest += _phrase(english, preposition.english, preposition.french)
        rest += _write_noun_phrase(english, clause.complement)
    return clitic, rest


def _write_predicate(english: list[str], clause: Clause, adjective: Adjective) -> list[Piece]:
    subject = clause.subject
    gender = (subject.gender or "m") if isinstance(subject, Pronoun) else subject.noun.gender
    agreement = gender + ("p" if subject.person > 2 else "s")
    degree = _phrase(english, clause.degree, lexicon.DEGREE[clause.degree]) if clause.degree else []
    return degree + _phrase(english, adjective.english, adjective.forms[agreement])


def _starts_with_vowel(word: str) -> bool:
    return word[0] in "aeiouyhâàéèêîôû"


def _join(pieces: list[Piece]) -> list[Piece]:
    """Elision before a vowel, and contraction: *à le* → *au*, whose links are those of both."""
    joined: list[Piece] = []
    for form, links in reversed(pieces):
        following = joined[-1][0] if joined else ""
        if following and form in lexicon.ELIDED and _starts_with_vowel(following):
            joined.append((lexicon.ELIDED[form], links))
        elif (form, following) in lexicon.CONTRACTED:
            joined[-1] = (lexicon.CONTRACTED[form, following], links + joined[-1][1])
        else:
            joined.append((form, links))
    return joined[::-1]
