"""A synchronous grammar: English sentences, their French translations, and which word translates which.

It feeds the demonstration, which needs a corpus without a download. The translation is a function: *you* is *tu*,
*they* is *ils*, and no pronoun in the singular stands for a thing. How a sentence is written is in ``syntax``; which
is drawn, here.
"""

import random
from dataclasses import replace

from glassformer.demo_corpus import lexicon
from glassformer.demo_corpus.lexicon import Preposition, Pronoun
from glassformer.demo_corpus.syntax import AlignedPair, Clause, NounPhrase, translate
from glassformer.errors import DataError

DEMO_PAIR = AlignedPair("I love you", "je t' aime", ((0, 0), (1, 2), (2, 1)))
DEMO_SENTENCE = DEMO_PAIR.source
MIN_WORDS, MAX_WORDS = 3, 20  # of the English sentence


class _Sampler:
    """Draws sentences of the grammar."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        by_kind = {kind: [noun for noun in lexicon.NOUNS if noun.kind == kind] for kind in sorted(lexicon.ANY)}
        self.nouns = {kind: tuple(nouns) for kind, nouns in by_kind.items()}

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def noun_phrase(self, kinds: frozenset[str], every: bool = False, nested: bool = False) -> NounPhrase:
        draw = self.random
        noun = draw.choice(self.nouns[draw.choice(sorted(kinds))])
        plural = self.chance(0.4)
        usable = [name for name, forms in lexicon.DETERMINERS.items() if forms[plural] and (every or name != "every")]
        determiner = "the" if self.chance(0.35) else draw.choice(usable)
        phrase = NounPhrase(determiner, noun, plural)
        if self.chance(0.3):
            fitting = [adjective for adjective in lexicon.ADJECTIVES if noun.kind in adjective.kinds]
            first, second = draw.sample(fitting, 2)
            phrase = replace(phrase, before=first) if first.before else replace(phrase, after=first)
            if first.before and not second.before and self.chance(0.3):
                phrase = replace(phrase, after=second)
        if determiner == "the" and not nested and self.chance(0.15):
            phrase = replace(phrase, of=self.noun_phrase(frozenset({"person"}), nested=True))
        return phrase

    def pronoun(self, kinds: frozenset[str], subject: Pronoun | NounPhrase) -> Pronoun:
        """An object pronoun: of things only *them*; never the subject's own person (*I … me*, *we … me*)."""
        if "person" not in kinds:
            return lexicon.PRONOUNS[5]
        own = {0: {0, 3}, 1: {1}, 3: {0, 3}}.get(subject.person, set())
        return self.random.choice([pronoun for pronoun in lexicon.PRONOUNS if pronoun.person not in own])

    def clause(self) -> Clause:
        draw = self.random
        negated = self.chance(0.25)
        predicate = self.chance(0.15)
        kinds = lexicon.ANY if predicate and self.chance(0.5) else frozenset({"person"})
        named = self.chance(0.45)
        subject = self.noun_phrase(kinds, every=not negated) if named else draw.choice(lexicon.PRONOUNS)
        clause = Clause(subject, lexicon.BE, negated=negated, frequency="")
        if self.chance(0.12):
            clause = replace(clause, frequency=draw.choice(list(lexicon.FREQUENCY)))
        return self.predicate(clause) if predicate else self.action(clause)

    def predicate(self, clause: Clause) -> Clause:
        """*is very old*, or *is in the garden*."""
        if self.chance(0.35):
            return replace(clause, place=self.place())
        subject = clause.subject
        kind = "person" if isinstance(subject, Pronoun) else subject.noun.kind
        unsaid = isinstance(subject, Pronoun) and not subject.gender
        fitting = [a for a in lexicon.ADJECTIVES if kind in a.kinds and not (unsaid and a.shows_gender)]
        degree = self.random.choice(list(lexicon.DEGREE)) if self.chance(0.3) else ""
        return replace(clause, adjective=self.random.choice(fitting), degree=degree)

    def action(self, clause: Clause) -> Clause:
        draw = self.random
        verbs = draw.choices((lexicon.TRANSITIVE, lexicon.OBLIQUE, lexicon.INTRANSITIVE), (7, 2, 1))[0]
        verb = draw.choice(verbs)
        clause = replace(clause, verb=verb)
        every = not clause.negated
        if self.chance(0.2):
            clause = replace(clause, modal=draw.choice((lexicon.WANT, lexicon.CAN, lexicon.MUST)))
        if verb.objects:
            clitic = not verb.complement and self.chance(0.45)
            found = self.pronoun(verb.objects, clause.subject) if clitic else self.noun_phrase(verb.objects, every)
            clause = replace(clause, object=found)
        if verb.complement:
            kinds = verb.complement.kinds
            clitic = verb.complement.clitic and self.chance(0.4)
            clause = replace(
                clause, complement=self.pronoun(kinds, clause.subject) if clitic else self.noun_phrase(kinds)
            )
        elif self.chance(0.5 if not verb.objects else 0.12):
            clause = replace(clause, place=self.place())
        if not clause.place and self.chance(0.1):
            clause = replace(clause, time=draw.choice(list(lexicon.TIME)))
        return clause

    def place(self) -> tuple[Preposition, NounPhrase]:
        preposition = self.random.choice(lexicon.PLACES)
        return preposition, self.noun_phrase(preposition.kinds, nested=True)

    def sentence(self) -> AlignedPair:
        if self.chance(0.7):
            return translate([self.clause()])
        return translate([self.clause(), self.clause()], self.random.choice(list(lexicon.CONJUNCTIONS)))


def sample_corpus(size: int, seed: int) -> list[AlignedPair]:
    """``size`` sentences, no two alike in English; the same for the same ``seed``."""
    if size < 0:
        raise DataError(f"size={size}: a corpus has no negative number of sentences; give 0 or more")
    sampler = _Sampler(seed)
    pairs: dict[str, AlignedPair] = {}
    while len(pairs) < size:
        pair = sampler.sentence()
        if MIN_WORDS <= pair.source.count(" ") + 1 <= MAX_WORDS:
            pairs.setdefault(pair.source, pair)
    return list(pairs.values())
